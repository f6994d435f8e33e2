"""Mean turnarounds where nodes have GPUs of unlike types and no job requests one.

`python -m docs.measure_types DATA POLICY...` runs two workloads: jobs of Gavel's trace, as they are, with arrivals and
curves drawn by seed; and Pollux's, whose jobs are elastic. By what factor each kind is faster on each type is measured
(Gavel's throughputs, Sia's step times).
"""

import csv
import gzip
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.experiment import summary
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load, synthetic
from slurmplug.sim.workloads.directives import with_directives

GAVEL, GAVEL_CLUSTER = ("v100", "p100", "k80"), "6x4:v100+6x4:p100+6x4:k80"
SIA, SIA_CLUSTER = ("aws", "rtx", "dgx"), "6x4:aws+5x4:rtx+5x4:dgx"
JOBS, GPUS, ITERATIONS = 150, 72, 40
MOST_GPUS, LONGEST = 16, 12 * 3600.0
"""of a job of Gavel's trace: larger ones are left out, longer ones end then"""
LEAST_FACTOR = 0.05
"""on a type that a kind was not measured on, or does not fit into"""
POLLUX = (1, 3, 5, 7)
SETTINGS = {"slaq": {"speed": "forecast", "restart": 30.0}}


def rows(path: Path) -> Iterator[Mapping[str, str]]:
    """The rows of a table, compressed or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from csv.DictReader(file)


def gavel(data: Path, seed: int) -> Workload:
    """Jobs drawn from Gavel's trace, that would use all GPUs if each ran on its mean type; arrivals are uniform."""
    rng = np.random.default_rng([7, seed])
    rates: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for row in rows(data / "profiles/gavel_throughput.csv"):
        rates[row["job_type"]][row["gpu_type"], int(row["num_gpus"])] = float(row["steps_per_s"])
    trace = [r for r in rows(data / "workloads/gavel_philly_vc_seed0.csv.gz") if int(r["scale_factor"]) <= MOST_GPUS]
    drawn, work = [], 0.0
    for number, at in enumerate(rng.choice(len(trace), JOBS, replace=False)):
        row = trace[at]
        gpus, of_kind = int(row["scale_factor"]), rates[row["job_type"]]
        counts = sorted(count for kind, count in of_kind if kind == "v100" and of_kind[kind, count] > 0)
        near = max(count for count in counts if count <= gpus)
        full = of_kind["v100", near]
        seconds = min(int(row["total_steps"]) / full, LONGEST)
        points = [(count, math.ceil(count / 4), of_kind["v100", count]) for count in counts]
        apart = [(count, of_kind.get(("v100_unconsolidated", count), 0.0)) for count in counts if count > 1]
        points = sorted([*points, *((count, count, rate) for count, rate in apart if rate > 0)], key=counts_of)
        on, nodes, rate = map(np.array, zip(*points, strict=True))
        factors = {kind: max(of_kind.get((kind, near), 0.0) / full, LEAST_FACTOR) for kind in GAVEL}
        curves = synthetic.library(ITERATIONS)
        losses, accuracies = curves[int(rng.integers(len(curves)))]
        job = SimJob(
            name=f"j{number}", submit=0.0, gpus=gpus, iterations=ITERATIONS, kind=row["job_type"], params=25e6,
            speed=Speed(on, nodes, rate * (ITERATIONS / seconds / full)), type_speeds=factors, user=f"user{number % 8}",
            curve_at=synthetic.sampled(ITERATIONS), losses=losses, accuracies=accuracies,
        )  # fmt: skip
        drawn.append(job)
        work += gpus * seconds / float(np.mean([min(factor, 1.0) for factor in factors.values()]))
    arrivals = np.sort(rng.uniform(0, work / GPUS, JOBS)).tolist()
    jobs = [replace(job, submit=arrival) for job, arrival in zip(drawn, arrivals, strict=True)]
    return Workload("gavel", with_directives(jobs, seed, gpus_a_node=4), 18, 4)


def counts_of(point: tuple[int, int, float]) -> tuple[int, bool]:
    """The GPUs of a measured point; those on the fewest nodes first."""
    return point[0], point[1] > math.ceil(point[0] / 4)


def pollux(data: Path, seed: int) -> Workload:
    """A workload of Pollux, with factors by type that are medians of Sia's step times on one GPU."""
    steps: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in rows(data / "profiles/throughput_placements.csv.gz"):
        if row["placement"] == "1":
            steps[row["model"], row["gpu_type"]][int(row["local_bsz"])] = float(row["step_time_s"])
    path = data / f"workloads/pollux/workloads/workload-{POLLUX[seed]}.csv"
    given = load.load(f"pollux:{path}", data=data / "profiles")

    def factor(model: str, kind: str) -> float:
        there, here = steps[model, SIA[0]], steps[model, kind]
        return float(np.median([there[size] / here[size] for size in there.keys() & here.keys()] or [1.0]))

    factors = {model: {kind: factor(model, kind) for kind in SIA} for model in {job.kind for job in given.jobs}}
    return replace(given, jobs=tuple(replace(job, type_speeds=factors[job.kind]) for job in given.jobs))


def run(jobs: Workload, cluster: str, policy: str, seed: int, interval: float) -> str:
    """Mean JCT in seconds and the largest slowdown."""
    given = {"policy": policy, "interval": interval, "policies": {policy: SETTINGS.get(policy, {})}}
    chosen = policy_registry.policy(Config.from_table(given))
    settings = SimulationSettings(cluster, interval, seed, stopping=policy == "mlfs")
    figures = summary.summary(Simulation(jobs, chosen, settings).run())
    return f"{figures['jct_mean']:.0f} s, worst {figures['slowdown_max']:.1f} times"


def main(data: Path, policies: list[str]) -> None:
    """Print each run."""
    for policy in policies:
        for seed in range(6):
            print("gavel", policy, seed, run(gavel(data, seed), GAVEL_CLUSTER, policy, seed, 300.0), flush=True)
        for seed in range(len(POLLUX)):
            print("pollux", policy, seed, run(pollux(data, seed), SIA_CLUSTER, policy, seed, 60.0), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
