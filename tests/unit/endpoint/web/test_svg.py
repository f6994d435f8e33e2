"""Charts as SVG."""

from xml.etree import ElementTree

import pytest

from slurmplug.endpoint.web.svg import LEFT, RIGHT, TOP, WIDTH, Chart, powers, spanned, steps
from tests.web_site import HOSTILE


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        ((0.0, 1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ((1.0, 90.0), [20.0, 40.0, 60.0, 80.0]),
        ((-3.0, 3.0), [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
        ((0.61, 0.63), [0.61, 0.615, 0.62, 0.625, 0.63]),
    ],
)
def test_axes_have_round_values(span: tuple[float, float], expected: list[float]) -> None:
    assert steps(span) == pytest.approx(expected)


def test_a_span_holds_its_values_and_is_never_empty() -> None:
    assert spanned([1.0, 3.0], 0.5) == (0.0, 4.0)
    assert spanned([], 0.0) == (0.0, 1.0)
    for values in ([2.0], [0.0], [float("nan"), float("inf")]):
        low, high = spanned(values)
        assert low < high


def test_logarithms_have_powers_of_ten() -> None:
    assert powers((0.5, 3.0)) == [1.0, 2.0, 3.0]


def test_marks_are_where_their_values_are() -> None:
    chart = Chart("a chart", (0.0, 10.0), (0.0, 1.0), height=200)
    chart.dot("reported", (0.0, 1.0), "first")
    chart.dot("reported", (10.0, 1.0), "last")
    chart.dot("reported", (99.0, 1.0), "beyond")
    root = ElementTree.fromstring(chart.markup())
    across = [float(each.get("cx", "")) for each in root]
    assert across == [LEFT, WIDTH - RIGHT, WIDTH - RIGHT]
    assert {each.get("cy") for each in root} == {f"{TOP:.1f}"}


def test_texts_are_escaped() -> None:
    chart = Chart(HOSTILE, (0.0, 1.0), (0.0, 1.0))
    chart.axes([0.0], [0.0], (HOSTILE, HOSTILE))
    chart.dot("reported", (0.0, 0.0), HOSTILE)
    chart.box("runs", (0.0, 1.0), (0.0, 1.0), HOSTILE, "job?id=1")
    chart.horizontal("target", 0.5, HOSTILE)
    made = chart.markup()
    assert "<script" not in made
    shown = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    texts = {text for text in ElementTree.fromstring(made).itertext() if "script" in text}
    assert texts == {shown}
