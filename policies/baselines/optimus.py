"""GPUs to the jobs whose remaining time they shorten most."""

from dataclasses import dataclass

import numpy as np

from policies.marginal_gain.server_speeds import seconds
from policies.marginal_gain.speeds import MedianSpeeds
from policies.placement.allocation import elastic, gang_gpus, grow_elastic, queue_order
from policies.placement.demand import remaining_seconds
from policies.placement.plans import plan_allocation
from policies.placement.servers import Step, shared_out
from policies.placement.space import Packing
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import JobServers, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts, Need

LAST_ITERATION = 1e-3
"""iterations that a job in its last one counts as: enough to get GPUs that no other job needs"""
MAX_FLOAT = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class OptimusSettings:
    """packing: as for Tiresias. begun: an iteration in progress counts as done, as in Pollux's simulation, so that a
    job in its last one gets its minimum only."""

    packing: Packing = "wide"
    begun: bool = True

    def __post_init__(self) -> None:
        if self.packing not in ("tight", "wide"):
            raise ValueError(f"packing is tight or wide, not {self.packing!r}")


class Optimus(Policy):
    """The minimum for every job, then one GPU after another to the job that it shortens most (Peng et al., EuroSys
    2018).

    Section 4.1: the marginal gain of one more worker is the reduction of the remaining time, which is iterations left
    over speed; a GPU goes to the greatest positive gain. Speed is forecast by GPUs (their section 3.2); the iterations
    left are those to the job's declared maximum (they fit a loss curve, 3.1). As Pollux (Qiao et al., OSDI 2021,
    section 5.3) simulates it: minima are allocated by submission; jobs whose number changes are placed anew, the
    smallest first (after 4.2). A rigid job, or one of unknown speed, gets the GPUs that it requested.

    Where jobs have parameter servers: a worker and a server for every job, then one of either to the greatest gain over
    its share of its dominant resource (4.1), by the speeds that the jobs' sample runs show (3.2); they are not fitted
    again as a job runs, since these jobs train as the model says. Left out: the balance of parameters (5.3).
    """

    name = "optimus"
    needs: frozenset[Need] = frozenset({"speed", "rigid speed", "remaining"})
    decides_on = "reports"

    def __init__(self, settings: OptimusSettings | None = None) -> None:
        self.settings: OptimusSettings = settings or OptimusSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by submission, and allocate GPUs by marginal gain."""
        if snapshot.servers is not None:
            return self._decide_with_servers(snapshot, snapshot.servers)
        jobs = snapshot.jobs
        speeds = MedianSpeeds.of(forecasts.speed)
        left = iterations_left(snapshot, forecasts, speeds, begun=self.settings.begun)
        scales = elastic(jobs) & (left > 0)
        least = np.where(scales, jobs.gpus_min, jobs.gpus)
        order = queue_order(jobs)
        wanted = gang_gpus(snapshot, order, preempt=True, requested=least)

        iterations = np.where(scales, left, 0.0).tolist()

        def gain(row: int, gpus: int) -> float:
            return iterations[row] * speeds.saved(row, gpus) if iterations[row] else 0.0

        wanted = grow_elastic(snapshot, wanted, gain)
        smallest_first = order[np.argsort(wanted[order], kind="stable")]
        return plan_allocation(snapshot, order, wanted, packing=self.settings.packing, placement_order=smallest_first)

    def _decide_with_servers(self, snapshot: Snapshot, servers: JobServers) -> Plan:
        jobs = snapshot.jobs
        left = np.fmax(np.nan_to_num(jobs.max_iterations - jobs.iteration - self.settings.begun), LAST_ITERATION)
        scales = elastic(jobs) & (servers.most > 0) & np.isfinite(servers.times).all(axis=1)
        least, order = np.where(scales, jobs.gpus_min, jobs.gpus), queue_order(jobs)
        capacity = snapshot.nodes.capacity[snapshot.nodes.up].sum(axis=0)
        of_worker = jobs.demand / np.maximum(jobs.gpus, 1)[:, None]
        of_worker[:, 1] -= servers.cpus
        worker = (of_worker / np.where(capacity > 0, capacity, np.inf)).max(axis=1)
        server = servers.cpus / max(float(capacity[1]), 1.0)

        def steps(row: int, workers: int, count: int) -> list[Step]:
            if not scales[row]:
                return []
            w, u = workers + np.array([0, 1, 0]), count + np.array([0, 0, 1])
            now, *then = (left[row] * seconds(servers.times[row], w, u)).tolist()
            return [Step((now - then[0]) / worker[row], 1, 0), Step((now - then[1]) / server[row], 0, 1)]

        least_servers = np.where(scales, 1, np.where(servers.most > 0, least, 0))
        wanted, counts = shared_out(
            snapshot, servers, order, least=least, least_servers=least_servers, preempt=True, steps=steps
        )
        smallest_first = order[np.argsort(wanted[order], kind="stable")]
        return plan_allocation(
            snapshot,
            order,
            wanted,
            packing=self.settings.packing,
            placement_order=smallest_first,
            servers=counts,
        )

    def until(self, snapshot: Snapshot) -> float:
        """For ever, if nothing happens and no job reports: it would decide as it did.

        Not where a job names no maximum: its remaining iterations follow from its remaining time.
        """
        return snapshot.now if np.isnan(snapshot.jobs.max_iterations).any() else np.inf


def iterations_left(snapshot: Snapshot, forecasts: Forecasts, speeds: MedianSpeeds, *, begun: bool) -> Floats:
    """(n,) iterations to the job's declared maximum, or else those that fit into the forecast remaining time.

    0 for a job of unknown speed, or without either. begun: without the one in progress (see `LAST_ITERATION`).
    """
    jobs, known = snapshot.jobs, forecasts.speed.known
    left = jobs.max_iterations - jobs.iteration
    left = np.where(known, np.maximum(left - 1.0, LAST_ITERATION) if begun else left, 0.0)
    rows = np.flatnonzero(known & np.isnan(left)).tolist()
    seconds = remaining_seconds(snapshot, forecasts.remaining) if rows else left
    for row in rows:
        left[row] = seconds[row] * speeds.at(row, float(jobs.gpus[row]))
    return np.asarray(np.fmin(np.fmax(left, 0.0), MAX_FLOAT))
