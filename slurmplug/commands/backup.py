"""`slurmplug backup`: copies the ledger, also while the daemon uses it."""

from pathlib import Path

import click

from slurmplug.commands.opened import open_ledger
from slurmplug.commands.options import emit, ledger_options
from slurmplug.errors import LedgerError, UsageError
from slurmplug.ledger import backup as copies


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@ledger_options
def backup(*, file: Path, config_path: Path, ledger_path: Path | None) -> None:
    """Copy the ledger to FILE, which must not exist yet; the daemon may be running."""
    with open_ledger(config_path, ledger_path) as ledger:
        try:
            copies.write(ledger, file)
        except FileExistsError as error:
            raise UsageError(f"{file} exists already: name a new file, or move that one away") from error
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}; name a file in a folder of yours") from error
        except LedgerError as error:
            raise LedgerError(f"no backup was written to {file}: {error}") from error
    emit([f"{file}: backed up"])
