"""`slurmplug pause`: let the daemon look, and do nothing."""

from pathlib import Path

import click

from slurmplug.commands.options import by_whom, emit, ledger_options, opened
from slurmplug.console.table import printable


@click.command()
@click.argument("reason", nargs=-1)
@ledger_options
def pause(*, reason: tuple[str, ...], config_path: Path, ledger_path: Path | None) -> None:
    """Let the daemon observe only, from its next cycle on, until `slurmplug resume`. REASON is shown by `status`."""
    why = f"{' '.join(reason)} {by_whom()}".strip()
    with opened(config_path, ledger_path, readonly=False) as ledger:
        ledger.set_control("paused", why)
    emit([f"paused: {printable(why)}"])
