"""What jobs said of their training: report files' bytes, folded into points.

Everything here is pure. Reports are claims of whoever runs the job: what cannot be one is dropped, counted by its rule,
and never raises. The files themselves are read by `spool`.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats

LINE_BYTES = 16_384
"""The longest line that is read."""
MOST_POINTS = 4_096
"""More points of a run are thinned: every second goes, the last stays."""
MOST_QUANTITIES = 32
MOST_ITERATION = 1e12
SKEW_SECONDS = 60.0
"""How far a node's clock may be ahead; a reading's time is also older than what is read last."""

LATE_SECONDS = 3_600.0
"""How far a node's clock may be behind; MUNGE allows 300."""


class Run(NamedTuple):
    """A job and its restart."""

    job_id: int
    restart: int


@dataclass(frozen=True)
class Fault:
    """Something in the spool that was not believed; `job` is its id, 0 for the spool itself.

    `rule` says what is wrong, `detail` tells more in words that no user chose, `count` how often since the last look.
    """

    job: int
    rule: str
    detail: str
    count: int


@dataclass(frozen=True)
class Points:
    """What a run reported: (points,) iterations, strictly increasing, when each was last reported, and each quantity.

    Times are seconds since the epoch. A quantity is NaN where it was not told. `checkpoint` is the iteration that the
    last reported checkpoint holds, `checkpoint_time` when that was said, both NaN before the first. `load` is what the
    node bore at `load_time`, as `slurmplug_report.gpu_load` measures it.
    """

    iterations: Floats = field(default_factory=lambda: np.empty(0))
    times: Floats = field(default_factory=lambda: np.empty(0))
    quantities: Mapping[str, Floats] = field(default_factory=dict)
    checkpoint: float = math.nan
    checkpoint_time: float = math.nan
    load: Mapping[str, float] = field(default_factory=dict)
    load_time: float = math.nan

    def __len__(self) -> int:
        return len(self.iterations)


def fold(points: Points, data: bytes, *, now: float, submitted: float = -math.inf) -> tuple[Points, Mapping[str, int]]:
    """The points with the lines of `data` added, and how much was dropped or doubtful, by rule.

    The last report of an iteration wins, quantity by quantity, so that loss and accuracy may come in separate reports
    and an evaluation may come late. A claimed time well after `now` becomes `now`, as does a missing one. What was told
    well before the job was `submitted` is of a job before it that had its id.
    """
    doubts: Counter[str] = Counter()
    new: dict[float, _Point] = {}
    checkpoint, checkpoint_time = points.checkpoint, points.checkpoint_time
    load, load_time = points.load, points.load_time
    names = set(points.quantities)
    highest = float(points.iterations[-1]) if len(points) else -math.inf
    for report in _reports(data, float(now), doubts):
        if report.time < submitted - LATE_SECONDS:
            doubts["another job"] += 1
            continue
        if report.checkpoint is not None:
            checkpoint, checkpoint_time = report.checkpoint, report.time
        if report.load:
            load, load_time = report.load, report.time
        at = report.iteration
        if at is None:
            continue
        told = _admitted(report.quantities, names, doubts)
        before = new[at].quantities if at in new else _known(points, at)
        if before is None:
            doubts["earlier iteration"] += at < highest
            before = {}
        doubts["repeated iteration"] += any(before.get(name, value) != value for name, value in told.items())
        highest = max(highest, at)
        new[at] = _Point(report.time, {**before, **told})
    merged = _merged(points, new)
    thin = _thinned(merged)
    doubts["thinned"] += len(merged) - len(thin)
    return (
        replace(thin, checkpoint=checkpoint, checkpoint_time=checkpoint_time, load=load, load_time=load_time),
        {rule: count for rule, count in doubts.items() if count},
    )


def since(data: bytes, time: float) -> bytes:
    """The lines from the first on that was told at that time or later, or that tells no time."""
    start = 0
    for line in data.split(b"\n"):
        try:
            told = _fields(line).get("time", math.inf) if line.strip() else 0.0
        except _Doubtful:
            told = 0.0
        if not isinstance(told, float) or not told < time:
            return data[start:]
        start += len(line) + 1
    return b""


class _Point(NamedTuple):
    time: float
    quantities: Mapping[str, float]


class _Report(NamedTuple):
    time: float
    iteration: float | None
    checkpoint: float | None
    load: Mapping[str, float]
    quantities: Mapping[str, float]


def _admitted(quantities: Mapping[str, float], names: set[str], doubts: Counter[str]) -> dict[str, float]:
    admitted = {}
    for name, value in quantities.items():
        if name in names or len(names) < MOST_QUANTITIES:
            names.add(name)
            admitted[name] = value
        else:
            doubts["too many quantities"] += 1
    return admitted


def _known(points: Points, iteration: float) -> Mapping[str, float] | None:
    """What was told of an iteration that was folded before."""
    row = int(np.searchsorted(points.iterations, iteration))
    if row == len(points) or points.iterations[row] != iteration:
        return None
    values = {name: float(column[row]) for name, column in points.quantities.items()}
    return {name: value for name, value in values.items() if not math.isnan(value)}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _reports(data: bytes, now: float, doubts: Counter[str]) -> Iterator[_Report]:
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            yield _report(_fields(line), now, doubts)
        except _Doubtful as doubt:
            doubts[str(doubt)] += 1


class _Doubtful(Exception):
    """A line that is dropped; the argument is the rule."""


def _fields(line: bytes) -> dict[str, object]:
    if len(line) > LINE_BYTES:
        raise _Doubtful("long line")
    try:
        fields = json.loads(line.decode("utf-8"), parse_int=float)
    except (ValueError, RecursionError) as unreadable:
        raise _Doubtful("unreadable line") from unreadable
    if not isinstance(fields, dict):
        raise _Doubtful("unreadable line")
    return fields


def _report(fields: dict[str, object], now: float, doubts: Counter[str]) -> _Report:
    time = fields.pop("time", now)
    if not isinstance(time, float) or not 0 < time <= now + SKEW_SECONDS:  # NaN, too
        doubts["impossible time"] += 1
        time = now
    checkpoint = _iteration(fields.pop("checkpoint")) if "checkpoint" in fields else None
    load = _load(fields.pop("load", {}), doubts)
    if "iteration" in fields:
        iteration = _iteration(fields.pop("iteration"))
    elif fields:
        raise _Doubtful("no iteration")
    else:
        iteration = None
    quantities = {}
    for name, value in fields.items():
        if not _NAME.fullmatch(name):
            doubts["bad name"] += 1
        elif not isinstance(value, float) or not math.isfinite(value):
            doubts["not a number"] += 1
        else:
            quantities[name] = value
    return _Report(time, iteration, checkpoint, load, quantities)


_SHARES = ("gpu", "gpu_memory", "network")


def _load(told: object, doubts: Counter[str]) -> Mapping[str, float]:
    """Shares in [0, 1] and a rate that is not negative; what else is told of the load is no measurement."""
    each = told if isinstance(told, dict) else {"": told}
    believed = {
        name: value
        for name, value in each.items()
        if isinstance(value, float)
        and ((name in _SHARES and 0 <= value <= 1) or (name == "sent" and 0 <= value < math.inf))
    }
    doubts["impossible load"] += len(each) - len(believed)
    return believed


def _iteration(value: object) -> float:
    if not isinstance(value, float) or not 0 <= value <= MOST_ITERATION:
        negative = isinstance(value, float) and value < 0
        raise _Doubtful("negative iteration" if negative else "impossible iteration")
    return value


def _merged(points: Points, new: Mapping[float, _Point]) -> Points:
    if not new:
        return points
    added = np.array(list(new))
    iterations = np.union1d(points.iterations, added)
    old_rows, new_rows = np.searchsorted(iterations, points.iterations), np.searchsorted(iterations, added)

    def column(old: Floats | None, values: Floats) -> Floats:
        merged = np.full(len(iterations), math.nan)
        if old is not None:
            merged[old_rows] = old
        told = ~np.isnan(values)
        merged[new_rows[told]] = values[told]
        return merged

    names = dict.fromkeys([*points.quantities, *(name for point in new.values() for name in point.quantities)])
    return Points(
        iterations,
        column(points.times, np.array([point.time for point in new.values()])),
        {
            name: column(
                points.quantities.get(name), np.array([point.quantities.get(name, math.nan) for point in new.values()])
            )
            for name in names
        },
    )


def _thinned(points: Points) -> Points:
    """Every second point goes; what only it told passes to the next, or a quantity told seldom would be lost whole."""
    while len(points) > MOST_POINTS:
        kept = np.arange((len(points) - 1) % 2, len(points), 2)
        before = np.maximum(kept - 1, 0)
        quantities = {
            name: np.where(np.isnan(column[kept]), column[before], column[kept])
            for name, column in points.quantities.items()
        }
        points = Points(points.iterations[kept], points.times[kept], quantities)
    return points
