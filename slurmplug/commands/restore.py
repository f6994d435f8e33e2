"""`slurmplug restore`: replaces the ledger by a backup."""

from pathlib import Path

import click

from slurmplug.commands.options import config_option, emit, load_config
from slurmplug.ledger import backup
from slurmplug.ledger.lock import only_one


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@config_option
def restore(*, file: Path, config_path: Path) -> None:
    """Replace the ledger by FILE, which `slurmplug backup` wrote, while no daemon is running.

    The replaced ledger is kept beside it. What happened since the backup is read from Slurm and the spool again;
    priorities set meanwhile are not known, so all are written again.
    """
    config = load_config(config_path)
    path = config.ledger.path
    with only_one(path.with_suffix(".lock")):
        aside = backup.restore(file, path, config.spool.path)
    emit([f"{path}: restored from {file}", *([f"the replaced ledger is {aside} now"] if aside else [])])
