"""Small simulations for tests: jobs with every field given a default, and policies that a test scripts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from policies.placement.allocation import allocate, queue_order
from policies.plan import Action, Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.experiment.result import RunResult
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings


def speed(*points: tuple[int, int, float]) -> Speed:
    """Of points (GPUs, nodes, iterations a second)."""
    gpus, nodes, rate = zip(*points, strict=True)
    return Speed(np.array(gpus), np.array(nodes), np.array(rate))


def job(**fields: Any) -> SimJob:
    """One GPU, 100 iterations of a second each, no restart cost, unless given otherwise."""
    defaults: dict[str, Any] = {
        "name": "j",
        "submit": 0.0,
        "gpus": 1,
        "iterations": 100,
        "speed": speed((1, 1, 1.0)),
        "restart": 0.0,
    }
    return SimJob(**defaults | fields)


class ScriptedPolicy(Policy):
    """A policy whose actions of each cycle a test gives; it remembers nothing."""

    name = "scripted"
    settings = None

    def __init__(self, decide: Callable[[Snapshot], tuple[Action, ...]]) -> None:
        self._decide = decide

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        return Plan(np.zeros(len(snapshot.jobs)), actions=self._decide(snapshot))


class First(ScriptedPolicy):
    """First come, first served."""

    name = "first"

    def __init__(self) -> None:
        super().__init__(lambda s: allocate(s, queue_order(s.jobs), s.jobs.gpus).actions)


class FirstByEvents(First):
    """The same, which declares that only events change its decision."""

    decides_on = "events"


def simulation(*jobs: SimJob, policy: Any = None, cluster: str = "2x4", **settings: Any) -> Simulation:
    """These jobs on a small cluster, a cycle each 10 seconds."""
    return Simulation(
        Workload("test", jobs), policy or First(), SimulationSettings(cluster, **{"interval": 10.0} | settings)
    )


def run(*jobs: SimJob, **settings: Any) -> RunResult:
    """The same, run to its end."""
    return simulation(*jobs, **settings).run()
