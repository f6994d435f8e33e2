"""The lines of report files, parsed and merged into the points of a run. Pure.

Reports come from users' programs and are not trusted: what is invalid is dropped and counted by its rule, and nothing
raises. `report_files` reads the files themselves.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Bools, Floats, Ints
from slurmplug.spool import trials
from slurmplug.spool.json_lines import LineRejected, fields_of
from slurmplug.spool.trials import Reported, Span, Trial, TrialFinder

MAX_POINTS = 4_096
"""More points of a run are thinned: every second one is dropped, the last is kept."""
MAX_RUN_BYTES = 512 * 1_024
"""So are points of which the ledger would take more, by `stored_bytes`."""
MAX_QUANTITIES = 32
MAX_ITERATION = 1e12
REPORTED_NAN = -float(np.finfo(np.float64).max)
"""In the columns of `Points`, a reported NaN, as NaN itself means that nothing was reported. Nobody measures it."""
NOT_FINITE: Mapping[str, float] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""How a value that is not finite may be written in JSON, besides the literals of Python's json module."""
MAX_CLOCK_AHEAD = 60.0
"""Seconds by which a node's clock may be ahead; a reading's time is also older than what is read last."""
MAX_CLOCK_BEHIND = 300.0
"""Seconds by which a node's clock may be behind: as many as MUNGE allows."""


class RunId(NamedTuple):
    """One run of a job: its job id, and how often it was restarted before (SLURM_RESTART_COUNT)."""

    job_id: int
    restart: int


@dataclass(frozen=True)
class SpoolFault:
    """Something invalid in the spool.

    `job` is the job's id, 0 for the spool itself; `rule` says what is wrong, `detail` more of it, in words that no
    user chose; `count` is how often it was found since the last reading.
    """

    job: int
    rule: str
    detail: str
    count: int


IDLE_SHARE = 0.05
"""share of the time up to which GPUs are idle"""


class GPUUse(NamedTuple):
    """How much a job's GPUs were in use: the sum of the shares in [0, 1] that it reported, and how many there were.

    used_at: when it reported last that they were not idle, in seconds since the epoch; 0 if it never did.
    """

    shares: float = 0.0
    measured: int = 0
    used_at: float = 0.0

    def with_share(self, share: float, time: float) -> "GPUUse":
        """With what was reported at that time."""
        used_at = max(self.used_at, time) if share > IDLE_SHARE else self.used_at
        return GPUUse(self.shares + share, self.measured + 1, used_at)


NOT_MEASURED = GPUUse()


@dataclass(frozen=True)
class Points:
    """The reports of a run: (points,) iterations, when each was last reported, and each quantity.

    Times are seconds since the epoch. A quantity is NaN at the iterations for which it was not reported, and
    `REPORTED_NAN` where NaN was reported; infinity is itself. `checkpoint`
    is the iteration that the last checkpoint reported in the present trial holds, `checkpoint_time` when it was
    reported, both NaN before the first. `load` is the node's load at `load_time`, as `slurmplug_report.gpu_load`
    measures it.

    `trial_of` (points,) is the number of each point's trial, an index into `trials`, which are those of the job. Points
    are in order of trial, and in each trial iterations are strictly increasing. `trial`: the present one, to which the
    latest report belongs. `first`: the lowest iteration that the job ever reported, NaN before the first.
    """

    iterations: Floats = field(default_factory=lambda: np.empty(0))
    times: Floats = field(default_factory=lambda: np.empty(0))
    quantities: Mapping[str, Floats] = field(default_factory=dict)
    checkpoint: float = math.nan
    checkpoint_time: float = math.nan
    load: Mapping[str, float] = field(default_factory=dict)
    load_time: float = math.nan
    gpu_use: GPUUse = NOT_MEASURED
    """of all runs of the job"""
    trial_of: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """all of the first one where not given"""
    trials: tuple[Trial, ...] = ()
    trial: int = 0
    first: float = math.nan

    def __post_init__(self) -> None:
        """Number the points where they are not."""
        if len(self.trial_of) != len(self.iterations):
            object.__setattr__(self, "trial_of", np.zeros(len(self.iterations), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.iterations)

    @property
    def keys(self) -> NDArray[np.complex128]:
        """(points,) strictly increasing: the trial as the real part, the iteration as the imaginary one."""
        return self.trial_of + 1j * self.iterations

    @property
    def several(self) -> bool:
        """Whether the job's reports show that it trains several models."""
        return len(self.trials) > 1 or any(trial.name for trial in self.trials)

    def of_trial(self, trial: int) -> "Points":
        """The points of one trial only."""
        return self.rows(self.trial_of == trial) if len(self) and (self.trial_of != trial).any() else self

    def rows(self, rows: Bools | Ints) -> "Points":
        """These points only."""
        columns = {name: column[rows] for name, column in self.quantities.items()}
        return replace(
            self,
            iterations=self.iterations[rows],
            times=self.times[rows],
            quantities=columns,
            trial_of=self.trial_of[rows],
        )


def fold(points: Points, data: bytes, *, now: float, started: float = -math.inf) -> tuple[Points, Mapping[str, int]]:
    """Merge lines into the points of a run.

    The last report of an iteration wins, quantity by quantity, so that loss and accuracy may come in separate reports
    and an evaluation may come late.

    Args:
        points: of the run so far.
        data: whole lines of its report files.
        now: seconds since the epoch; a reported time well after it, or none, becomes this one.
        started: when the run started; reports from well before are of an earlier job with the same id, and dropped.

    Returns:
        The points, and how often each rule found something invalid or doubtful.
    """
    faults: Counter[str] = Counter()
    new: dict[tuple[int, float], _Point] = {}
    checkpoint, checkpoint_time = points.checkpoint, points.checkpoint_time
    load, load_time, gpu_use = points.load, points.load_time, points.gpu_use
    names, keys = set(points.quantities), points.keys
    finder = TrialFinder(points.trials, points.trial, points.first, _spans(points))

    def known(trial: int, iteration: float) -> Mapping[str, float] | None:
        found = new.get((trial, iteration))
        return found.quantities if found else _known(points, keys, complex(trial, iteration))

    for report in _reports(data, float(now), faults):
        if report.time < started - MAX_CLOCK_BEHIND:
            faults["another job"] += 1
            continue
        if report.load:
            load, load_time = report.load, report.time
            if "gpu" in load:
                gpu_use = gpu_use.with_share(load["gpu"], report.time)
        if report.iteration is not None:
            at = report.iteration
            which = Reported(report.trial, at, report.time, report.timed, report.quantities)
            trial = finder.find(which, known)
            if trial is None:
                faults["too many trials"] += 1
                continue
            reported = _within_limit(report.quantities, names, faults)
            before = known(trial, at)
            faults["earlier iteration"] += before is None and at < finder.highest(trial)
            before = before or {}
            faults["repeated iteration"] += any(before.get(name, value) != value for name, value in reported.items())
            new[trial, at] = _Point(report.time, {**before, **reported})
            present = finder.present
            finder.add(trial, which)
            if finder.present != present:
                checkpoint = checkpoint_time = math.nan
        if report.checkpoint is not None and finder.is_present(report.time):
            checkpoint, checkpoint_time = report.checkpoint, report.time
    merged = _merged(points, new)
    thin = _thinned(replace(merged, trials=tuple(finder.trials), trial=finder.present, first=finder.first))
    faults["thinned"] += len(merged) - len(thin)
    last = replace(thin, checkpoint=checkpoint, checkpoint_time=checkpoint_time, load=load, load_time=load_time)
    return (
        replace(last, gpu_use=gpu_use),
        {rule: count for rule, count in faults.items() if count},
    )


def column_value(reported: object) -> float | None:
    """A value from JSON as a column of `Points` holds it; None for what is no number."""
    number = NOT_FINITE.get(reported.lower()) if isinstance(reported, str) else reported
    if isinstance(number, bool) or not isinstance(number, float | int):
        return None
    return REPORTED_NAN if math.isnan(number) else float(number)


def json_value(value: float) -> float | str:
    """A value of a column of `Points` as JSON can hold it: the inverse of `column_value`."""
    if value == REPORTED_NAN:
        return "nan"
    return value if math.isfinite(value) else str(value)


def _spans(points: Points) -> dict[int, Span]:
    """By trial, what this run has reported of it."""
    if not len(points):
        return {}
    begins = np.flatnonzero(np.diff(points.trial_of, prepend=-1))
    ends = np.append(begins[1:], len(points)) - 1
    latest = np.maximum.reduceat(points.times, begins)
    return {
        trial: Span(highest, time)
        for trial, highest, time in zip(
            points.trial_of[begins].tolist(), points.iterations[ends].tolist(), latest.tolist(), strict=True
        )
    }


class _Point(NamedTuple):
    time: float
    quantities: Mapping[str, float]


class _Report(NamedTuple):
    time: float
    timed: bool
    trial: str | None
    iteration: float | None
    checkpoint: float | None
    load: Mapping[str, float]
    quantities: Mapping[str, float]


def _within_limit(quantities: Mapping[str, float], names: set[str], faults: Counter[str]) -> dict[str, float]:
    kept = {}
    for name, value in quantities.items():
        if name in names or len(names) < MAX_QUANTITIES:
            names.add(name)
            kept[name] = value
        else:
            faults["too many quantities"] += 1
    return kept


def _known(points: Points, keys: NDArray[np.complex128], key: complex) -> Mapping[str, float] | None:
    """The quantities of the point with that key among `points.keys`; None where there is none."""
    row = int(np.searchsorted(keys, key))
    if row == len(points) or keys[row] != key:
        return None
    values = {name: float(column[row]) for name, column in points.quantities.items()}
    return {name: value for name, value in values.items() if not math.isnan(value)}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _reports(data: bytes, now: float, faults: Counter[str]) -> Iterator[_Report]:
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            yield _report(fields_of(line), now, faults)
        except LineRejected as rejected:
            faults[str(rejected)] += 1


def _report(fields: dict[str, object], now: float, faults: Counter[str]) -> _Report:
    timed = "time" in fields
    time = fields.pop("time", now)
    if not isinstance(time, float) or not 0 < time <= now + MAX_CLOCK_AHEAD:  # NaN, too
        faults["impossible time"] += 1
        time, timed = now, False
    trial = _trial(fields.pop("trial")) if "trial" in fields else None
    checkpoint = _iteration(fields.pop("checkpoint")) if "checkpoint" in fields else None
    load = _load(fields.pop("load", {}), faults)
    iteration = _iteration(fields.pop("iteration")) if "iteration" in fields else None
    quantities = {}
    for name, value in fields.items():
        if not _NAME.fullmatch(name):
            faults["bad name"] += 1
        elif (number := column_value(value)) is None:
            faults["not a number"] += 1
        else:
            quantities[name] = number
    return _Report(time, timed, trial, iteration, checkpoint, load, quantities)


_SHARES = ("gpu", "gpu_memory", "network")


def _load(reported: object, faults: Counter[str]) -> Mapping[str, float]:
    """Shares in [0, 1] and a rate that is not negative; anything else is no measurement."""
    each = reported if isinstance(reported, dict) else {"": reported}
    valid = {
        name: value
        for name, value in each.items()
        if isinstance(value, float)
        and ((name in _SHARES and 0 <= value <= 1) or (name == "sent" and 0 <= value < math.inf))
    }
    faults["impossible load"] += len(each) - len(valid)
    return valid


def _iteration(value: object) -> float:
    if not isinstance(value, float) or not 0 <= value <= MAX_ITERATION:
        negative = isinstance(value, float) and value < 0
        raise LineRejected("negative iteration" if negative else "impossible iteration")
    return value


def _trial(value: object) -> str:
    """The name of a trial in ASCII; a whole number is its digits, as a program may name a trial either way."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_ITERATION:
        return str(int(value))
    if not isinstance(value, str) or not value or len(value) > trials.MAX_NAME_LENGTH:
        raise LineRejected("bad trial")
    return value.encode("ascii", "backslashreplace").decode("ascii")


def _merged(points: Points, new: Mapping[tuple[int, float], _Point]) -> Points:
    if not new:
        return points
    before, added = points.keys, np.array([complex(*key) for key in new])
    fresh = np.sort(added[np.append(before, math.nan)[np.searchsorted(before, added)] != added])
    places = np.searchsorted(before, fresh)
    keys = np.insert(before, places, fresh)
    old_rows = np.delete(np.arange(len(keys)), places + np.arange(len(fresh)))
    new_rows = np.searchsorted(keys, added)

    def column(old: Floats | None, values: Floats) -> Floats:
        merged = np.full(len(keys), math.nan)
        if old is not None:
            merged[old_rows] = old
        given = ~np.isnan(values)
        merged[new_rows[given]] = values[given]
        return merged

    names = dict.fromkeys([*points.quantities, *(name for point in new.values() for name in point.quantities)])
    return Points(
        keys.imag.copy(),
        column(points.times, np.array([point.time for point in new.values()])),
        {
            name: column(
                points.quantities.get(name), np.array([point.quantities.get(name, math.nan) for point in new.values()])
            )
            for name in names
        },
        trial_of=keys.real.astype(np.int64),
    )


def stored_bytes(points: Points) -> int:
    """How many bytes the ledger takes at most for these points: of each quantity its name and 30 more."""
    quantities = sum((len(name) + 30) * int((~np.isnan(column)).sum()) for name, column in points.quantities.items())
    return 64 * len(points) + quantities


def _thinned(points: Points) -> Points:
    """Drop every second point, of the earlier trials or, where it has most of them, of the present one; the last of
    each trial stays, of the later half where these are too many bytes.

    A quantity that the next point lacks moves to it, or a rare one would be lost whole.
    """
    while len(points) > MAX_POINTS or stored_bytes(points) > MAX_RUN_BYTES:
        present = points.trial_of == points.trial
        thinned = present if present.sum() > len(points) // 2 else ~present
        ends = np.searchsorted(points.trial_of, points.trial_of, side="right")
        second = (ends - 1 - np.arange(len(points))) % 2 == 1
        dropped = second & thinned if (second & thinned).any() else second
        if not dropped.any():
            points = points.rows(np.arange(len(points) // 2, len(points)))
            continue
        kept = np.flatnonzero(~dropped)
        before = np.maximum(kept - 1, 0)
        thin = points.rows(kept)
        moved = {
            name: np.where(dropped[before] & np.isnan(thin.quantities[name]), column[before], thin.quantities[name])
            for name, column in points.quantities.items()
        }
        points = replace(thin, quantities=moved)
    return points
