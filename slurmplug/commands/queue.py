"""`slurmplug queue`: the pending and running jobs, as slurmplug ranks them."""

from collections.abc import Sequence

import click

from slurmplug.commands.options import emit, queue_options, terminal_width
from slurmplug.console import table
from slurmplug.console.table import Field
from slurmplug.reports.acct import FIELDS
from slurmplug.reports.queue import QUEUE_FIELDS, QueueEntry, queue_fields


@click.command()
@queue_options
def queue(*, entries: Sequence[QueueEntry], noheader: bool, wants_json: bool) -> None:
    """Show running and pending jobs: rank, progress, score, time left, deadline, and what is done or would be done.

    On a terminal, columns are shortened or left out to fit its width; otherwise all are shown, uncut.
    """
    if wants_json:
        emit([table.to_json({"jobs": [_mapping(entry) for entry in entries]})])
        return
    width = terminal_width()
    fields = _uncut(entries) if width is None else queue_fields(entries, width)
    lines = table.format_lines(fields, entries, header=not noheader, rule=False)
    emit(line[:width].rstrip() for line in lines)


def _uncut(entries: Sequence[QueueEntry]) -> list[Field[QueueEntry]]:
    return table.fit_widths([table.unlimited(field) for field in QUEUE_FIELDS], entries)


def _mapping(entry: QueueEntry) -> dict[str, object]:
    return {"position": entry.rank, **table.as_dict(FIELDS, entry.job), "doing": entry.doing}
