"""`slurmplug queue`: the live queue as slurmplug sees it."""

from collections.abc import Sequence

import click

from slurmplug.commands.options import emit, of_the_queue, terminal_width
from slurmplug.console import table
from slurmplug.console.table import Field
from slurmplug.reports import acct as job_fields
from slurmplug.reports import queue as standings
from slurmplug.reports.queue import Entry


@click.command()
@of_the_queue
def queue(*, entries: Sequence[Entry], noheader: bool, wants_json: bool) -> None:
    """Show the jobs that run and wait: place, progress, rank, time left, deadline, and what is done or would be.

    A terminal gets the columns that it has room for, and short forms of some; anything else gets all of them, uncut.
    """
    if wants_json:
        emit([table.as_json({"jobs": [_mapping(entry) for entry in entries]})])
        return
    width = terminal_width()
    fields = _uncut(entries) if width is None else standings.fitting(entries, width)
    lines = table.lines(fields, entries, header=not noheader, rule=False)
    emit(line[:width].rstrip() for line in lines)


def _uncut(entries: Sequence[Entry]) -> list[Field[Entry]]:
    return table.as_wide_as_needed([table.uncut(field) for field in standings.QUEUE], entries)


def _mapping(entry: Entry) -> dict[str, object]:
    return {"position": entry.position, **table.as_mapping(job_fields.FIELDS, entry.job), "doing": entry.doing}
