"""Forecasts of the queue in the ledger: the last one, and the first of each job beside when that started and ended.

All functions raise `LedgerError` where the ledger cannot be read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from policies.snapshot import JobKey
from predictors.arrays import Floats
from slurmplug.ledger import codec

if TYPE_CHECKING:
    from slurmplug.forecasting.starts.queue_forecast import QueueForecast
    from slurmplug.ledger.database import LedgerFile
    from slurmplug.ledger.ledger import Ledger

OLDEST = 900.0
"""Seconds from when the queue was as a forecast goes by to what is told of it at last."""
LEVELS = ("", "_low", "_high")
"""The columns of `QueueForecast.start` and `end`."""


class Outlook(NamedTuple):
    """What a forecast says of a job. Times in seconds since the epoch; None where not known, and where later than all
    that was simulated.

    waits: whether it waited then. in_time: the share in which it ends by the deadline.
    """

    waits: bool
    start: float | None
    start_low: float | None
    start_high: float | None
    end: float | None
    end_low: float | None
    end_high: float | None
    deadline: float | None
    in_time: float | None


class KeptForecast:
    """The last forecast of the queue. at: when the queue was so."""

    def __init__(self, ledger: LedgerFile, at: float, told: bytes) -> None:
        """told: as `keep` stored it."""
        self.at = at
        self._ledger, self._told = ledger, told

    @property
    def outcomes(self) -> int:
        """By how many starts that came true it goes; 0 where these are too few, and it has no intervals."""
        return int(self._decoded["outcomes"])

    def of(self, job: int) -> Outlook | None:
        """What it says of a job, by its row; None where nothing."""
        found = self._rows.get(job)
        return None if found is None else Outlook._make(found)

    def of_each(self, jobs: Sequence[int]) -> list[Outlook | None]:
        """`of` of each of these jobs."""
        return [None if found is None else Outlook._make(found) for found in map(self._rows.get, jobs)]

    @cached_property
    def _decoded(self) -> dict[str, Any]:
        decoded: dict[str, Any] = self._ledger.decoded(self._told)
        return decoded

    @cached_property
    def _rows(self) -> dict[int, tuple[Any, ...]]:
        columns = (_finite(self._decoded[name]) for name in Outlook._fields[1:])
        rows = zip(self._decoded["waits"].tolist(), *columns, strict=True)
        return dict(zip(self._decoded["job"].tolist(), rows, strict=True))


def _finite(column: Floats) -> list[float | None]:
    """The values of a column, None for those that are not finite."""
    finite = np.isfinite(column)
    if finite.all():
        return list(column.tolist())
    if not finite.any():
        return [None] * len(column)
    found = column.astype(object)
    found[~finite] = None
    return list(found.tolist())


class Accuracy(NamedTuple):
    """The accuracy of forecast times.

    came: how many have come. error: the mean absolute error of these in seconds, None of none. with_interval: how many
    of these had an interval. held: in how many of these the time lay within the interval.
    """

    came: int
    error: float | None
    with_interval: int
    held: int


def keep(ledger: Ledger, made: QueueForecast) -> None:
    """Keep a forecast in place of the last one; and of each job for good the first one that was made while it waited,
    but of arrays and of jobs that have run before."""
    times = {
        f"{name}{level}": table[:, column]
        for name, table in (("start", made.start), ("end", made.end))
        for column, level in enumerate(LEVELS)
    }
    with ledger._transaction():
        rows = {JobKey(*key): row for row, *key in ledger.tuples(_LIVE)}
        kept = np.array([place for place, key in enumerate(made.keys) if key in rows], dtype=np.int64)
        jobs = np.array([rows[made.keys[place]] for place in kept.tolist()], dtype=np.int64)
        columns = {"waits": made.waits, **times, "deadline": made.deadline, "in_time": made.in_time}
        told = {"outcomes": made.outcomes, "job": jobs, **{name: each[kept] for name, each in columns.items()}}
        row = {"id": 1, "at": made.at, "told": codec.dumps(told, packed=False)}
        ledger._put("queue_forecast", [row], key=["id"])
        new = made.single[kept] & np.isfinite(made.start[kept, 0])
        of_new = zip(jobs[new].tolist(), *(each[kept][new].tolist() for each in times.values()), strict=True)
        ledger._run(_FORESEEN, [(job, made.at, *map(_null, found)) for job, *found in of_new])


def last(ledger: LedgerFile) -> KeptForecast | None:
    """The last forecast of the queue."""
    found = ledger.tuples("SELECT at, told FROM queue_forecast")
    return KeptForecast(ledger, *found[0]) if found else None


def start_accuracy(ledger: LedgerFile, since: float) -> Accuracy:
    """The accuracy of forecast starts since then, by the jobs that have started since and were not requeued."""
    return _accuracy(ledger, _STARTS, since)


def end_accuracy(ledger: LedgerFile, since: float) -> Accuracy:
    """The accuracy of forecast ends since then, by the jobs that have completed by themselves and were not requeued."""
    return _accuracy(ledger, _ENDS, since)


def _accuracy(ledger: LedgerFile, came: str, since: float) -> Accuracy:
    [found] = ledger.tuples(_ACCURACY.format(came=came), since)
    return Accuracy(*found)


def _null(value: float) -> float | None:
    return None if np.isnan(value) else value


_LIVE = "SELECT id, cluster, job_id, first_submit FROM jobs WHERE ended = 0"
_FORESEEN = """
INSERT OR IGNORE INTO foreseen_starts (job, at, start, start_low, start_high, end, end_low, end_high)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_ACCURACY = """
SELECT count(*), avg(abs(came - forecast)), count(low), coalesce(sum(came BETWEEN low AND high), 0) FROM ({came})
"""
_STARTS = """
SELECT jobs.start AS came, foreseen_starts.start AS forecast, start_low AS low, start_high AS high
FROM foreseen_starts JOIN jobs ON jobs.id = job
WHERE at >= ? AND jobs.start IS NOT NULL AND node_list != '' AND restarts = 0
"""
"""As `run_queries.first_starts`: of a job that waits, `start` is when Slurm expects it."""
_ENDS = """
SELECT history.end AS came, foreseen_starts.end AS forecast, end_low AS low, end_high AS high
FROM foreseen_starts JOIN history ON history.id = job
WHERE at >= ? AND foreseen_starts.end IS NOT NULL AND restarts = 0
"""
