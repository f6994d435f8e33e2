"""One workload of short jobs on a real Slurm with the daemon, and in the simulator: the same waits, ends and order.

The simulator is told the submissions, the nominal seconds of each job, when the daemon's cycles were, and what a start
and an end take on this machine. These two are measured meanwhile, by a chain of jobs each of which waits for the one
before, on a node and in a partition of its own: from its accounting, as a site would from its own, and never from the
jobs that are compared.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import spearmanr

from policies.policy import Policy
from slurmplug.commands import main
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.directives.grammar import PREFIX
from slurmplug.sandbox import ClusterSpec, Node, Partition, Sandbox
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.experiment.result import FinishedJob
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings, finished
from slurmplug.sim.slurm.multifactor import Weights
from slurmplug.sim.slurm.settings import LauncherSettings
from tests.live import real_jobs
from tests.live.daemon_process import daemon_beside

JOBS, SEED = 40, 1
WITHIN = 0.05
WEIGHTS: dict[str, Any] = {"age": 1000.0, "fairshare": 0.0, "job_size": 100.0, "partition": 0.0}
SPEC = ClusterSpec(
    nodes=(*(Node(),) * 4, Node(gpus=1)),
    partitions=(Partition("gpu", ("n1", "n2", "n3", "n4")), Partition("probe", ("n5",))),
    weights={"Age": 1000, "JobSize": 100},
    # EASY: one promise, by the time limits as they are. Without, each job is promised a start, at rounded times.
    scheduler=("bf_job_part_count_reserve=1", "bf_resolution=1", "bf_window_linear=1"),
)
BF_INTERVAL = 1.0
"""of the sandbox"""
RATE = 2.0
"""iterations a second"""
PROBES, PROBE_ITERATIONS, FEWEST_PROBES = 150, 4, 20
SECOND = 1.0
"""the unit in which Slurm tells submissions, starts and ends: cut off, half a second on average"""
POLICY = """
from dataclasses import dataclass

import numpy as np

from policies.plan import Plan


@dataclass(frozen=True)
class Settings:
    pass


class ByUrgency:
    name = "by-urgency"
    decides_on = "events"

    def __init__(self, settings=None):
        self.settings = settings or Settings()

    def decide(self, snapshot, forecasts, memory):
        return Plan(np.where(snapshot.jobs.managed, snapshot.jobs.urgency, np.nan))
"""


def workload(seed: int) -> Workload:
    """Jobs of 10 to 30 seconds on one to four GPUs, which arrive within 20 seconds.

    Their time limits are minutes apart, so that backfill sees the same ends wherever its clock is rounded.
    """
    rng = np.random.default_rng(seed)
    submits = np.sort(rng.uniform(0, 20, JOBS))
    urgencies = rng.permutation(np.linspace(0.1, 9.9, JOBS)).round(3)
    limits = rng.permutation(np.arange(1, JOBS + 1)) * 300.0
    gpus, iterations = rng.choice([1, 1, 2, 4], JOBS), rng.integers(20, 60, JOBS)
    return Workload(
        "short",
        tuple(
            _job(
                f"short-{number}",
                int(iterations[number]),
                submit=float(submits[number]),
                gpus=int(gpus[number]),
                time_limit=float(limits[number]),
                urgency=float(urgencies[number]),
            )
            for number in range(JOBS)
        ),
        nodes=4,
        gpus_a_node=4,
    )


def _job(name: str, iterations: int, **fields: Any) -> SimJob:
    """One GPU of those that train as fast on one as on four."""
    at = np.arange(1.0, 101.0)
    values = {
        "speed": Speed(np.array([1]), np.array([1]), np.array([RATE])),
        "curve_at": at,
        "losses": 1 / at,
        "accuracies": 1 - 1 / (1 + at),
        "cpus": 1,
        "memory": 1.0,
        "submit": 0.0,
        "gpus": 1,
    }
    return SimJob(**{**values, "name": name, "iterations": iterations, **fields})


def test_waits_turnarounds_and_the_order_of_starts_agree(special_cluster: Callable[[ClusterSpec], Sandbox]) -> None:
    """The simulator looks when the daemon looked: when between two arrivals a cycle falls changes what comes next."""
    cluster, jobs = special_cluster(SPEC), workload(SEED)
    with daemon_beside(cluster) as daemon:
        path = daemon.config.with_name("by_urgency.py")
        path.write_text(POLICY)
        policy = policy_registry.policy(Config.from_table({"policy": f"{path}:ByUrgency"}))
        daemon.start(policy=f"{path}:ByUrgency")
        probe = probing(cluster)
        began = time.time()
        live = real_jobs.run(cluster, jobs, began=began, script=asleep)
        cycles = daemon.query("SELECT finished FROM cycles WHERE finished > ? ORDER BY id", began)
    launch, release = measured(cluster, probe)
    arrived = tuple(replace(job, submit=one.submitted + SECOND / 2) for job, one in zip(jobs.jobs, live, strict=True))
    ours = simulated(
        replace(jobs, jobs=arrived), policy, [each["finished"] - began for each in cycles], launch, release
    )
    assert all(job.state == "COMPLETED" for job in (*ours, *live))
    values = {"live": figures(live), "simulated": figures(ours), "starts": alike(live, ours)}
    values["seconds"] = {"launch": launch, "release": release}
    print(values)
    for name, seconds in figures(live).items():
        assert figures(ours)[name] == pytest.approx(seconds, rel=WITHIN), values
    assert alike(live, ours) >= 1 - WITHIN, values


def test_a_replay_of_what_sacct_lists_is_like_what_happened(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path
) -> None:
    """Under Slurm alone, with the settings of its slurm.conf: as a site is first shown it, with nothing measured.

    Which of 40 jobs fit beside each other hangs on how late each one starts, which the replay does not know: mean waits
    were seen up to 16% apart in both directions. So the bounds are wide, and the figures are shown.
    """
    spec = replace(SPEC, nodes=SPEC.nodes[:4], partitions=SPEC.partitions[:1])
    cluster, jobs = special_cluster(spec), workload(SEED + 1)
    unmanaged = replace(jobs, jobs=tuple(replace(job, managed=False) for job in jobs.jobs))
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    real_jobs.run(cluster, unmanaged, script=asleep)
    config = tmp_path / "slurmplug.toml"
    config.write_text(f'[slurm]\nconf = "{cluster.layout.slurm_conf}"\n')
    conf = cluster.layout.slurm_conf
    options = (f"--since={since}", f"--slurm-conf={conf}", f"--config={config}", "--json")
    result = CliRunner().invoke(main, ["replay", *options])
    assert result.exit_code == 0, result.output
    made = json.loads(result.output)
    print(made["waits"])
    assert made["waits"]["jobs"] == JOBS
    assert abs(np.log(made["waits"]["replayed_mean"] / made["waits"]["true_mean"])) < np.log(1.5)
    assert made["waits"]["start_rank"] > 0.85


def asleep(job: SimJob) -> str:
    """The batch script that does nothing for as long: a machine with other things to do delays it least."""
    return "\n".join(
        [
            "#!/bin/sh",
            f"#SBATCH --gres=gpu:{job.gpus} --time={round(job.time_limit / 60)} --mem=1 --output=/dev/null",
            *([f"{PREFIX} {real_jobs.directives(job)}"] if job.managed else []),
            f"exec sleep {job.iterations / RATE}\n",
        ]
    )


def probing(cluster: Sandbox) -> int:
    """The job id of a chain of the same programs: an array whose elements wait for each other on the probe's node."""
    probe = asleep(_job("probe", PROBE_ITERATIONS, managed=False, time_limit=300.0))
    options = f"#!/bin/sh\n#SBATCH --partition=probe --array=1-{PROBES}\n"
    return cluster.sbatch(cluster.researchers[0], probe.replace("#!/bin/sh\n", options, 1))


def measured(cluster: Sandbox, probe: int) -> tuple[float, float]:
    """Mean seconds by which the chain's jobs ran longer than they train, and from the end of each to the next start."""
    cluster.run("root", ["scancel", str(probe)])
    columns = ["sacct", "-nPX", "--allusers", "-o", "State,Start,End", "-j", str(probe)]
    lines = cluster.run("root", columns, env={"SLURM_TIME_FORMAT": "%s"}).stdout.splitlines()
    ended = [line.split("|")[1:] for line in lines if line.startswith("COMPLETED|")]
    starts, ends = np.array(sorted(tuple(map(float, times)) for times in ended)).T
    assert len(starts) >= FEWEST_PROBES
    trains = PROBE_ITERATIONS / RATE
    return float((ends - starts).mean() - trains), float((starts[1:] - ends[:-1]).mean())


def simulated(
    jobs: Workload, policy: Policy, cycles: Sequence[float], launch: float, release: float
) -> list[FinishedJob]:
    """What comes of the jobs in a simulation whose cycles are at these times."""
    slurm = LauncherSettings(
        Weights(**WEIGHTS), pace=0.1, bf_interval=BF_INTERVAL, launch_seconds=launch, release_seconds=release
    )
    settings = SimulationSettings("4x4x8x4000", interval=1.0, launcher="slurm", slurm=slurm)
    simulation = Simulation(jobs, policy, settings)
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
    return float(spearmanr([job.started for job in live], [job.started for job in simulated]).statistic)


def test_an_order_that_is_turned_round_would_be_seen() -> None:
    first = [_started(float(at)) for at in range(0, 100, 10)]
    assert alike(first, first) == pytest.approx(1)
    assert alike(first, first[::-1]) == pytest.approx(-1)


def _started(at: float) -> FinishedJob:
    empty = np.empty(0)
    return FinishedJob(workload(0).jobs[0], 0.0, at, at, "COMPLETED", False, empty, empty, at, 0.0, 0.0, 0, 0, 0)
