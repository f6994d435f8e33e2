"""`slurmplug resume`: ends a pause, or ranks a job again whose SiteFactor somebody else set."""

from pathlib import Path

import click

from slurmplug.commands.opened import open_ledger_to_write
from slurmplug.commands.options import emit, job_option, ledger_options
from slurmplug.console.table import printable
from slurmplug.daemon.reset import job_number
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import JobId


@click.command()
@job_option("Rank this job again (12, or 12_3 of an array), whose SiteFactor somebody else set; a pause stays.")
@ledger_options
def resume(*, wanted: JobId | None, config_path: Path, ledger_path: Path | None) -> None:
    """Let the daemon act again as the configuration says."""
    with open_ledger_to_write(config_path, ledger_path) as ledger:
        if wanted is not None:
            job = job_number(ledger, wanted)
            if not ledger.rank_again(job):
                raise UsageError(f"job {job} has no SiteFactor that somebody else set: see `slurmplug why {job}`")
            emit([f"job {job} is ranked again, from the daemon's next cycle"])
            return
        why = ledger.control("paused")
        ledger.set_control("paused", None)
    emit(["it was not paused" if why is None else f"resumed; it was paused: {printable(why)}"])
