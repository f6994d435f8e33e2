"""A site's own past: the jobs of slurmplug's ledger that it did not stop, with their directives and curves.

A job trains as fast as it did on the GPUs that it had, and on any other number too, as nothing else is known of it. One
that was cancelled or failed takes as long as it did; how it would have gone on to learn is not known, so it has no
curve and no target.
"""

import json
from collections.abc import Sequence
from contextlib import closing
from math import nan

import numpy as np

from predictors.arrays import Floats
from slurmplug.errors import LedgerError
from slurmplug.intake.job_record import is_managed
from slurmplug.ledger import run_queries
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.run_queries import FinishedRun, Report
from slurmplug.ledger.stored_directives import directives_from
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads.load import WorkloadError, WorkloadRequest

FEWEST_REPORTS = 5
MOST = 1e15
"""A curve with larger values, or more iterations, is left out."""


def workload(request: WorkloadRequest) -> Workload:
    """The jobs that held GPUs.

    Raises:
        WorkloadError
    """
    try:
        with closing(Ledger(request.path, readonly=True)) as ledger:
            found = [
                (run, run_queries.reports(ledger, run.id) if run.state == "COMPLETED" else [])
                for run in run_queries.ended_runs(ledger)
                if run.of_gpus.whole and run.runtime > 0
            ]
            stopped = run_queries.stopped_jobs(ledger)
    except LedgerError as error:
        raise WorkloadError(str(error)) from error
    first = min((run.queued for run, _ in found), default=0.0)
    return Workload(
        str(request.path),
        tuple(_job(run, reports, first) for run, reports in found),
        of_slurm=True,
        assumed=(
            "each job trains as fast on any number of GPUs as on those that it had",
            "each job runs as long as it did, also if it failed or was cancelled",
            "each job enters the queue when it was eligible",
        ),
        not_known=(
            *((f"the jobs that slurmplug stopped ({stopped})",) if stopped else ()),
            "runs before a requeue",
            "reservations",
            "usage before the first job, for fairshare",
        ),
    )


def _job(run: FinishedRun, reports: Sequence[Report], first: float) -> SimJob:
    at, losses, accuracies = _curve(reports)
    iterations, given = int(at[-1]) if len(at) else 1, run.directives
    target = given.get("target") or {}
    gpus = run.of_gpus.whole
    return SimJob(
        name=str(run.job_id),
        submit=run.queued - first,
        gpus=gpus,
        managed=is_managed(bool(run.batch), directives_from(json.dumps(given)), in_doubt=False),
        iterations=iterations,
        speed=Speed(np.array([gpus]), np.array([run.nodes or 1]), np.array([iterations / run.runtime])),
        user=run.user or "user",
        account=run.account or "account",
        qos=run.qos or "normal",
        partition=run.partition or "gpu",
        kind=given.get("type") or "",
        cpus=run.cpus or 0,
        memory=run.memory or 0.0,
        time_limit=max(run.time_limit, run.runtime) if run.time_limit else nan,
        waited=max(run.end - run.suspended - run.runtime - run.queued, 0.0) if not run.restarts else nan,
        curve_at=at,
        losses=losses,
        accuracies=accuracies,
        target=float(target["value"]) if target.get("quantity") == "accuracy" and len(accuracies) else nan,
        deadline=_known(given.get("deadline")) - first,
        urgency=_known(given.get("urgency")),
        stop=str(given.get("stop") or "iterations").partition(":")[0] if len(accuracies) else "iterations",
        downgrade=given.get("allow_downgrade") or "" if len(accuracies) else "",
    )


def _curve(reports: Sequence[Report]) -> tuple[Floats, Floats, Floats]:
    """Iterations from 1 on, and the losses and accuracies there; each empty, where it was not always reported."""
    nothing = np.empty(0)
    at = np.array([each.iteration for each in reports], dtype=np.float64)
    at += len(at) > 0 and at[0] == 0
    if len(at) < FEWEST_REPORTS or not (at[0] >= 1 and at[-1] < MOST and (np.diff(at) > 0).all()):
        return nothing, nothing, nothing
    losses, accuracies = (_values(reports, name) for name in ("loss", "accuracy"))
    return (at, losses, accuracies) if len(losses) or len(accuracies) else (nothing, nothing, nothing)


def _values(reports: Sequence[Report], name: str) -> Floats:
    values = np.array([each.quantities.get(name, nan) for each in reports], dtype=np.float64)
    return values if np.isfinite(values).all() and np.abs(values).max() < MOST else np.empty(0)


def _known(value: float | None) -> float:
    return nan if value is None else float(value)
