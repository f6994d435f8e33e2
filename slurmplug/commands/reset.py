"""`slurmplug reset`: undoes in Slurm what slurmplug set there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from slurmplug.cluster.port import ClusterPort
from slurmplug.cluster.site_client import SiteClient
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.commands.opened import NOT_YOURS, may_write, open_ledger_to_write, require_active_controller
from slurmplug.commands.options import config_option, emit, job_option, load_config, user_and_time
from slurmplug.config.schema import Config
from slurmplug.console.table import printable
from slurmplug.daemon.reset import (
    Doubts,
    ResetResult,
    TraceableCluster,
    job_number,
    reset_recorded,
    reset_unrecorded,
    wait_for_cycle,
)
from slurmplug.endpoint.viewers import account_name
from slurmplug.errors import ReadFailed, UsageError
from slurmplug.ledger import queries
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.lock import daemon_runs
from slurmplug.ledger.owner import as_owner_of
from slurmplug.ledger.selection import JobId
from slurmplug.operations.values import GOES_FIRST
from slurmplug.spool.folder import SpoolFolder
from slurmplug.spool.requests import Requests

P = ParamSpec("P")
T = TypeVar("T")


@click.command()
@config_option
@job_option("Reset this job only (12, or 12_3 of an array); slurmplug never changes it again.")
@click.option("--reason", default="reset", show_default=True, help="Shown by `status` while it is paused.")
def reset(*, config_path: Path, wanted: JobId | None, reason: str) -> None:
    """Undo every priority, hold, constraint and reservation that slurmplug set in Slurm, and withdraw every open
    request to a job.

    Pauses the daemon first, so that it does not set them again; `slurmplug resume` ends the pause. Works without a
    daemon, too, and without a ledger by what Slurm and the spool show. The exit status is 1 if something could not be
    reset.
    """
    config = load_config(config_path)
    if _is_missing(config.ledger.path):
        _require_operator(config)
        require_active_controller(config)
        if wanted and wanted.task is not None:
            raise UsageError("without a ledger, name an element of an array by its own number (%A of squeue)")
        if not reset_without_ledger(config, _cluster(config), wanted.number if wanted else None):
            raise SystemExit(1)
        return
    with open_ledger_to_write(config_path, None) as ledger:
        job = wanted and job_number(ledger, wanted)
        if not reset_with_ledger(config, ledger, _cluster(config), job, f"{reason} {user_and_time()}"):
            raise SystemExit(1)


class SpoolAsOwner(SpoolFolder):
    """The spool, in which root acts as its owner. Its methods raise LedgerError too, where root may not."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        requests = Requests(path)
        self.withdraw = self._as_owner(requests.withdraw)
        self.open_runs = self._as_owner(requests.open_runs)

    def read_waiting(self) -> frozenset[int]:
        """As `SpoolFolder.read_waiting`."""
        return self._as_owner(super().read_waiting)()

    def _as_owner(self, method: Callable[P, T]) -> Callable[P, T]:
        def call(*arguments: P.args, **others: P.kwargs) -> T:
            with as_owner_of(self._path):
                return method(*arguments, **others)

        return call


def _cluster(config: Config) -> SlurmCluster:
    return SlurmCluster(config, SpoolAsOwner(config.spool.path))


def reset_with_ledger(config: Config, ledger: Ledger, port: ClusterPort, job: int | None, reason: str) -> bool:
    """Pause the daemon (or exclude the job), reset, and print what was reset; returns whether nothing failed."""
    started = port.now()
    if job is None:
        if ledger.control("paused") is None:
            ledger.set_control("paused", reason)
        emit(["paused; `slurmplug resume` lets the daemon set priorities again"])
    else:
        if queries.live_job(ledger, job, None) is None:
            raise UsageError(f"slurmplug knows no job {job} that has not ended")
        ledger.give_back([job])
        emit([f"job {job} is excluded: slurmplug does not change it any more"])
    result = reset_recorded(ledger, port, job)
    _print_result(result)
    if daemon_runs(config.ledger.path):
        emit(["waiting for the daemon's next cycle: the current one may have set priorities again"])
        if not wait_for_cycle(ledger, started, 2 * config.interval + config.slurm.timeout):
            emit(["the daemon has not begun a cycle: see its log, and run reset again once it runs or is stopped"])
            return False
        result = reset_recorded(ledger, port, job)
        if result.any_reset:
            _print_result(result)
    return not result.failed


def reset_without_ledger(config: Config, port: TraceableCluster, job: int | None) -> bool:
    """Reset what Slurm and the spool show, and print that and what is in doubt; returns whether nothing failed."""
    emit([f"there is no ledger {config.ledger.path}: resetting what Slurm and the spool show"])
    result, doubts = reset_unrecorded(port, job)
    _print_result(result)
    _print_doubts(doubts)
    if runs := daemon_runs(config.ledger.path):
        emit(["a daemon is running and may set all of it again: stop it, and run reset again"])
    return not (result.failed or runs or doubts.unread)


def _require_operator(config: Config) -> None:
    """Raises UsageError for a user whom Slurm would refuse each step; not where Slurm cannot say."""
    if may_write(config.ledger.path):
        return
    try:
        levels = SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout).admin_levels()
    except ReadFailed:
        return
    if levels.get(account_name(os.geteuid())) not in {"Operator", "Administrator"}:
        raise UsageError(NOT_YOURS)


def _is_missing(path: Path) -> bool:
    """Whether there is no such file; one that cannot be accessed is not missing."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _print_result(result: ResetResult) -> None:
    counts = {
        "priorities": result.priorities,
        "requests to jobs": result.requests,
        "shapes and constraints": result.shapes,
        "reservations": result.reservations,
        "holds for admission": result.holds,
    }
    emit([f"reset: {', '.join(f'{what} {len(jobs)}' for what, jobs in counts.items())}"])
    if result.ended:
        emit([f"ended meanwhile, nothing to reset: {len(result.ended)}"])
    emit(f"not reset: job {job_id}, {printable(why)}" for job_id, why in sorted(result.failed.items()))


def _print_doubts(doubts: Doubts) -> None:
    emit(f"could not be read: {problem}" for problem in doubts.unread)
    if doubts.held:
        emit([f"held by an operator, or by slurmplug: {','.join(map(str, doubts.held))}"])
    emit(
        [
            "not known without a ledger: SiteFactors of running jobs, new shapes, nodes that jobs exclude or require "
            f"(`squeue -o '%A %x %n %y'` lists these), a nice value of {GOES_FIRST['Nice']} (%y)"
        ]
    )
