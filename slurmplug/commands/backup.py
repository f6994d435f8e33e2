"""`slurmplug backup`: copies the ledger, also while the daemon uses it."""

import os
from pathlib import Path

import click

from slurmplug.commands.options import emit, ledger_options, open_ledger
from slurmplug.errors import LedgerError, UsageError

OWNER_ONLY = 0o600


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@ledger_options
def backup(*, file: Path, config_path: Path, ledger_path: Path | None) -> None:
    """Copy the ledger to FILE, which must not exist yet; the daemon may be running."""
    with open_ledger(config_path, ledger_path) as ledger:
        _reserve(file)
        try:
            ledger.backup(file)
        except BaseException as error:
            file.unlink()
            if isinstance(error, LedgerError):
                raise LedgerError(f"no backup was written to {file}: {error}") from error
            raise
    emit([f"{file}: backed up"])


def _reserve(file: Path) -> None:
    """Create an empty file that only its owner can read, and fail if it exists."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, OWNER_ONLY))
    except FileExistsError as error:
        raise UsageError(f"{file} exists already: name a new file, or move that one away") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}; name a file in a folder of yours") from error
