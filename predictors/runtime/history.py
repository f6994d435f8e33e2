"""What finished jobs tell of a new one: the latest run times of the same user, project, program and request."""

from __future__ import annotations

import math
import re
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from predictors.arrays import Floats
from predictors.runtime.job_table import Submitted

TOLD = 10
"""latest run times of a kind of job that are told of it"""
_KEPT = 100
"""and that are kept of it, so that it can be told what was known some time ago"""
_FORGOTTEN = 100_000
"""kinds of job kept, those without news the longest going first"""
_MISSING = -3.0
_DIGITS = re.compile(r"\d+")
_SEPARATOR = "\x1f"
_DAY = 86_400.0

Key: TypeAlias = str
Told: TypeAlias = tuple[float, float, float, float, float, float]
"""Of the logarithms of the latest run times: last, last but one, median, spread, how many, and their mean, in which the
latest count most. After them comes how long ago the last one ended."""
_NOTHING: Told = (_MISSING, _MISSING, _MISSING, _MISSING, 0.0, _MISSING)
_LAST, _MEDIAN, _COUNT, _RECENT = 0, 2, 4, 5
_TOLD_COLUMNS = len(_NOTHING) + 1
_FADES = 0.8
"""what a run time counts of the one after it"""
_NARROWEST_FIRST = (7, 6, 4, 5, 2, 3, 1, 0)
"""of `kinds`, in what order they are asked"""
_FEWEST_FOR_MEDIAN = 3
_UNHEARD = 2.0
"""log of how much shorter than its limit a job is expected of which nothing is known"""
_HOUR = float(np.log(3600.0))
ANCHORS = 4
"""the last columns of a job's row: log run times it may be near, of `job_rows`"""


class RunHistory:
    """The latest run times of each kind of job, a kind being any of several ways in which jobs are alike."""

    def __init__(self) -> None:
        self._runs: dict[Key, deque[tuple[float, float]]] = {}
        self._told: dict[Key, Told] = {}

    def add(self, keys: tuple[Key, ...], runtime: float, end: float) -> None:
        """One more finished job of these kinds: its run time in seconds, and when it ended."""
        value = float(np.log(runtime))
        for key in keys:
            runs = self._runs.pop(key, None) or deque(maxlen=_KEPT)
            runs.append((value, end))
            self._runs[key] = runs
            self._told[key] = _told([latest for latest, _ in runs][-TOLD:])
        while len(self._runs) > _FORGOTTEN:
            oldest = next(iter(self._runs))
            del self._runs[oldest], self._told[oldest]

    def features(self, keys: tuple[Key, ...], time: float) -> list[float]:
        """What is told of each kind, one after the other, and how long before `time` (NaN: not known) it last ended."""
        row: list[float] = []
        for key in keys:
            runs = self._runs.get(key)
            row += self._told.get(key, _NOTHING)
            row.append(_since(runs[-1][1], time) if runs else _MISSING)
        return row

    def features_at(self, keys: tuple[Key, ...], time: float) -> list[float]:
        """What was told of each kind at `time`."""
        row: list[float] = []
        for key in keys:
            known = [run for run in self._runs.get(key, ()) if run[1] <= time][-TOLD:]
            row += _told([value for value, _ in known]) if known else _NOTHING
            row.append(_since(known[-1][1], time) if known else _MISSING)
        return row

    def state(self) -> dict[str, Any]:
        runs = list(self._runs.values())
        return {
            "keys": np.array(list(self._runs), dtype=np.str_),
            "counts": np.array([len(values) for values in runs], dtype=np.int64),
            "runs": np.array([pair for values in runs for pair in values], dtype=np.float64).reshape(-1, 2),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RunHistory:
        made = cls()
        ends = np.cumsum(np.asarray(state["counts"], dtype=np.int64))
        for key, pairs in zip(state["keys"], np.split(np.asarray(state["runs"]), ends)[:-1], strict=True):
            runs = deque(((float(value), float(end)) for value, end in pairs), maxlen=_KEPT)
            made._runs[str(key)] = runs
            made._told[str(key)] = _told([value for value, _ in runs][-TOLD:])
        return made


def kinds(jobs: Submitted) -> Iterator[tuple[Key, ...]]:
    """The kinds that each job belongs to, from the widest to the narrowest."""
    text, number = jobs.texts, jobs.numbers
    project = np.where(text["account"] != "", text["account"], text["group"])
    columns = (project, text["user"], text["type"], text["exe"], text["name"], text["workdir"])
    sizes = np.stack([number[name] for name in ("gpus", "cpus", "nodes")], axis=1)
    for i, (account, user, kind, exe, name, folder) in enumerate(zip(*columns, strict=True)):
        size = ",".join(f"{value:g}" for value in sizes[i])
        limit = f"{number['time_limit'][i]:g}"
        program = kind or exe or _DIGITS.sub("#", name)
        yield (
            _key("project", account),
            _key("user", user),
            _key("program", user, program),
            _key("folder", user, folder),
            _key("limit", user, limit),
            _key("size", user, size),
            _key("request", user, limit, size),
            _key("all", user, limit, size, program),
        )


def submitted_features(jobs: Submitted) -> Floats:
    """(n, features) of what is known at submit by itself."""
    number, text = jobs.numbers, jobs.texts
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = [np.log1p(number[name]) for name in ("gpus", "cpus", "nodes", "mem", "time_limit")]
        submit = number["submit"]
        clock = [submit % _DAY / 3600.0, submit // _DAY % 7]
    names = [_codes(text[name]) for name in ("user", "group", "account", "partition", "qos", "type", "exe")]
    columns = np.stack([*sizes, *clock, *names], axis=1)
    return np.where(np.isfinite(columns), columns, _MISSING)


def job_rows(own: Floats, told: Floats, limit: Floats) -> Floats:
    """(n, features): what is known at submit (`submitted_features`), what like jobs tell, and anchors from both.

    told: (n, kinds x columns) of `RunHistory.features`. limit: (n,) seconds or NaN. The anchors: of the narrowest kind
    that is known the recent mean, the last, the median, of three at least; and the time limit.
    """
    table = told.reshape(len(own), -1, _TOLD_COLUMNS)
    limits = np.log(limit)
    guess = np.where(np.isfinite(limits), limits - _UNHEARD, _HOUR)
    recent = _narrowest(table, _RECENT, 1, guess)
    last = _narrowest(table, _LAST, 1, recent)
    median = _narrowest(table, _MEDIAN, _FEWEST_FOR_MEDIAN, recent)
    limits = np.where(np.isfinite(limits), limits, recent)
    return np.column_stack([own, told, limits - recent, recent, last, median, limits])


def _narrowest(table: Floats, column: int, least: int, otherwise: Floats) -> Floats:
    """(n,) the column of the narrowest kind that has `least` run times."""
    value = otherwise
    for kind in reversed(_NARROWEST_FIRST):
        value = np.where(table[:, kind, _COUNT] >= least, table[:, kind, column], value)
    return value


def _since(end: float, time: float) -> float:
    """Logarithm of the seconds, none before the end."""
    return math.log1p(max(time - end, 0.0)) if math.isfinite(time - end) else _MISSING


def _codes(values: np.ndarray[Any, np.dtype[np.str_]]) -> Floats:
    """A number for each text, the same in every process."""
    names, place = np.unique(values, return_inverse=True)
    return np.array([zlib.crc32(name.encode()) % 9973 for name in names], dtype=np.float64)[place]


def _key(*parts: str) -> Key:
    return _SEPARATOR.join(parts)


def _told(runs: list[float]) -> Told:
    order, count = sorted(runs), len(runs)
    middle = (order[(count - 1) // 2] + order[count // 2]) / 2.0
    mean = sum(runs) / count
    spread = (sum((value - mean) ** 2 for value in runs) / count) ** 0.5
    fading, weight = 0.0, 0.0
    for value in runs:
        fading, weight = _FADES * fading + value, _FADES * weight + 1.0
    several = count > 1
    return (
        runs[-1],
        runs[-2] if several else _MISSING,
        middle,
        spread if several else _MISSING,
        float(count),
        fading / weight,
    )
