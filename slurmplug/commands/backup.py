"""`slurmplug backup`: a copy of the ledger, taken while it is in use."""

import os
from pathlib import Path

import click

from slurmplug.commands.options import emit, ledger_options, opened
from slurmplug.errors import LedgerError, UsageError

OWNER_ONLY = 0o600


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@ledger_options
def backup(*, file: Path, config_path: Path, ledger_path: Path | None) -> None:
    """Copy the ledger to FILE, which must not be there yet, with or without a daemon."""
    with opened(config_path, ledger_path) as ledger:
        _reserve(file)
        try:
            ledger.backup(file)
        except BaseException as error:
            file.unlink()
            if isinstance(error, LedgerError):
                raise LedgerError(f"nothing was backed up to {file}: {error}") from error
            raise
    emit([f"{file}: backed up"])


def _reserve(file: Path) -> None:
    """Make it, empty, before anybody else does."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, OWNER_ONLY))
    except FileExistsError as error:
        raise UsageError(f"{file} is there already: name a new file, or move that one away") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}; name a file in a folder of yours") from error
