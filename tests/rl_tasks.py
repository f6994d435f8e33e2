"""A small task for tests of training: which of the first pending jobs is started next, or none of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.baselines.fifo import FIFO
from policies.placement.allocation import allocate, queue_order
from policies.plan import Plan
from policies.snapshot import Snapshot
from predictors.arrays import Bools
from slurmplug.cycle.observed import Observed
from slurmplug.rl.environment import Task
from slurmplug.rl.episode import Window
from slurmplug.rl.training_workloads import TrainingWorkloads
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings

MOST = 8
"""jobs of which one is chosen"""
WORKLOADS = TrainingWorkloads("gen:mlfs?elastic=off", clusters=("4x4", "8x4"), jobs=12, loads=(2.0, 6.0))


class StartOrder:
    """Choices (`policies.choices.Choices`): the pending jobs in the order in which they are to start."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        order = queue_order(snapshot.jobs)
        self._pending = [row for row in order.tolist() if snapshot.jobs.pending[row]][:MOST]
        self._running = [row for row in order.tolist() if snapshot.jobs.running[row]]
        self._chosen: list[int] = []
        self.done = not self._pending

    @property
    def state(self) -> Mapping[str, NDArray[Any]]:
        jobs, rows = self._snapshot.jobs, self._pending
        columns = [jobs.gpus[rows], jobs.waited[rows] / 3600, np.isin(rows, self._chosen)]
        return {"jobs": np.stack(columns, axis=1).astype(np.float32)}

    @property
    def mask(self) -> Bools:
        return np.append(~np.isin(self._pending, self._chosen), True)

    def choose(self, number: int) -> None:
        if number == len(self._pending):
            self.done = True
        else:
            self._chosen.append(self._pending[number])
            self.done = len(self._chosen) == len(self._pending)

    def plan(self) -> Plan:
        snapshot = self._snapshot
        order = np.array([*self._running, *self._chosen], dtype=np.int64)
        started = allocate(snapshot, order, snapshot.jobs.gpus)
        return Plan(np.zeros(len(snapshot.jobs)), actions=started.actions)


def simulation(seed: int) -> Simulation:
    workload, cluster = WORKLOADS.sample(seed)
    return Simulation(workload, FIFO(), SimulationSettings(cluster, interval=300.0, seed=seed))


def choices(observed: Observed) -> StartOrder:
    return StartOrder(observed.snapshot)


def reward(window: Window) -> float:
    return -window.job_seconds / 3600


TASK = Task(simulation, choices, reward, {"jobs": (MOST, 3)}, MOST + 1)
