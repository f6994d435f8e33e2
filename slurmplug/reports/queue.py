"""The live queue: its jobs in order, and what is being done to each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from slurmplug.console.table import Field
from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.selection import Selection
from slurmplug.reports import job_view
from slurmplug.reports.live_order import LiveQueue, kept_queue, live_queue
from slurmplug.reports.queue_columns import QueueColumns, actions_in, reads
from slurmplug.reports.queue_entry import QueueEntry
from slurmplug.reports.queue_fields import OF_ENTRIES

EVERYTHING = slice(None)


def queue_table(
    ledger: LedgerFile, which: Selection, fields: Sequence[tuple[str, Field[Any]]], page: slice = EVERYTHING
) -> list[list[Any]]:
    """The values of these fields, by field, of the live jobs of this selection in the order of the queue.

    fields: each with its name in JSON. page: which of the jobs, by their place in that order.
    """
    named = dict(fields)
    with ledger.one_state():
        needed = reads(named, named)
        rankings = queries.cycle_rankings(ledger)
        if rankings is None:
            return [[] for _ in fields]
        if needed is None:
            entries = _entries(ledger, _page(ledger, which, page))
            jobs = [entry.job for entry in entries]
            return [list(map(each.value, entries if each in OF_ENTRIES else jobs)) for _, each in fields]
        if _is_whole(which) and page == EVERYTHING:
            queue = live_queue(ledger, needed)
        else:
            queue = _page(ledger, which, page)
            found = queries.columns_in_rows(ledger, queue.rows, needed)
            columns = list(zip(*found, strict=True))[1:] or [()] * len(needed)
            queue = queue._replace(columns=dict(zip(needed, columns, strict=True)))
        columns_of = QueueColumns(ledger, rankings, queue, named)
        return [columns_of.values(name) for name, _ in fields]


def _is_whole(which: Selection) -> bool:
    return replace(which, most=0) == Selection(live=True)


def _page(ledger: LedgerFile, which: Selection, page: slice) -> LiveQueue:
    """The jobs of this selection in the order of the queue."""
    queue = kept_queue(ledger)
    places: Sequence[int] = range(len(queue.rows))
    if not _is_whole(which):
        wanted = set(queries.job_rows(ledger, which))
        places = [place for place, row in enumerate(queue.rows) if row in wanted]
    return queue.part(places[page])


def _entries(ledger: LedgerFile, queue: LiveQueue) -> list[QueueEntry]:
    shown = {job.row: job for job in job_view.jobs_in_rows(ledger, queue.rows)}
    doing = actions_in(ledger)
    return [
        QueueEntry(shown[row], rank, doing.get(row, ""))
        for row, rank in zip(queue.rows, queue.ranks, strict=True)
        if row in shown
    ]
