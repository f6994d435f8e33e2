"""`slurmplug status`: is the daemon alive, what may it do, and what did it do last?"""

import time
from pathlib import Path

import click

from slurmplug.commands.options import emit, json_option, ledger_options, opened_reports
from slurmplug.reports.status import status_lines
from slurmplug.table import as_json


@click.command()
@ledger_options
@json_option
def status(*, config_path: Path, ledger_path: Path | None, wants_json: bool) -> None:
    """Show whether the daemon is alive, what it may do, and what its last cycle did. Exit with 1 unless it is alive."""
    with opened_reports(config_path, ledger_path) as reports:
        found = reports.status(time.time())
    emit([as_json(found)] if wants_json else status_lines(found))
    if not found["alive"]:
        raise SystemExit(1)
