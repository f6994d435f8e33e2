"""What finished jobs tell of a new one: the latest run times of the same user, project, program and request."""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from predictors.arrays import Floats
from predictors.submitted import Submitted

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
Told: TypeAlias = tuple[float, float, float, float, float]
"""Of the logarithms of the latest run times: last, last but one, median, spread, how many."""
_NOTHING: Told = (_MISSING, _MISSING, _MISSING, _MISSING, 0.0)


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

    def features(self, keys: tuple[Key, ...]) -> list[float]:
        """What is told of each kind, one after the other."""
        return [number for key in keys for number in self._told.get(key, _NOTHING)]

    def features_at(self, keys: tuple[Key, ...], time: float) -> list[float]:
        """What was told of each kind at `time`."""
        known = [[value for value, end in self._runs.get(key, ()) if end <= time][-TOLD:] for key in keys]
        return [number for runs in known for number in (_told(runs) if runs else _NOTHING)]

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
    return runs[-1], runs[-2] if count > 1 else _MISSING, middle, spread if count > 1 else _MISSING, float(count)
