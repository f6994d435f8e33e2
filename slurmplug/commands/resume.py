"""`slurmplug resume`: ends a pause."""

from pathlib import Path

import click

from slurmplug.commands.options import emit, ledger_options, open_ledger
from slurmplug.console.table import printable


@click.command()
@ledger_options
def resume(*, config_path: Path, ledger_path: Path | None) -> None:
    """Let the daemon act again as the configuration says."""
    with open_ledger(config_path, ledger_path, readonly=False) as ledger:
        why = ledger.control("paused")
        ledger.set_control("paused", None)
    emit(["it was not paused" if why is None else f"resumed; it was paused: {printable(why)}"])
