"""The lines of report files, parsed and merged into the points of a run. Pure.

Reports come from users' programs and are not trusted: what is invalid is dropped and counted by its rule, and nothing
raises. `report_files` reads the files themselves.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats
from slurmplug.spool import trials
from slurmplug.spool.json_lines import UNMATCHED, LineRejected, fields_of
from slurmplug.spool.trials import Reported, Span, TrialFinder
from slurmplug.spool.values import Points, column_value

MAX_POINTS = 4_096
"""More points of a run are thinned: every second one is dropped, the last is kept."""
MAX_RUN_BYTES = 512 * 1_024
"""Points of which the ledger would take more bytes (`stored_bytes`) are thinned, too."""
MAX_QUANTITIES = 32
MAX_ITERATION = 1e12
MAX_CLOCK_AHEAD = 60.0
"""Seconds by which a node's clock may be ahead; a reading's time is also older than what is read last."""
MAX_CLOCK_BEHIND = 300.0
"""Seconds by which a node's clock may be behind: as many as MUNGE allows."""


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
    faults[UNMATCHED] += fields.pop(UNMATCHED, None) is not None
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
