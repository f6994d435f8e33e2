"""`slurmplug queue`: the live queue as slurmplug sees it."""

from collections.abc import Sequence

import click

from slurmplug import table
from slurmplug.commands.options import emit, of_the_queue, terminal_width
from slurmplug.reports.acct import FIELDS
from slurmplug.reports.queue import QUEUE_FIELDS, QueueEntry, queue_fields
from slurmplug.table import Field


@click.command()
@of_the_queue
def queue(*, entries: Sequence[QueueEntry], noheader: bool, wants_json: bool) -> None:
    """Show the jobs that run and wait: rank, progress, score, time left, deadline, and what is being done or would be.

    A terminal gets the columns that it has room for, some shortened; anything else gets all of them, uncut.
    """
    if wants_json:
        emit([table.as_json({"jobs": [_mapping(entry) for entry in entries]})])
        return
    width = terminal_width()
    fields = _uncut(entries) if width is None else queue_fields(entries, width)
    lines = table.lines(fields, entries, header=not noheader, rule=False)
    emit(line[:width].rstrip() for line in lines)


def _uncut(entries: Sequence[QueueEntry]) -> list[Field[QueueEntry]]:
    return table.as_wide_as_needed([table.uncut(field) for field in QUEUE_FIELDS], entries)


def _mapping(entry: QueueEntry) -> dict[str, object]:
    return {"position": entry.rank, **table.as_mapping(FIELDS, entry.job), "doing": entry.doing}
