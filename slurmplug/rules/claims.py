"""Limits on what users write and jobs report, applied before a policy sees it: claims alone gain no priority. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from policies.plan import Reason
from policies.snapshot import Curves, JobKey, Jobs, Snapshot
from predictors.arrays import Bools, Floats
from slurmplug.config.schema import Guardrails

MIN_ITERATION_TIME = 1e-3
"""The shortest iteration in seconds: it launches many kernels, each of which takes some microseconds."""
MAX_LOSS_FALL = 100.0
"""No loss falls by more than this factor between two reports within `CLOSE_REPORTS` of each other."""
MEAN_URGENCY = 5.0
"""The urgency of a user's jobs in the mean, and of one without `--urgency`."""
CLOSE_REPORTS = 1.0
"""Seconds between two reports that are close together; also the precision of the time attained."""


def limit_claims(snapshot: Snapshot, limits: Guardrails) -> tuple[Snapshot, Mapping[JobKey, Reason]]:
    """The snapshot without claims that are not believed, and for each job the reason why.

    Urgency is limited to what the site grants the account, and counts beside the user's own other jobs: it is scaled so
    that these have `MEAN_URGENCY` in the mean over the GPUs that they request or hold. A job whose reports cannot be
    true counts as one that reported nothing: more iterations than its GPUs can have done in the time attained, or a
    loss that falls by a factor of `MAX_LOSS_FALL` within `CLOSE_REPORTS`.
    """
    jobs = snapshot.jobs
    granted = np.full(len(jobs), limits.urgency)
    for account, most in limits.urgency_of.items():
        granted[jobs.account == account] = most
    too_urgent = jobs.urgency > granted
    fast, steep = too_fast(jobs), too_steep(jobs)
    unbelieved = fast | steep
    notes = {
        jobs.keys[row]: _reason(jobs, granted, row, bool(fast[row]))
        for row in np.flatnonzero(too_urgent | unbelieved).tolist()
    }
    if not notes and np.isnan(jobs.urgency).all():
        return snapshot, notes
    believed = replace(jobs, urgency=relative_urgency(jobs, granted), **_cleared(jobs, unbelieved))
    return replace(snapshot, jobs=believed), notes


def _cleared(jobs: Jobs, unbelieved: Bools) -> dict[str, Any]:
    """The columns of reports, without those of the jobs (n,) that are not believed; none where all are."""
    if not unbelieved.any():
        return {}
    return {
        "iteration": np.where(unbelieved, 0.0, jobs.iteration),
        "iteration_time": np.where(unbelieved, np.nan, jobs.iteration_time),
        "not_finite": np.where(unbelieved, 0, jobs.not_finite),
        "unit_mismatch": np.where(unbelieved, "", jobs.unit_mismatch),
        "losses": clear_rows(jobs.losses, unbelieved),
        "accuracies": clear_rows(jobs.accuracies, unbelieved),
        "validation_losses": clear_rows(jobs.validation_losses, unbelieved),
    }


def relative_urgency(jobs: Jobs, granted: Floats) -> Floats:
    """(n,) each urgency, at most `granted` (n,), beside the mean of its user's managed jobs; NaN where none."""
    urgency = np.fmin(jobs.urgency, granted)
    urgency[np.isnan(jobs.urgency)] = np.nan
    numbers: dict[str, int] = {}
    user = np.array([numbers.setdefault(name, len(numbers)) for name in jobs.user.tolist()], dtype=np.int64)
    size = np.maximum(jobs.gpus, 1) * jobs.elements * jobs.managed
    counted = np.where(np.isnan(urgency), MEAN_URGENCY, urgency)
    sums, sizes = (np.bincount(user, weights=column, minlength=len(numbers)) for column in (counted * size, size))
    mean = np.divide(sums, sizes, out=np.full(len(numbers), MEAN_URGENCY), where=sums > 0)[user]
    return np.asarray(np.where(np.isnan(urgency), np.nan, np.minimum(urgency * MEAN_URGENCY / mean, granted)))


def too_fast(jobs: Jobs) -> Bools:
    """(n,) whether more iterations are reported than one each `MIN_ITERATION_TIME` of the time attained."""
    ran = jobs.attained / np.maximum(jobs.gpus, 1)
    return np.asarray(
        (jobs.iteration > 1) & (jobs.gpus > 0) & (jobs.iteration * MIN_ITERATION_TIME > ran + CLOSE_REPORTS)
    )


def too_steep(jobs: Jobs) -> Bools:
    """(n,) whether a loss falls by more than `MAX_LOSS_FALL` again and again, between reports within `CLOSE_REPORTS`.

    Once is possible, in the first steps after a bad start.
    """
    quick = jobs.iteration_time < CLOSE_REPORTS
    if not quick.any():
        return np.asarray(quick)
    curves = jobs.losses
    row = np.repeat(np.arange(len(jobs)), curves.lengths())
    before, after = curves.values[:-1], curves.values[1:]
    with np.errstate(over="ignore", invalid="ignore"):
        falls = (row[:-1] == row[1:]) & (after > 0) & (before > MAX_LOSS_FALL * after)
    return np.asarray((np.bincount(row[1:][falls], minlength=len(jobs)) > 1) & quick)


def clear_rows(curves: Curves, rows: Bools) -> Curves:
    """The curves, with nothing in these rows (n,)."""
    lengths = curves.lengths()
    kept = np.repeat(~rows, lengths)
    starts = np.concatenate([[0], np.cumsum(np.where(rows, 0, lengths))]).astype(np.int64)
    return Curves(curves.iterations[kept], curves.values[kept], starts)


def _reason(jobs: Jobs, granted: Floats, row: int, fast: bool) -> Reason:
    if jobs.urgency[row] > granted[row]:
        facts: dict[str, float | str] = {"urgency": float(jobs.urgency[row]), "granted": float(granted[row])}
        return Reason("urgency-granted", facts)
    reported: dict[str, float | str] = {"iteration": float(jobs.iteration[row])}
    return Reason("iterations-too-fast" if fast else "loss-too-steep", reported)
