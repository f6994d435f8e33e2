"""Run times of similar finished jobs: those of the same user, project, program and request.

A job belongs to eight groups, from its project to the same program with the same request by the same user. A new job is
described by statistics of the latest run times in each of its groups.

The request includes the type of the GPUs. A run on one type also counts among those with the same request on any type,
by which a job is described that requests none, or whose type has no run of the group.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from predictors.arrays import Floats
from predictors.runtime.job_table import JobTable

SUMMARISED = 10
"""latest run times of a group that its statistics are computed from"""
_KEPT = 100
"""latest run times of a group that are kept, so that statistics at an earlier time can be computed"""
_MOST_GROUPS = 100_000
"""groups kept; those without a finished job for the longest time are dropped first"""
_MISSING = -3.0
_DIGITS = re.compile(r"\d+")
_SEPARATOR = "\x1f"
_DAY = 86_400.0

GroupKey: TypeAlias = str
GroupStatistics: TypeAlias = tuple[float, float, float, float, float, float]
"""Of the logarithms of the latest run times of a group: the last, the last but one, median, standard deviation, count,
and an exponentially weighted mean. In feature rows they are followed by the time since the last one ended."""
_NO_STATISTICS: GroupStatistics = (_MISSING, _MISSING, _MISSING, _MISSING, 0.0, _MISSING)
_LAST, _MEDIAN, _COUNT, _WEIGHTED_MEAN = 0, 2, 4, 5
_GROUP_COLUMNS = len(_NO_STATISTICS) + 1
_DECAY = 0.8
"""weight of a run time relative to that of the next one"""
_NARROWEST_FIRST = (7, 6, 4, 5, 2, 3, 1, 0)
"""order in which the groups of `group_keys` are searched for an anchor"""
_FEWEST_FOR_MEDIAN = 3
_LIMIT_MARGIN = 2.0
"""how much shorter than its time limit a job without similar ones is expected to be, as a logarithm"""
_HOUR = float(np.log(3600.0))
ANCHORS = 4
"""number of anchors, the last columns of `job_features`: logarithms of run times that the job's may be close to"""


class RunHistory:
    """The latest run times of each group of similar jobs."""

    def __init__(self) -> None:
        self._runs: dict[GroupKey, deque[tuple[float, float]]] = {}
        self._statistics: dict[GroupKey, GroupStatistics] = {}

    def add(self, keys: tuple[GroupKey, ...], runtime: float, end: float) -> None:
        """Add a finished job to its groups: its run time, and when it ended, both in seconds."""
        value = float(np.log(runtime))
        for key in keys:
            runs = self._runs.pop(key, None) or deque(maxlen=_KEPT)
            runs.append((value, end))
            self._runs[key] = runs
            self._statistics[key] = _summarise([logarithm for logarithm, _ in runs][-SUMMARISED:])
        while len(self._runs) > _MOST_GROUPS:
            oldest = next(iter(self._runs))
            del self._runs[oldest], self._statistics[oldest]

    def described_by(self, groups: Groups) -> tuple[GroupKey, ...]:
        """The groups that describe a job: those of its type of GPU, where there are runs, else those of any type."""
        return tuple(
            typed if typed in self._runs else of_any
            for typed, of_any in zip(groups.typed, groups.of_any_type, strict=True)
        )

    def features(self, keys: tuple[GroupKey, ...], time: float) -> list[float]:
        """The statistics of each group, and the time from its last end to `time` (seconds; NaN: unknown), in one
        row."""
        row: list[float] = []
        for key in keys:
            runs = self._runs.get(key)
            row += self._statistics.get(key, _NO_STATISTICS)
            row.append(_log_elapsed(runs[-1][1], time) if runs else _MISSING)
        return row

    def features_at(self, keys: tuple[GroupKey, ...], time: float) -> list[float]:
        """The features as they were at `time` (seconds), from the jobs that had ended by then."""
        row: list[float] = []
        for key in keys:
            ended = [run for run in self._runs.get(key, ()) if run[1] <= time][-SUMMARISED:]
            row += _summarise([value for value, _ in ended]) if ended else _NO_STATISTICS
            row.append(_log_elapsed(ended[-1][1], time) if ended else _MISSING)
        return row

    def state(self) -> dict[str, Any]:
        """Arrays, from which `from_state` makes the same history."""
        runs = list(self._runs.values())
        return {
            "keys": np.array(list(self._runs), dtype=np.str_),
            "counts": np.array([len(values) for values in runs], dtype=np.int64),
            "runs": np.array([pair for values in runs for pair in values], dtype=np.float64).reshape(-1, 2),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RunHistory:
        """The history whose `state` this is."""
        restored = cls()
        ends = np.cumsum(np.asarray(state["counts"], dtype=np.int64))
        for key, pairs in zip(state["keys"], np.split(np.asarray(state["runs"]), ends)[:-1], strict=True):
            runs = deque(((float(value), float(end)) for value, end in pairs), maxlen=_KEPT)
            restored._runs[str(key)] = runs
            restored._statistics[str(key)] = _summarise([value for value, _ in runs][-SUMMARISED:])
        return restored


class Groups(NamedTuple):
    """The groups of a job, from the widest to the narrowest: with the type of its GPUs, and whatever their type."""

    typed: tuple[GroupKey, ...]
    of_any_type: tuple[GroupKey, ...]

    @property
    def taught(self) -> tuple[GroupKey, ...]:
        """All groups that its run counts in, each once."""
        return tuple(dict.fromkeys(self.of_any_type + self.typed))


def group_keys(jobs: JobTable) -> Iterator[Groups]:
    """The groups of each job."""
    text, number = jobs.texts, jobs.numbers
    project = np.where(text["account"] != "", text["account"], text["group"])
    columns = (project, text["user"], text["type"], text["exe"], text["name"], text["workdir"])
    sizes = np.stack([number[name] for name in ("gpus", "cpus", "nodes")], axis=1)
    for i, (account, user, job_type, exe, name, folder) in enumerate(zip(*columns, strict=True)):
        size = ",".join(f"{value:g}" for value in sizes[i])
        limit = f"{number['time_limit'][i]:g}"
        program, kind = _program(job_type, exe, name), str(text["gpu_type"][i])
        of_request = (
            ("size", user, size),
            ("request", user, limit, size),
            ("all", user, limit, size, program),
        )
        wider = (
            _key("project", account),
            _key("user", user),
            _key("program", user, program),
            _key("folder", user, folder),
            _key("limit", user, limit),
        )
        of_any = tuple(_key(*parts) for parts in of_request)
        yield Groups(wider + (tuple(_key(*parts, kind) for parts in of_request) if kind else of_any), wider + of_any)


def program_keys(jobs: JobTable) -> list[GroupKey]:
    """(n,) the group of the same program by the same user of each job."""
    columns = (jobs.texts[name] for name in ("user", "type", "exe", "name"))
    return [_key("program", user, _program(kind, exe, name)) for user, kind, exe, name in zip(*columns, strict=True)]


def _program(job_type: str, exe: str, name: str) -> str:
    return job_type or exe or _DIGITS.sub("#", name)


def submission_features(jobs: JobTable) -> Floats:
    """(n, features) of each job by itself: logarithms of its request, hour and weekday, and codes of its names."""
    number, text = jobs.numbers, jobs.texts
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = [np.log1p(number[name]) for name in ("gpus", "cpus", "nodes", "mem", "time_limit")]
        submit = number["submit"]
        clock = [submit % _DAY / 3600.0, submit // _DAY % 7]
    names = [_codes(text[name]) for name in ("user", "group", "account", "partition", "qos", "type", "exe")]
    columns = np.stack([*sizes, *clock, *names], axis=1)
    return np.where(np.isfinite(columns), columns, _MISSING)


def job_features(own: Floats, similar: Floats, limit: Floats) -> Floats:
    """(n, features): the jobs' own features, those of similar jobs, and the anchors derived from both.

    own: (n, features) of `submission_features`. similar: (n, groups x columns) of `RunHistory.features`. limit: (n,)
    time limits in seconds, or NaN. The anchors are, of the narrowest group with enough run times, the weighted mean,
    the last, the median (of at least three), and the time limit.
    """
    table = similar.reshape(len(own), -1, _GROUP_COLUMNS)
    limits = np.log(limit)
    default = np.where(np.isfinite(limits), limits - _LIMIT_MARGIN, _HOUR)
    recent = _from_narrowest(table, _WEIGHTED_MEAN, 1, default)
    last = _from_narrowest(table, _LAST, 1, recent)
    median = _from_narrowest(table, _MEDIAN, _FEWEST_FOR_MEDIAN, recent)
    limits = np.where(np.isfinite(limits), limits, recent)
    return np.column_stack([own, similar, limits - recent, recent, last, median, limits])


def _from_narrowest(table: Floats, column: int, fewest: int, default: Floats) -> Floats:
    """(n,) the column of the narrowest group that has at least `fewest` run times."""
    value = default
    for group in reversed(_NARROWEST_FIRST):
        value = np.where(table[:, group, _COUNT] >= fewest, table[:, group, column], value)
    return value


def _log_elapsed(end: float, time: float) -> float:
    """Logarithm of 1 + the seconds from `end` to `time`, which count as 0 if negative."""
    return math.log1p(max(time - end, 0.0)) if math.isfinite(time - end) else _MISSING


def _codes(values: np.ndarray[Any, np.dtype[np.str_]]) -> Floats:
    """A number for each text, the same in every process."""
    names, place = np.unique(values, return_inverse=True)
    return np.array([zlib.crc32(name.encode()) % 9973 for name in names], dtype=np.float64)[place]


def _key(*parts: str) -> GroupKey:
    return _SEPARATOR.join(parts)


def _summarise(runs: list[float]) -> GroupStatistics:
    ordered, count = sorted(runs), len(runs)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0
    mean = sum(runs) / count
    deviation = (sum((value - mean) ** 2 for value in runs) / count) ** 0.5
    weighted, weight = 0.0, 0.0
    for value in runs:
        weighted, weight = _DECAY * weighted + value, _DECAY * weight + 1.0
    several = count > 1
    return (
        runs[-1],
        runs[-2] if several else _MISSING,
        median,
        deviation if several else _MISSING,
        float(count),
        weighted / weight,
    )
