"""A contrast that axe-core leaves open is computed from what is behind the text."""

from typing import Any

import pytest

from tests.browser.faults import faults, least_contrast

GRADIENT = "background: linear-gradient(90deg, {}, {})"
PAGE = """<!doctype html><html lang="en"><title>Text</title><main><h1>Text</h1>
<p id="text" style="{}">a text over something</p></main></html>"""
CHART = """<!doctype html><html lang="en"><title>Text</title><main><h1>Text</h1>
<svg width="200" height="60" role="img" aria-label="chart"><rect width="200" height="60" fill="{}"/>
<text id="text" x="20" y="40" fill="#3c4043">month</text></svg></main></html>"""


def shown(browser: Any, content: str) -> Any:
    page = browser.new_page()
    page.set_content(content)
    return page


@pytest.mark.parametrize(
    ("style", "contrast"),
    [
        ("color: #000; background: #fff", 21.0),
        ("color: #777; background: #fff", 4.48),
        ("color: #000; background: #fff; opacity: 0.5", 3.98),
        ("color: rgba(0, 0, 0, 0.5); background: #fff", 3.98),
        ("color: #fff; background: #0b57d0", 6.40),
    ],
)
def test_contrast_is_that_of_wcag(browser: Any, style: str, contrast: float) -> None:
    page = shown(browser, PAGE.format(style))
    assert least_contrast(page, "#text") == pytest.approx(contrast, abs=0.05)
    page.close()


def test_what_is_too_low_over_a_part_of_a_gradient_is_a_fault(browser: Any) -> None:
    page = shown(browser, PAGE.format(f"color: #333; width: 10em; {GRADIENT.format('#fff 50%', '#555 50%')}"))
    [(rule, element)] = faults(page)
    assert rule.startswith("color-contrast 1.")
    assert 'id="text"' in element
    page.close()


def test_what_is_high_enough_over_all_of_a_gradient_is_none(browser: Any) -> None:
    page = shown(browser, PAGE.format(f"color: #000; {GRADIENT.format('#fff', '#ccc')}"))
    assert faults(page) == []
    page.close()


@pytest.mark.parametrize(("fill", "broken"), [("#ffffff", False), ("#0b57d0", True)])
def test_in_a_chart_the_shapes_behind_a_text_count(browser: Any, fill: str, broken: bool) -> None:
    page = shown(browser, CHART.format(fill))
    assert bool(faults(page)) == broken
    page.close()
