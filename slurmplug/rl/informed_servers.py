"""`Informed` for jobs with parameter servers: a teacher that is told how fast the simulated jobs train by both.

What a job costs with w workers and u servers in the slot is as there. From what it has been given so far, a job is
given more on the steepest way on: to the numbers by which its cost falls most for its share of its dominant resource.
"""

import numpy as np

from policies.dl2 import slot_of, work_left
from policies.dl2_servers import ServerAllocation, ServerAllocator
from policies.marginal_gain.server_speeds import rate
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats, Ints
from predictors.forecast import Forecasts, Need
from slurmplug.rl.informed import ALL_AT_ONCE, UNKNOWN_SECONDS, weights
from slurmplug.sim.engine.job import Workload

POWER = 0.35
"""speeds are about this power of what a job has, and the constant of `informed` for jobs yet to come"""
AHEAD = 0.15
BUNDLE = 5.0
"""CPUs of a worker and a server in the mean, in which the cluster is counted"""


class InformedServers(Policy):
    """The teacher of one workload, in slots of so many seconds."""

    name = "informed"
    needs: frozenset[Need] = frozenset({"total", "remaining"})

    def __init__(self, workload: Workload, slot: float) -> None:
        self._jobs, self._allocator = workload.jobs, ServerAllocator((), ALL_AT_ONCE, slot)

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 each slot anew
        """Give one after another what lowers the cost most."""
        choices = self._allocator.choices(snapshot, forecasts, begins=True)
        if not choices.done:
            worths = Worths(self, snapshot, forecasts, choices)
            while not choices.done:
                worth = worths.of_batch(choices)
                best = int(worth.argmax())
                choices.choose(best if worth[best] > 0 else len(worth))
        return choices.plan()

    def until(self, snapshot: Snapshot) -> float:
        """The next slot."""
        return (slot_of(snapshot, self._allocator.slot) + 1) * self._allocator.slot

    def costs(self, snapshot: Snapshot, forecasts: Forecasts, rows: Ints) -> Floats:
        """(r, w, u) in seconds, with so many workers and servers in the slot."""
        jobs, slot = snapshot.jobs, self._allocator.slot
        trains = [self._jobs[jobs.keys[row].job_id - 1] for row in rows.tolist()]
        most = max(max(each.gpus_max, each.servers.most if each.servers else 0) for each in trains)
        counts = np.arange(1, most + 1)
        speeds = np.zeros((len(rows), most + 1, most + 1))
        for at, job in enumerate(trains):
            if job.servers is not None:
                table = rate(job.servers.times, counts[:, None], counts)
                speeds[at, 1:, 1:] = np.where(
                    (counts[:, None] <= job.gpus_max) & (counts <= job.servers.most), table, 0.0
                )
        left = np.nan_to_num(work_left(snapshot, forecasts)[0], nan=UNKNOWN_SECONDS)[rows]
        work = left * np.array([job.speed.at(job.gpus, 1) for job in trains])
        one = speeds[:, 1, 1]
        speeds, work = speeds / one[:, None, None], work / one
        bundles = float(snapshot.nodes.capacity[snapshot.nodes.up, 1].sum()) / BUNDLE
        later = (weights(work, AHEAD * bundles, POWER) / bundles**POWER)[:, None, None]
        work = work[:, None, None]
        with np.errstate(divide="ignore"):
            ends = work / speeds
        return np.asarray(np.where(work <= speeds * slot, ends, slot + later * (work - speeds * slot)))


class Worths:
    """What each choice of an allocation under way is worth."""

    def __init__(self, teacher: InformedServers, snapshot: Snapshot, forecasts: Forecasts, choices: ServerAllocation):
        self._costs = teacher.costs(snapshot, forecasts, choices.rows)
        size = np.arange(self._costs.shape[1])
        gpus, cpus = snapshot.nodes.capacity[snapshot.nodes.up, :2].sum(axis=0)
        of_worker, of_server = (each[choices.rows][:, None, None] for each in choices.cpus)
        held = (size[:, None] * of_worker + size * of_server) / max(cpus, 1.0)
        self._shares = np.maximum(size[:, None] / max(gpus, 1.0), held)
        """(r, w, u) of the dominant resource"""
        self._known: dict[tuple[int, int, int], Floats] = {}

    def of_batch(self, choices: ServerAllocation) -> Floats:
        """(3 k,) by how much the cost falls for the share of the dominant resource; 0 for what may not be chosen."""
        first = choices.begin
        batch = range(first, first + len(choices.batch))
        worth = [self._of(at, int(choices.workers[at]), int(choices.servers[at])) for at in batch]
        return np.asarray(np.concatenate(worth) * choices.mask[:-1])

    def _of(self, at: int, workers: int, servers: int) -> Floats:
        """(3,) of a worker, a server, and one of each."""
        key = at, workers, servers
        if key not in self._known:
            cost, shares = self._costs[at], self._shares[at]
            falls = cost[workers, servers] - cost[workers:, servers:]
            with np.errstate(divide="ignore", invalid="ignore"):
                steep = falls / shares[: falls.shape[0], : falls.shape[1]]
            ways = steep[1:, 0], steep[0, 1:], steep[1:, 1:]
            self._known[key] = np.array([each.max(initial=0.0) for each in ways])
        return self._known[key]
