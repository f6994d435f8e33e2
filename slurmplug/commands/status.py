"""`slurmplug status`: whether the daemon is alive, what it may do, and what it did last."""

import time
from pathlib import Path

import click

from slurmplug.commands.opened import open_reports
from slurmplug.commands.options import emit, json_option, ledger_options
from slurmplug.console.table import to_json
from slurmplug.reports.status import status_lines


@click.command()
@ledger_options
@json_option
def status(*, config_path: Path, ledger_path: Path | None, wants_json: bool) -> None:
    """Show whether the daemon is alive, what it may do, and what its last cycle did. Exit with 1 unless it is alive."""
    with open_reports(config_path, ledger_path) as reports:
        found = reports.status(time.time())
    emit([to_json(found)] if wants_json else status_lines(found))
    if not found["alive"]:
        raise SystemExit(1)
