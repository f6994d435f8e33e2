"""Plots of characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmplug.console.plot import Plot

VALUES = st.floats(-1e15, 1e15, allow_nan=False)


def drawn(plot: Plot) -> list[str]:
    return list(plot.lines())


def test_a_curve_goes_from_corner_to_corner() -> None:
    plot = Plot(4, 4, (1.0, 4.0), (0.0, 0.3), braille=False)
    plot.curve([(1, 0.0), (4, 0.3)], "*")
    assert drawn(plot) == [
        "        0.3 |   *",
        "            |  *",
        "            | *",
        "          0 |*",
        "            +----",
        "             1  4",
    ]


def test_braille_has_two_by_four_dots_a_character() -> None:
    plot = Plot(2, 1, (0.0, 3.0), (0.0, 3.0), braille=True)
    plot.curve([(0, 0), (3, 3)], "*")
    assert drawn(plot)[0] == "          3 │⡠⠊"


def test_what_is_drawn_later_covers_what_is_there() -> None:
    plot = Plot(3, 1, (0.0, 2.0), (0.0, 1.0), braille=False)
    plot.horizontal(0.5, "-")
    plot.vertical(1.0, "|")
    plot.marks([(2.0, 0.5)], "o")
    assert drawn(plot)[0].endswith("|-|o")


@pytest.mark.parametrize("braille", [False, True])
def test_one_point_is_seen(braille: bool) -> None:
    plot = Plot(3, 3, (1.0, 1.0), (0.0, 0.0), braille=braille)
    plot.curve([(1.0, 0.0)], "*")
    assert sum(map(len, "".join(line[13:] for line in drawn(plot)[:3]).split())) == 1


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5), st.booleans())
def test_any_numbers_are_drawn_in_as_many_columns_as_asked_for(
    points: list[tuple[float, float]], braille: bool
) -> None:
    xs, ys = zip(*points, strict=True)
    plot = Plot(20, 5, (min(xs), max(xs)), (min(ys), max(ys)), braille=braille)
    plot.curve(points, "*")
    lines = drawn(plot)
    assert len(lines) == 7
    assert max(map(len, lines[:-1])) <= 33
