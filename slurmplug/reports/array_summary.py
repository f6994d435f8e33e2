"""What the elements of an array have come to together: their states, and how values and run times are distributed."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.reports.interface import Table

FEWEST = 5
"""elements with a value before it is shown how these are distributed"""
BINS = 8
BAR = 40
"""characters of the longest bar"""


def lines(ids: Sequence[str], values: Table, fields: Sequence[str], *, unicode: bool) -> Iterator[str]:
    """The summary. ids: of the elements; values: of each of these fields a list, `state`, `elapsed`, `value` and `stop`
    among them. unicode: whether the terminal shows more than ASCII."""
    columns = dict(zip(fields, values, strict=True))
    states = Counter(str(state) for state in columns["state"])
    told = [f"{number} {state}" for state, number in sorted(states.items())]
    stopped = sum(bool(stop) for stop in columns["stop"])
    yield f"{counted(len(ids), 'element')}: {', '.join(told)}{f'; {stopped} stopped early' if stopped else ''}."
    ran = [elapsed or None for elapsed in columns["elapsed"]]
    for name, column, shown in (("Value", columns["value"], _value), ("Run time", ran, times.format_duration)):
        known = [
            (float(each), job)
            for each, job in zip(column, ids, strict=True)
            if isinstance(each, int | float) and math.isfinite(each)
        ]
        if len(known) >= FEWEST:
            yield from _distributed(name, known, shown, unicode=unicode)


def _distributed(
    name: str, known: Sequence[tuple[float, str]], shown: Callable[[float], str], *, unicode: bool
) -> Iterator[str]:
    (low, lowest), (high, highest) = min(known), max(known)
    middle = float(np.median([value for value, _ in known]))
    yield (
        f"{name} of {len(known)}: {shown(low)} ({printable(lowest)}) to {shown(high)} ({printable(highest)}), "
        f"half of them up to {shown(middle)}"
    )
    if low == high:
        return
    counts, edges = np.histogram([value for value, _ in known], bins=BINS)
    labels = [f"{shown(start)} to {shown(end)}" for start, end in pairwise(edges.tolist())]
    width = max(map(len, labels))
    for label, count in zip(labels, counts.tolist(), strict=True):
        bar = ("█" if unicode else "#") * math.ceil(BAR * count / counts.max())
        yield f"  {label:>{width}} {bar}{f' {count}' if count else ''}"


def _value(value: float) -> str:
    return f"{value:.4g}"
