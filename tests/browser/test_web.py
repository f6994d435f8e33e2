"""The web pages in Chromium: `make test-web`. axe-core finds no fault, and nothing that is forbidden is loaded."""

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import waitress

from tests.browser.conftest import CHROMIUM
from tests.browser.faults import faults
from tests.unit.endpoint.web import test_charts
from tests.web_site import HOSTILE, visited

PAGES = ("", "job?id=1", "job?id=5", "job?id=77", "nodes", "load", "savings", "forecasts")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with visited(tmp_path_factory.mktemp("site")) as web:
        test_charts.fill(web)
        for urgency in (1, 9):
            web.site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=%d --deadline=1h\ntrain\n" % urgency, name=HOSTILE)
        web.site.cycle(2)
        test_charts.savings(web)
        server = waitress.create_server(web.app, listen="127.0.0.1:0")
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.effective_port}/"
        finally:
            server.close()


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_no_fault(browser: Any, address: str, path: str) -> None:
    page = browser.new_page(bypass_csp=True)  # axe is a script
    page.goto(address + path)
    assert faults(page) == []
    page.close()


@pytest.mark.parametrize("path", PAGES)
def test_nothing_that_is_forbidden_is_loaded_and_no_name_of_a_job_runs(browser: Any, address: str, path: str) -> None:
    page = browser.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("dialog", lambda dialog: told.append(dialog.message))
    page.goto(address + path)
    assert [text for text in told if "404" not in text] == []
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"  # the style sheet is there
    page.close()


@pytest.mark.parametrize("path", PAGES)
def test_headings_are_in_order_and_the_content_is_one_key_away(browser: Any, address: str, path: str) -> None:
    page = browser.new_page()
    page.goto(address + path)
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(each => +each.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= before + 1 for before, later in pairwise(levels))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.close()


def test_a_job_is_reached_by_the_keyboard_alone(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href') || ''").startswith("job?id="):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/job?id=*")
    assert page.evaluate("document.querySelector('h1').textContent").startswith("Job ")
    page.close()


def test_chromium_is_debians() -> None:
    assert Path(CHROMIUM).exists(), "make test-web installs it"
