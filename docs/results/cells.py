"""What stands in the cells of the tables."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def change(values: ArrayLike, reference: ArrayLike) -> str:
    """How much less or more, case by case: the mean of the ratios and its 95% interval (Student's t)."""
    ratios = 100 * (np.asarray(values) / np.asarray(reference) - 1)
    return f"{ratios.mean():+.0f}%" + (f" ± {half(ratios):.0f}" if len(ratios) > 1 else "")


def points(values: np.ndarray, reference: np.ndarray) -> str:
    """How many points more or less, of shares, case by case: the mean and its 95% interval."""
    more = 100 * (values - reference)
    return f"{more.mean():+.1f}" + (f" ± {half(more):.1f}" if len(more) > 1 else "") + " points"


def span(values: ArrayLike, form: str = ",.0f") -> str:
    """The mean over seeds or workloads, and its 95% interval."""
    known = np.asarray(values)
    return f"{known.mean():{form}}" + (f" ± {half(known):{form}}" if len(known) > 1 else "")


def half(values: np.ndarray) -> float:
    """Half the 95% interval of a mean, by Student's t."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def percent(values: np.ndarray) -> str:
    """Of shares."""
    return f"{100 * values.mean():.1f}%"
