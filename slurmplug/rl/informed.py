"""A teacher that is told how fast the simulated jobs train: each slot's GPUs go to where they shorten completion most.

What a job costs from the beginning of a slot on, with k GPUs in it: the time to its end, if it ends in the slot; else
the slot, and w_i / N^p for each second of work that is then left. By heSRPT (Berg, Vesilo, Harchol-Balter, Performance
Evaluation 2020), where speeds are k^p and N GPUs are always divided at best, w_i = (i^c - (i - 1)^c)^(1 - p), i the
rank by work left, 1 the largest, c = 1 / (1 - p). Jobs yet to come are counted as `AHEAD` larger ones for each GPU.
"""

import numpy as np

from policies.dl2 import Allocator, slot_of, work_left
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts, Need
from slurmplug.sim.engine.job import Workload

POWER = 0.75
AHEAD = 0.15
UNKNOWN_SECONDS = 7200.0
"""what is left of a job of unknown run time, on the GPUs that it requests"""
ALL_AT_ONCE = 1_000_000


class Informed(Policy):
    """The teacher of one workload, on nodes of so many GPUs, in slots of so many seconds."""

    name = "informed"
    needs: frozenset[Need] = frozenset({"total", "remaining"})

    def __init__(self, workload: Workload, gpus_a_node: int, slot: float) -> None:
        self._jobs = [job for job in workload.jobs for _ in range(max(1, len(job.parts)))]
        self._allocator, self._gpus_a_node = Allocator((), ALL_AT_ONCE, slot), gpus_a_node
        self._speeds: dict[int, Floats] = {}

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 each slot anew
        """Give GPUs one by one to the job whose cost falls most by each."""
        choices = self._allocator.choices(snapshot, forecasts, begins=True)
        if not choices.done:
            gain = self.gain(snapshot, forecasts)[choices.rows]
            each = np.arange(len(gain))
            while not choices.done:
                allowed = np.where(choices.mask[:-1], gain[each, choices.workers], 0.0)
                best = int(allowed.argmax())
                choices.choose(best if allowed[best] > 0 else len(gain))
        return choices.plan()

    def until(self, snapshot: Snapshot) -> float:
        """The next slot."""
        return (slot_of(snapshot, self._allocator.slot) + 1) * self._allocator.slot

    def gain(self, snapshot: Snapshot, forecasts: Forecasts) -> Floats:
        """(n, k) the seconds that a job's cost falls by a further GPU, with so many so far: of the steepest way on."""
        jobs, slot = snapshot.jobs, self._allocator.slot
        most = int(jobs.gpus_max.max())
        speeds = np.stack([self._speed(key.job_id - 1, most) for key in jobs.keys])
        speeds[np.arange(most + 1) > jobs.gpus_max[:, None]] = 0.0
        speeds = np.maximum.accumulate(speeds, axis=1)
        left = np.nan_to_num(work_left(snapshot, forecasts)[0], nan=UNKNOWN_SECONDS)
        work = left * speeds[np.arange(len(jobs)), np.minimum(jobs.gpus, most)]
        gpus = float(snapshot.nodes.capacity[snapshot.nodes.up, 0].sum())
        later = weights(work, AHEAD * gpus) / gpus**POWER
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = work[:, None] / speeds
        cost = np.where(work[:, None] <= speeds * slot, ends, slot + later[:, None] * (work[:, None] - speeds * slot))
        gain = np.zeros_like(cost)
        for step in range(1, most + 1):
            gain[:, :-step] = np.maximum(gain[:, :-step], (cost[:, :-step] - cost[:, step:]) / step)
        return gain

    def _speed(self, row: int, most: int) -> Floats:
        """(most + 1,) of a job on 0, 1, ... GPUs, 1 on one."""
        if row not in self._speeds or len(self._speeds[row]) <= most:
            speed = self._jobs[row].speed
            found = [speed.at(gpus, -(-gpus // self._gpus_a_node)) for gpus in range(1, most + 1)]
            self._speeds[row] = np.array([0.0, *found]) / found[0]
        return self._speeds[row]


def weights(work: Floats, larger: float, speeds: float = POWER) -> Floats:
    """(n,) w_i of heSRPT, where so many larger jobs are ahead of all; speeds: the power that they are."""
    power = 1.0 / (1.0 - speeds)
    rank = np.empty(len(work))
    rank[np.argsort(-work, kind="stable")] = np.arange(1.0, len(work) + 1)
    rank += larger
    return np.asarray((rank**power - (rank - 1) ** power) ** (1.0 - speeds))
