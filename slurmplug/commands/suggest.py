"""`slurmplug suggest`: what users could ask for instead, by how their jobs ended."""

import time
from dataclasses import asdict, replace
from pathlib import Path

import click

from slurmplug.commands.opened import open_reports, require_known_users
from slurmplug.commands.options import emit, json_option, ledger_options, own_uid
from slurmplug.commands.selecting import of_caller, selecting
from slurmplug.console import table, times
from slurmplug.ledger.selection import Selection
from slurmplug.reports import suggestion_lines


@click.command()
@selecting(users=("-u", "--user", "--uid"))
@click.option("-a", "--allusers", is_flag=True, help="All users' jobs; the default for root.")
@click.option(
    "-S", "--starttime", default="now-30days", show_default=True, metavar="TIME", help="By jobs that ran from then on."
)
@ledger_options
@json_option
def suggest(
    *,
    which: Selection,
    allusers: bool,
    starttime: str,
    config_path: Path,
    ledger_path: Path | None,
    wants_json: bool,
) -> None:
    """Show what to change in my jobs: time limits, numbers of GPUs, and GPUs that are hardly in use.

    Each with the GPU hours that it would have gained, by the jobs that ended. TIME is as for acct.
    """
    now, users = time.time(), which.users
    if not (allusers or users) and own_uid() != "0":
        which = replace(which, users=of_caller())
    with open_reports(config_path, ledger_path) as reports:
        require_known_users(reports, users)
        found = reports.suggestions(replace(which, start=times.parse_time(starttime, now), end=now))
    emit([table.to_json(asdict(found))] if wants_json else suggestion_lines.lines(found))
