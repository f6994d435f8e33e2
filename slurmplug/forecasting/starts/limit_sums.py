"""The limits of QOS and associations on the jobs of a queue, as sums over those that run (`queues.Sums`)."""

from __future__ import annotations

import numpy as np

from policies.snapshot import RESOURCES, Snapshot
from predictors.arrays import Bools, Floats, Ints
from slurmplug.cluster.limit_columns import LimitColumns, limit_columns
from slurmplug.cluster.limits import JOBS, Limits, ResourceUse
from slurmplug.forecasting.starts.queues import Sums

MOST_ELEMENTS = 1_000_000
"""of an array: enough to reach any limit"""
NO_DEMAND = np.zeros((0, len(RESOURCES)))
LIMIT_REASONS = (
    "QOSGrpGRES", "QOSGrpCpuLimit", "QOSGrpMemLimit", "QOSGrpMemory", "QOSGrpJobsLimit", "QOSMaxGRESPerUser",
    "QOSMaxCpuPerUserLimit", "QOSMaxMemoryPerUser", "QOSMaxJobsPerUserLimit", "QOSMaxGRESPerAccount",
    "QOSMaxCpuPerAccount", "QOSMaxMemoryPerAccount", "MaxCpuPerAccount", "MaxGRESPerAccount", "MaxMemoryPerAccount",
    "QOSMaxJobsPerAccountLimit", "MaxJobsPerAccount", "AssocGrpGRES", "AssocGrpCpuLimit", "AssocGrpMemLimit",
    "AssocGrpJobsLimit", "AssocMaxJobsLimit",
)  # fmt: skip
"""Slurm's reasons of jobs that wait for what runs to end, by limits that `Limits` has (squeue(1), JOB REASON CODES)."""


class QueueLimits:
    """The limits on a snapshot's jobs, and what rows (m,) of it count in, and use of each kind."""

    def __init__(self, limits: Limits, snapshot: Snapshot) -> None:
        jobs = snapshot.jobs
        self._limits = limits
        self._kinds = (JOBS, "gres/gpu", "cpu", "mem", *(f"gres/gpu:{kind}" for kind in snapshot.nodes.gpu_types))
        self._number: dict[tuple[str, str, str, str], int] = {}
        """of each different user, account, QOS and partition"""
        self._made: tuple[int, LimitColumns | None] | None = None
        """the limits of so many of these"""
        whose = (jobs.user, jobs.account, jobs.qos, jobs.partition)
        rows = zip(*(each.tolist() for each in whose), strict=True)
        self._of = np.array([self._numbered(*each) for each in rows], dtype=np.int64)
        self._amounts = self._amounts_of(jobs.demand, jobs.gpu_type.tolist())
        self._elements = jobs.elements
        self._ended = jobs.state == "completing"
        """of which slurmctld counts none any more"""

    def held_back(self, snapshot: Snapshot) -> Bools:
        """(n,) whether each job waits for one of these limits alone: as Slurm said last, and as they were until now."""
        jobs, columns = snapshot.jobs, self._columns()
        reasons = np.isin(jobs.reason, LIMIT_REASONS) & jobs.pending & ~jobs.held & ~jobs.awaits
        if columns is None or not reasons.any():
            return np.zeros(len(jobs), dtype=bool)
        running = ~jobs.pending
        used = columns.used(self._of[running], self._amounts[running])
        return reasons & columns.over(self._of, self._amounts, used)

    def sums(
        self, whose: ResourceUse | None = None, demands: Floats = NO_DEMAND, gpu_type: str = ""
    ) -> tuple[Sums, Ints] | None:
        """The limits on groups of jobs, and the group (n + m,) of each job, and of m more with these demands (m,
        resources), all of whose it is and of that type of GPU; None where there are none.

        Limits that even all jobs together do not reach are left out, as most jobs are alike without them.
        """
        more = [self._numbered(*whose[:4])] * len(demands) if whose else []
        of = np.concatenate([self._of, np.array(more, dtype=np.int64)])
        columns = self._columns()
        if columns is None:
            return None
        counted = np.where(self._ended[:, None], 0.0, self._amounts)
        amounts = np.concatenate([counted, self._amounts_of(demands, [gpu_type] * len(demands))])
        at_once = np.concatenate([np.minimum(self._elements, MOST_ELEMENTS), np.ones(len(demands))])
        reached = columns.reached(of, amounts * at_once[:, None])
        groups, group = np.unique(np.concatenate([of[:, None], amounts], axis=1), axis=0, return_inverse=True)
        sums = limit_sums(reached, groups[:, 0].astype(np.int64), groups[:, 1:])
        alike = np.concatenate([sums.counts, np.where(sums.counts >= 0, sums.amounts, 0.0), sums.most], axis=1)
        _, first, of_group = np.unique(alike, axis=0, return_index=True, return_inverse=True)
        return Sums(sums.counts[first], sums.amounts[first], sums.most[first]), of_group.ravel()[group.ravel()]

    def _numbered(self, user: str, account: str, qos: str, partitions: str) -> int:
        use = (user, account, qos, partitions.partition(",")[0])
        return self._number.setdefault(use, len(self._number))

    def _amounts_of(self, demand: Floats, gpu_types: list[str]) -> Floats:
        """(m, kinds) of jobs that each are one."""
        types = np.array(gpu_types, dtype=np.str_)
        of_type = [np.where(types == kind.partition(":")[2], demand[:, 0], 0.0) for kind in self._kinds[4:]]
        return np.column_stack([np.ones(len(demand)), demand, *of_type])

    def _columns(self) -> LimitColumns | None:
        if self._made is None or self._made[0] < len(self._number):
            uses = [ResourceUse(*each, {}) for each in self._number]
            self._made = len(uses), limit_columns(self._limits, uses, self._kinds)
        return self._made[1]


def limit_sums(columns: LimitColumns, of: Ints, amounts: Floats) -> Sums:
    """The limits on groups of jobs (g,): the row of each in the columns, and what one of its jobs uses (g, kinds)."""
    groups, width, kinds = len(of), *columns.most.shape[1:]
    most = columns.most[of].reshape(groups, width * kinds)
    sums = (columns.tally[of][:, :, None] * kinds + np.arange(kinds)).reshape(groups, width * kinds)
    uses = np.tile(amounts, width)
    limited = np.unique(sums[np.isfinite(most)])
    place = np.minimum(np.searchsorted(limited, sums), max(len(limited) - 1, 0))
    counts = np.isin(sums, limited) & (uses > 0)
    ceiling = np.full((groups, max(len(limited), 1)), np.inf)
    row, column = np.nonzero(counts & np.isfinite(most))
    ceiling[row, place[row, column]] = most[row, column] - uses[row, column]
    ceiling[(amounts > columns.alone[of]).any(axis=1), 0] = -1.0  # above whatever runs
    order = np.argsort(~counts, axis=1, kind="stable")[:, : int(counts.sum(axis=1).max(initial=0))]
    return Sums(
        np.take_along_axis(np.where(counts, place, -1), order, axis=1), np.take_along_axis(uses, order, axis=1), ceiling
    )
