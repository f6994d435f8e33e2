"""One workload of short jobs on a real Slurm with the daemon, and in the simulator: `make fidelity`.

Not among the tests of every run: some of the 40 jobs could start within a tenth of a second of each other, and on a
busy machine another of them comes first; what follows differs by more than is allowed.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from slurmplug import registry
from slurmplug.config import Config
from slurmplug.sandbox import ClusterSpec, Sandbox
from slurmplug.sim.job import SimJob, Speed, Workload
from slurmplug.sim.multifactor import Weights
from slurmplug.sim.outcome import Finished
from slurmplug.sim.run import Settings, Simulation, finished
from slurmplug.sim.slurm_launcher import Settings as LauncherSettings
from tests.live import real_jobs
from tests.live.daemon_process import daemon_beside

JOBS = 40
STARTUP = 0.4
"""seconds from a start, as Slurm tells it, until Python trains"""
WEIGHTS = {"age": 1000.0, "fairshare": 0.0, "job_size": 100.0, "partition": 0.0}
SPEC = ClusterSpec(weights={"Age": 1000, "JobSize": 100})
WITHIN = 0.05
SECOND = 1.0
"""the unit in which Slurm tells submissions, starts and ends"""
POLICY = """
from dataclasses import dataclass

import numpy as np

from policies.plan import Plan


@dataclass(frozen=True)
class Settings:
    pass


class ByUrgency:
    name = "by-urgency"
    needs = frozenset()
    by_events = True

    def __init__(self, settings=None):
        self.settings = settings or Settings()

    def decide(self, snapshot, forecasts, memory):
        return Plan(np.where(snapshot.jobs.managed, snapshot.jobs.urgency, np.nan))
"""


def workload(seed: int) -> Workload:
    """Jobs of 10 to 30 seconds on one to four GPUs, which arrive twice as fast as they can be served."""
    rng = np.random.default_rng(seed)
    submits = np.sort(rng.uniform(0, 45, JOBS))
    urgencies = rng.permutation(np.linspace(0.1, 9.9, JOBS)).round(3)
    at = np.arange(1.0, 101.0)
    return Workload(
        "short",
        tuple(
            SimJob(
                name=f"short-{number}",
                submit=float(submits[number]),
                gpus=int(rng.choice([1, 1, 2, 4])),
                iterations=int(rng.integers(20, 60)),
                startup=STARTUP,
                speed=Speed(np.array([1]), np.array([1]), np.array([2.0])),
                time_limit=300.0,
                curve_at=at,
                losses=1 / at,
                accuracies=1 - 1 / (1 + at),
                urgency=float(urgencies[number]),
                cpus=1,
                memory=1.0,
            )
            for number in range(JOBS)
        ),
        nodes=4,
        gpus_a_node=4,
    )


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "by_urgency.py"
    path.write_text(POLICY)
    for folder in (path, *path.parents[:3]):
        folder.chmod(0o755)
    return f"{path}:ByUrgency"


def test_waits_turnarounds_and_the_order_of_starts_agree(
    special_cluster: Callable[[ClusterSpec], Sandbox], policy: str
) -> None:
    """The simulator looks when the daemon looked: when between two arrivals a cycle falls changes what comes next."""
    cluster, jobs = special_cluster(SPEC), workload(3)
    with daemon_beside(cluster) as daemon:
        daemon.start(policy=policy)
        began = time.time()
        live = real_jobs.run(cluster, jobs, began=began)
        cycles = daemon.query("SELECT finished FROM cycles WHERE finished > ? ORDER BY id", began)
    ours = simulated(jobs, policy, [cycle["finished"] - began for cycle in cycles])
    assert all(job.state == "COMPLETED" for job in (*ours, *live))
    told = {"live": figures(live), "simulated": figures(ours), "starts": alike(live, ours)}
    print(told)
    for name, seconds in figures(live).items():
        assert abs(figures(ours)[name] - seconds) <= max(WITHIN * seconds, SECOND), told
    assert alike(live, ours) >= 1 - WITHIN, told


def simulated(jobs: Workload, policy: str, cycles: Sequence[float]) -> list[Finished]:
    """What comes of the jobs in a simulation whose cycles are at these times."""
    slurm = LauncherSettings(Weights(**WEIGHTS), pace=0.1)
    settings = Settings("4x4x8x4000", interval=1.0, launcher="slurm", slurm=slurm)
    simulation = Simulation(jobs, registry.policy(Config.model_validate({"policy": policy})), settings)
    for at in cycles:
        simulation.port.wait(at)
        simulation.scheduler.run()
    simulation.port.wait(cycles[-1] + 3600.0)
    return [finished(simulation.engine, number) for number in range(len(jobs.jobs))]


def figures(jobs: Any) -> dict[str, float]:
    """Mean seconds that jobs waited, and from submission to end."""
    return {
        "wait": float(np.mean([job.started - job.submitted for job in jobs])),
        "jct": float(np.mean([job.ended - job.submitted for job in jobs])),
    }


def alike(live: Any, simulated: Any) -> float:
    """The rank correlation (Spearman) of the starts: 1 where the order is the same."""
    return float(spearmanr(*([job.started for job in each] for each in (live, simulated))).statistic)


def test_an_order_that_is_turned_round_would_be_seen() -> None:
    first = [_started(float(at)) for at in range(0, 100, 10)]
    assert alike(first, first) == pytest.approx(1)
    assert alike(first, first[::-1]) == pytest.approx(-1)


def _started(at: float) -> Finished:
    empty = np.empty(0)
    job = workload(0).jobs[0]
    return Finished(job, 0.0, at, at, "COMPLETED", False, empty, empty, at, 0.0, 0.0, 0, 0, 0)
