"""The order of the live queue: by a few columns, as a report may show a few of thousands of jobs, or of whole jobs."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import WAITING
from slurmplug.reports.job_view import Job


class Placed(NamedTuple):
    """A live job's place in the queue. `rank`: among the ranked pending jobs, from 1; `priority`: Slurm's own."""

    row: int
    rank: int | None
    priority: float
    waits: bool


class LiveQueue(NamedTuple):
    """The live jobs in the order of the queue: their rows in the ledger, their ranks among the ranked pending jobs,
    from 1, whether they wait, and further columns of theirs by name."""

    rows: Sequence[int]
    ranks: Sequence[int | None]
    waits: Sequence[bool]
    columns: Mapping[str, Sequence[Any]]

    def part(self, places: Sequence[int]) -> "LiveQueue":
        """The jobs at these places."""
        columns = {name: _taken(column, places) for name, column in self.columns.items()}
        return LiveQueue(_taken(self.rows, places), _taken(self.ranks, places), _taken(self.waits, places), columns)


def kept_queue(ledger: LedgerFile) -> LiveQueue:
    """`live_queue` without further columns; of the time before, where nothing in the ledger has changed since, as when
    the endpoint makes one page after another."""
    state = ledger.state()
    kept = ledger.of_state
    if kept is not None and kept[0] == state:
        queue: LiveQueue = kept[1]
        return queue
    queue = live_queue(ledger)
    ledger.of_state = None if state is None else (state, queue)
    return queue


def live_queue(ledger: LedgerFile, columns: Sequence[str] = ()) -> LiveQueue:
    """The live jobs in the order of the queue: those that run, those that are ranked in order, and the rest by id.

    columns: further ones of the ledger's jobs that are wanted.

    Raises:
        LedgerError
    """
    rankings, jobs = queries.cycle_rankings(ledger), queries.live_jobs(ledger, columns)
    if rankings is None or not jobs:
        return LiveQueue((), (), (), dict.fromkeys(columns, ()))
    rows, ids, submitted, states, given_back = ([job[place] for job in jobs] for place in range(5))
    spared, scores = (map(rankings.columns[name].__getitem__, rows) for name in ("spared", "rank"))
    lowered = [
        None if back or rule or score is None else -score
        for back, rule, score in zip(given_back, spared, scores, strict=True)
    ]
    waits = list(map(WAITING.__contains__, states))
    since = [at if wait and low is not None else 0.0 for at, wait, low in zip(submitted, waits, lowered, strict=True)]
    groups = [2 * wait + (low is None) for wait, low in zip(waits, lowered, strict=True)]
    order = list(range(len(rows)))
    for key in (rows, ids, since, [low or 0.0 for low in lowered], groups):  # the last one decides first
        order.sort(key=key.__getitem__)
    ranks = itertools.count(1)
    ranked_group = 2
    placed = list(zip(*[jobs[place] for place in order], strict=True))  # faster than to order each column
    return LiveQueue(
        placed[0],
        [next(ranks) if groups[place] == ranked_group else None for place in order],
        _taken(waits, order),
        dict(zip(columns, placed[5:], strict=True)),
    )


def live_order(ledger: LedgerFile) -> list[Placed]:
    """The places of the live jobs, in the order of `live_queue`. Raises LedgerError."""
    queue, rankings = live_queue(ledger), queries.cycle_rankings(ledger)
    if rankings is None:
        return []
    priorities = rankings.columns["priority"]
    return [
        Placed(row, rank, priorities[row] or 0.0, wait)
        for row, rank, wait in zip(queue.rows, queue.ranks, queue.waits, strict=True)
    ]


def _taken(column: Sequence[Any], places: Sequence[int]) -> list[Any]:
    return [column[place] for place in places]


def ranked(queue: Iterable[Job]) -> list[Job]:
    """The pending jobs that slurmplug ranks, the first to go first."""
    waiting = [job for job in queue if job.waits and job.score is not None]
    return sorted(waiting, key=lambda job: (-(job.score or 0.0), job.key.first_submit, job.key.job_id))
