"""Small simulations for tests: jobs with every field given a default, and policies that do what a test says."""

from collections.abc import Callable
from typing import Any

import numpy as np

from policies.allocation import allocate, in_order
from policies.plan import Action, Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.sim.job import SimJob, Speed, Workload
from slurmplug.sim.outcome import RunResult
from slurmplug.sim.run import Settings, Simulation


def speed(*points: tuple[int, int, float]) -> Speed:
    """Of points (GPUs, nodes, iterations a second)."""
    gpus, nodes, rate = zip(*points, strict=True)
    return Speed(np.array(gpus), np.array(nodes), np.array(rate))


def job(**fields: Any) -> SimJob:
    """One GPU, 100 iterations of a second each, no restart cost, unless said otherwise."""
    told = {"name": "j", "submit": 0.0, "gpus": 1, "iterations": 100, "speed": speed((1, 1, 1.0)), "restart": 0.0}
    return SimJob(**told | fields)


class Told(Policy):
    """A policy that does in each cycle what a test says; it remembers nothing."""

    name = "told"
    settings = None

    def __init__(self, decide: Callable[[Snapshot], tuple[Action, ...]]) -> None:
        self._decide = decide

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        return Plan(np.zeros(len(snapshot.jobs)), actions=self._decide(snapshot))


class First(Told):
    """First come, first served."""

    name = "first"

    def __init__(self) -> None:
        super().__init__(lambda s: allocate(s, in_order(s.jobs), s.jobs.gpus).actions)


class FirstByEvents(First):
    """The same, which says that time alone changes nothing."""

    decides_on = "events"


def simulation(*jobs: SimJob, policy: Any = None, cluster: str = "2x4", **settings: Any) -> Simulation:
    """These jobs on a small cluster, a cycle each 10 seconds."""
    return Simulation(Workload("test", jobs), policy or First(), Settings(cluster, **{"interval": 10.0} | settings))


def run(*jobs: SimJob, **settings: Any) -> RunResult:
    """The same, run to its end."""
    return simulation(*jobs, **settings).run()
