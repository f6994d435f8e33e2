"""The documentation's site as `make docs` left it in build/docs, in Chromium from its files, without a server."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser.faults import faults

SITE = Path(__file__).parents[2] / "build/docs"
PAGES = sorted(SITE.rglob("*.html"))


class Read(HTMLParser):
    """Where a page's links lead, what it loads, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.anchors.add(has.get("id", ""))
        if tag == "a" and "href" in has:
            self.links.add(has["href"])
        elif "href" in has or "src" in has:
            self.loads.add(has.get("href") or has["src"])


READ = {page: Read(page) for page in PAGES}


def opened(browser: Any, page: str, **options: Any) -> Any:
    shown = browser.new_page(**options)
    shown.goto((SITE / page).as_uri())
    return shown


def test_make_docs_has_made_it() -> None:
    assert SITE / "index.html" in PAGES, "make docs"


@pytest.mark.parametrize("query", ["OptStop", "--allow-downgrade", "circuit breaker"])
def test_a_search_without_a_server_finds_pages(browser: Any, query: str) -> None:
    page = opened(browser, "index.html")
    page.fill("input[name=q]", query)
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").first
    title = found.inner_text()
    found.click()
    page.wait_for_selector("article h1, article h2")
    assert title.split(" > ")[-1] in page.inner_text("article")
    assert query.strip("-").lower() in page.inner_text("article").lower()
    page.close()


def test_links_lead_to_pages_and_headings_that_there_are() -> None:
    broken = []
    for page, read in READ.items():
        for link in read.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.is_file() or (target in READ and unquote(parts.fragment) not in READ[target].anchors):
                broken.append((page.relative_to(SITE), link))
    assert broken == []


def test_nothing_is_loaded_from_another_host(browser: Any) -> None:
    assert [load for read in READ.values() for load in read.loads if urlsplit(load).netloc] == []
    shown = browser.new_page(viewport={"width": 390, "height": 800})
    loaded: set[str] = set()
    shown.on("request", lambda request: loaded.add(urlsplit(request.url).scheme))
    for page in PAGES:
        shown.goto(page.as_uri())
        assert shown.evaluate("[...document.images].filter(each => !each.naturalWidth).map(each => each.src)") == []
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{page} is too wide for a phone"
    assert loaded <= {"file", "data"}
    shown.close()


def test_the_search_has_a_heading(browser: Any) -> None:
    shown = opened(browser, "search.html")
    assert shown.locator("h1").all_inner_texts() == ["Search"]
    shown.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "page",
    [
        "index", "tutorial", "directives", "configuration", "manual", "manual/slurmplug-acct.1", "changelog", "faq",
        "decisions/0009-observe-first", "files/sbatch_templates/optuna_sweep.py", "search",
    ],
)  # fmt: skip
def test_axe_finds_no_fault(browser: Any, page: str, scheme: str) -> None:
    shown = opened(browser, f"{page}.html", color_scheme=scheme)
    if page == "search":
        shown.fill("input[name=q]", "OptStop")
        shown.keyboard.press("Enter")
        shown.wait_for_selector("#search-results li a")
    assert faults(shown) == []
    shown.close()
