"""What the gymnasium environment adds to a simulation: the same decisions, made by the simulation itself and asked
by the environment, for the policies and workloads whose cycles the simulator is measured by."""

from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytestmark = pytest.mark.rl

from numpy.typing import NDArray  # noqa: E402
from pytest_benchmark.fixture import BenchmarkFixture  # noqa: E402

from policies.baselines.drf import DRF  # noqa: E402
from policies.mlfs.mlfs import MLFH  # noqa: E402
from policies.plan import Plan  # noqa: E402
from policies.policy import Policy  # noqa: E402
from predictors.arrays import Bools  # noqa: E402
from slurmplug.cycle.observed import Observed  # noqa: E402
from slurmplug.rl.environment import SchedulingEnvironment, Task  # noqa: E402
from slurmplug.rl.training_workloads import TrainingWorkloads  # noqa: E402
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings  # noqa: E402

WORKLOADS_RUN, ROUNDS = 5, 5
STATE = {"jobs": (64, 8)}


class AsDecided:
    """Choices of which there is one: what a policy decides."""

    def __init__(self, policy: Policy, observed: Observed) -> None:
        self._policy, self._observed, self.done = policy, observed, False

    @property
    def state(self) -> Mapping[str, NDArray[Any]]:
        return {"jobs": np.ones((min(len(self._observed.snapshot.jobs), 64), 8), dtype=np.float32)}

    @property
    def mask(self) -> Bools:
        return np.ones(1, dtype=bool)

    def choose(self, number: int) -> None:
        self.done = number == 0

    def plan(self) -> Plan:
        seen = self._observed
        return self._policy.decide(seen.snapshot, seen.forecasts, seen.memory)


def timed(run: Callable[[], int]) -> tuple[float, int]:
    """Seconds of processor time, and what is returned."""
    began = process_time()
    found = run()
    return process_time() - began, found


def simulated(simulation: Simulation) -> int:
    """Its cycles."""
    simulation.run()
    return len(simulation.decide_seconds)


def asked(environment: SchedulingEnvironment) -> int:
    """Its steps."""
    environment.reset(seed=0)
    steps, over = 0, False
    while not over:
        *_, over, _, _ = environment.step(0)
        steps += 1
    return steps


@pytest.mark.parametrize(
    ("policy", "workload"), [(DRF, "gen:dl2"), (MLFH, "gen:mlfs")], ids=["drf on gen:dl2", "mlf-h on gen:mlfs"]
)
def test_bench_environment(benchmark: BenchmarkFixture, policy: type[Policy], workload: str) -> None:
    """The share that it adds is in `extra_info`: the median over workloads, each run both ways in turn."""
    drawn, added, speed = TrainingWorkloads(workload, ("16x4",), 100, (1.0, 1.0)), [], []
    count, rounds = (WORKLOADS_RUN, ROUNDS) if benchmark.enabled else (1, 1)
    for seed in range(1000, 1000 + count):
        (jobs, cluster), took = drawn.sample(seed), list[tuple[float, float]]()

        def simulation(_: int) -> Simulation:
            return Simulation(jobs, policy(), SimulationSettings(cluster, 300.0, seed))  # noqa: B023 called at once

        task = Task(simulation, lambda seen: AsDecided(policy(), seen), lambda window: window.job_seconds, STATE, 1)
        for _ in range(rounds):
            alone, cycles = timed(lambda: simulated(simulation(0)))
            within, steps = timed(lambda: asked(SchedulingEnvironment(task)))  # noqa: B023
            assert steps == cycles
            took.append((alone, within))
        alone, within = np.min(took, axis=0)
        added.append(within / alone - 1)
        speed.append(steps / within)
    benchmark.extra_info |= {"added": median(added), "cycles_a_second": median(speed)}
    print(f"\nthe environment adds {median(added):.1%} ({min(added):.1%} to {max(added):.1%}), ", end="")
    print(f"{median(speed):,.0f} cycles/s")
    benchmark.pedantic(lambda: asked(SchedulingEnvironment(task)), rounds=1)
