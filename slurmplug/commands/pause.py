"""`slurmplug pause`: makes the daemon observe only."""

from pathlib import Path

import click

from slurmplug.commands.opened import open_ledger_to_write
from slurmplug.commands.options import emit, ledger_options, user_and_time
from slurmplug.console.table import printable


@click.command()
@click.argument("reason", nargs=-1)
@ledger_options
def pause(*, reason: tuple[str, ...], config_path: Path, ledger_path: Path | None) -> None:
    """Make the daemon observe only, from its next cycle until `slurmplug resume`. REASON is shown by `status`."""
    why = f"{' '.join(reason)} {user_and_time()}".strip()
    with open_ledger_to_write(config_path, ledger_path) as ledger:
        ledger.set_control("paused", why)
    emit([f"paused: {printable(why)}"])
