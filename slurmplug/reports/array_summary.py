"""What the elements of an array have come to together: their states, and how values and run times are distributed."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.reports.interface import Table

FEWEST = 5
"""elements with a value before it is shown how these are distributed"""
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
BINS = 8
BAR = 40
"""characters of the longest bar"""


def lines(ids: Sequence[str], values: Table, fields: Sequence[str], *, unicode: bool) -> Iterator[str]:
    """The summary. ids: of the elements; values: of each of these fields a list, `state`, `elapsed`, `value` and `stop`
    among them. unicode: whether the terminal shows more than ASCII."""
    columns = dict(zip(fields, values, strict=True))
    states: Counter[str] = Counter()
    for job, state in zip(ids, columns["state"], strict=True):
        states[str(state)] += _elements(job)
    told = [f"{number} {state}" for state, number in sorted(states.items())]
    stopped = sum(bool(stop) for stop in columns["stop"])
    yield f"{counted(states.total(), 'element')}: {', '.join(told)}{f'; {stopped} stopped early' if stopped else ''}."
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


def _elements(job: str) -> int:
    """How many elements a row is of: several where they wait together, as 10_[0-3,7,9-20:5], or 10_[x4]."""
    _, bracket, tasks = job.rstrip("]").partition("[")
    if not bracket:
        return 1
    if tasks.startswith("x"):
        return int(tasks[1:])
    return sum(len(range(int(low), int(high or low) + 1, int(step or 1))) for low, high, step in _RANGE.findall(tasks))


def _value(value: float) -> str:
    return f"{value:.4g}"
