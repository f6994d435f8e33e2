"""`slurmplug forget`: deletes what the ledger and the spool keep of a user's ended jobs."""

from collections import Counter
from pathlib import Path

import click

from slurmplug.commands.opened import open_ledger_to_write
from slurmplug.commands.options import config_of, emit, ledger_options
from slurmplug.console.table import printable
from slurmplug.errors import UsageError
from slurmplug.ledger.owner import as_owner_of
from slurmplug.spool.run_files import REPORTS, remove_reports


@click.command()
@click.option("--user", required=True, metavar="NAME", help="The user whose ended jobs are forgotten.")
@ledger_options
def forget(*, user: str, config_path: Path, ledger_path: Path | None) -> None:
    """Delete what is kept of a user's ended jobs, for good; the daemon may be running.

    Jobs that Slurm still lists are kept: run it again when they are gone. Copies of the ledger are not changed.
    """
    spool = config_of(config_path, ledger_path).spool.path
    with open_ledger_to_write(config_path, ledger_path) as ledger:
        found = ledger.forget(user)
    if not found.jobs and not found.listed:
        raise UsageError(f"Invalid user id: {printable(user)}; the ledger has no job of it")
    files, kept = 0, Counter[str]()
    if found.jobs and spool.is_dir():
        with as_owner_of(spool):
            files, kept = remove_reports(spool, found.jobs, found.uids)
    emit([f"forgotten: {len(found.jobs)} jobs, {files} report files"])
    for why, count in kept.items():
        emit([f"not removed: {count} of {spool / REPORTS} ({why}); remove these yourself"])
    if found.listed:
        emit([f"kept, as Slurm still lists them: {found.listed} jobs; run this again when they are gone"])
    emit(
        [
            "the inputs of all cycles and the predictors' models were deleted with them; restart the daemon, whose"
            " predictors have learnt from these jobs",
            "not changed: backups, and copies beside the ledger (*.version-N, after a restore) or of a takeover",
        ]
    )
