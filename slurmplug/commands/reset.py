"""`slurmplug reset`: give back to Slurm what slurmplug set."""

import time
from pathlib import Path

import click

from slurmplug.cluster.port import ClusterPort
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.commands.options import by_whom, config_option, configured, emit, opened, require_here
from slurmplug.config import Config
from slurmplug.errors import UsageError
from slurmplug.ledger import queries
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.lock import daemon_runs
from slurmplug.ledger.selection import JobId
from slurmplug.reset import (
    UNREAD,
    Returned,
    Traceable,
    give_back,
    give_back_unrecorded,
)
from slurmplug.table import printable

LOOK_SECONDS = 0.2


@click.command()
@config_option
@click.option(
    "--job",
    "wanted",
    metavar="JOBID",
    callback=lambda _context, _option, text: None if text is None else JobId.parse(text),
    help="Of this job alone (12, or 12_3 of an array), which is left alone for good.",
)
@click.option("--reason", default="reset", show_default=True, help="Why; shown by `status` while it is paused.")
def reset(*, config_path: Path, wanted: JobId | None, reason: str) -> None:
    """Give back to Slurm every priority, hold, constraint and reservation that slurmplug set, and take back every open
    request to a job.

    Pauses the daemon first, so that it does not set them anew; `slurmplug resume` lets it go on. Works without a
    daemon, too; where there is no ledger any more, by what Slurm itself and the spool tell. It ends with 1 where
    something could not be given back.
    """
    config = configured(config_path)
    if _absent(config.ledger.path):
        require_here(config)
        if wanted and wanted.task is not None:
            raise UsageError("without a ledger, name an element of an array by its own number (%A of squeue)")
        if not carry_out_unrecorded(config, SlurmCluster(config), wanted.number if wanted else None):
            raise SystemExit(1)
        return
    with opened(config_path, None, readonly=False) as ledger:
        job = wanted and number_of(ledger, wanted)
        if not carry_out(config, ledger, SlurmCluster(config), job, f"{reason} {by_whom()}"):
            raise SystemExit(1)


def number_of(ledger: Ledger, wanted: JobId) -> int:
    """The number of a job; that of an element of an array is its own. Raises UsageError where it is not known."""
    if wanted.task is None:
        return wanted.number
    number = queries.live_job(ledger, *wanted)
    if number is None:
        raise UsageError(
            f"slurmplug knows no job {wanted.number}_{wanted.task} that has not ended; "
            f"elements that still wait together go by {wanted.number}"
        )
    return number


def carry_out(config: Config, ledger: Ledger, port: ClusterPort, job: int | None, reason: str) -> bool:
    """Give back, tell of it, and say whether nothing was left."""
    asked = port.now()
    if job is None:
        if ledger.control("paused") is None:
            ledger.set_control("paused", reason)
        emit(["paused; `slurmplug resume` lets the daemon set priorities again"])
    else:
        if queries.live_job(ledger, job, None) is None:
            raise UsageError(f"slurmplug knows no job {job} that has not ended")
        ledger.give_back([job])
        emit([f"job {job} is left alone from now on"])
    returned = give_back(ledger, port, job)
    _tell(returned)
    if daemon_runs(config.ledger.path):
        emit(["waiting for the daemon's next cycle, as this one may just have written"])
        deadline = time.monotonic() + 2 * config.interval + config.slurm.timeout
        while not queries.began_cycle_since(ledger, asked) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        if not queries.began_cycle_since(ledger, asked):
            emit(["the daemon began no cycle: look at its log, and reset again when it runs or is stopped"])
            return False
        returned = give_back(ledger, port, job)
        if returned.anything:
            _tell(returned)
    return not returned.kept


def carry_out_unrecorded(config: Config, port: Traceable, job: int | None) -> bool:
    """Likewise without a ledger: nobody can be paused, and what nobody can tell is said."""
    emit([f"there is no ledger {config.ledger.path}: what Slurm and the spool tell is given back"])
    returned, doubts = give_back_unrecorded(port, job)
    _tell(returned)
    emit(doubts)
    if runs := daemon_runs(config.ledger.path):
        emit(["a daemon runs and may set all of it anew: stop it, and reset again"])
    return not (returned.kept or runs or any(doubt.startswith(UNREAD) for doubt in doubts))


def _absent(path: Path) -> bool:
    """Whether there is no such file; one that cannot be looked at is not absent."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _tell(returned: Returned) -> None:
    told = {
        "priorities": returned.priorities,
        "requests to jobs": returned.requests,
        "shapes and constraints": returned.shapes,
        "reservations": returned.reservations,
        "holds for admission": returned.holds,
    }
    emit([f"given back: {', '.join(f'{what} {len(jobs)}' for what, jobs in told.items())}"])
    if returned.gone:
        emit([f"ended meanwhile, so nothing to give back: {len(returned.gone)}"])
    emit(f"not given back: job {job_id}, {printable(why)}" for job_id, why in sorted(returned.kept.items()))
