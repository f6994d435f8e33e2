"""`slurmplug restore`: put a copy of the ledger in its place."""

from pathlib import Path

import click

from slurmplug.commands.options import config_option, configured, emit
from slurmplug.ledger import backup
from slurmplug.ledger.lock import only_one


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@config_option
def restore(*, file: Path, config_path: Path) -> None:
    """Put FILE, which `slurmplug backup` made, in the ledger's place while no daemon runs.

    The ledger that was there is kept beside it. What happened since the backup is read from Slurm and the spool again;
    priorities set meanwhile are written anew, as they are not known.
    """
    config = configured(config_path)
    path = config.ledger.path
    with only_one(path.with_suffix(".lock")):
        aside = backup.install(file, path, config.spool.path)
    emit([f"{path}: restored from {file}", *([f"what was there is {aside} now"] if aside else [])])
