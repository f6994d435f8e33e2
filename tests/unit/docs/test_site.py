"""What `make docs` makes the site of, without Sphinx: the navigation is complete, and links lead somewhere."""

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from docs.make_manual_pages import pages as manual_pages
from docs.make_site import DOCS, ROOT, make, navigation, pages

PAGES = [*pages(), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
INDEX = DOCS / "index.md"
PARSER = MarkdownIt().enable("table")


def parsed(page: Path) -> list[Token]:
    return PARSER.parse(page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    found = [each for token in parsed(page) for each in token.children or ()]
    return [str(each.attrs.get("href", each.attrs.get("src"))) for each in found if each.type in ("link_open", "image")]


def anchors(page: Path) -> set[str]:
    """Of its headings, as Git forges and the site make them."""
    seen: Counter[str] = Counter()
    found = set()
    for before, token in pairwise(parsed(page)):
        if before.type == "heading_open":
            text = "".join(each.content for each in token.children or ()).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [
        (DOCS / target).resolve() for part in navigation(INDEX.read_text()).values() for _, target in part
    ]  # fmt: skip
    expected = [page for page in pages() if page != INDEX and page.parent != DOCS / "decisions"]
    assert sorted(listed) == sorted([*expected, DOCS / "decisions/README.md"]), "docs/index.md lists the pages"


def test_every_record_is_in_the_list_of_decisions() -> None:
    folder = DOCS / "decisions"
    assert {folder / link for link in links(folder / "README.md")} == set(folder.glob("*.md")) - {folder / "README.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_there_are(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        if ":" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_sources_of_the_site_lead_to_each_other(tmp_path: Path) -> None:
    make(tmp_path / "site")
    written = set((tmp_path / "site").rglob("*.md"))
    assert {str(page.relative_to(tmp_path / "site")) for page in written} >= {
        *map(str, pages().values()),
        *(f"manual/{name}.md" for name in manual_pages()),
        "files/site_config/slurmplug.lua.md",
        "files/ansible/roles/slurmplug.md",
        "files/ansible/roles/slurmplug/tasks/main.yml.md",
    }
    for page in written:
        for link in links(page):
            path = link.partition("#")[0]
            if path and ":" not in path:
                target = (page.parent / path).resolve()
                assert target in written or target.suffix in (".png", ".svg"), f"{page}: {link}"
                assert target.exists(), f"{page}: {link}"
    index = (tmp_path / "site/index.md").read_text()
    assert ":caption: For users\n\nDirectives <directives.md>\n" in index
    assert "Changelog <changelog.md>\n" in index


def test_a_manual_page_has_each_option_and_links_to_the_others(tmp_path: Path) -> None:
    make(tmp_path)
    page = (tmp_path / "manual/slurmplug-queue.1.md").read_text()
    assert "\n`-u, --user NAMES`\n: Only these users' jobs.\n" in page
    assert "## See also\n\n[slurmplug(1)](slurmplug.1.md), " in page
    assert "[slurmplug-why(1)](slurmplug-why.1.md)" in (tmp_path / "manual/slurmplug-directives.5.md").read_text()
