"""`slurmplug queue`: the live queue as slurmplug sees it."""

from collections.abc import Sequence
from pathlib import Path

import click

from slurmplug import job_fields, reports, standings, table
from slurmplug.commands.options import (
    emit,
    jobs_option,
    json_option,
    ledger_options,
    noheader_option,
    opened,
    terminal_width,
    users_option,
    words,
)
from slurmplug.standings import Entry
from slurmplug.table import Field


@click.command()
@ledger_options
@jobs_option
@users_option
@noheader_option
@json_option
def queue(
    *, config_path: Path, ledger_path: Path | None, job_ids: str, users: str, noheader: bool, wants_json: bool
) -> None:
    """Show the jobs that run and wait: place, progress, rank, time left, deadline, and what is done or would be.

    A terminal gets the columns that it has room for, anything else gets all of them, uncut.
    """
    which = reports.Selection(jobs=tuple(map(reports.JobId.parse, words(job_ids))), users=words(users), live=True)
    with opened(config_path, ledger_path) as ledger:
        entries = standings.queue(ledger, which)
    if wants_json:
        emit([table.as_json({"jobs": [_mapping(entry) for entry in entries]})])
        return
    width = terminal_width()
    lines = table.lines(_columns(entries, width), entries, header=not noheader, rule=False)
    emit(line[:width].rstrip() for line in lines)


def _columns(entries: Sequence[Entry], width: int | None) -> list[Field[Entry]]:
    if width is None:
        return table.as_wide_as_needed([table.uncut(field) for field in standings.QUEUE], entries)
    for extra in (standings.EXTRA, standings.EXTRA[-1:]):
        fields = table.as_wide_as_needed([*standings.ESSENTIAL, *extra, *standings.LAST], entries)
        if sum(field.width + 1 for field in fields) <= width + 1:
            return fields
    return table.as_wide_as_needed([*standings.ESSENTIAL, *standings.LAST], entries)


def _mapping(entry: Entry) -> dict[str, object]:
    return {"position": entry.position, **table.as_mapping(job_fields.FIELDS, entry.job), "doing": entry.doing}
