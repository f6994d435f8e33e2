"""The same real jobs under Slurm alone and under slurmplug, policy by policy: `make bench-live`.

Each seed's jobs run once under every policy, on a fresh cluster of 16 GPUs. The jobs never are restarted, so that order
and stopping are all that a policy can give. Times are in seconds; intervals are those of the mean over seeds.
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from scipy import stats

from predictors.arrays import Floats
from slurmplug.sandbox import Sandbox
from slurmplug.sim.job import SimJob, Speed, Workload
from slurmplug.sim.outcome import RunResult
from slurmplug.sim.summary import summary
from tests.live import real_jobs
from tests.live.daemon_process import daemon_beside

JOBS, GPUS = 40, 16
LOAD = 2.0
"""GPU seconds asked for by the second of arrivals, over the GPUs"""
POLICIES = {
    "slurm": ("", ""),
    "mlfs": ("mlfs", ""),
    "mlfs, order only": ("mlf-h", ""),
    "slaq": ("slaq", ""),
    "ml-sjf": ("ml-sjf", ""),
    "oasis": ("oasis", "[policies.oasis]\nslot = 10.0\n"),
}
FIGURES = ("jct_mean", "deadline_ratio", "accuracy_by_deadline", "gpu_hours")


def workload(seed: int) -> Workload:
    """Jobs of six kinds whose accuracy comes near its end after a part of what their users ask for."""
    rng = np.random.default_rng(seed)
    jobs = []
    for _ in range(JOBS):
        kind = int(rng.integers(6))
        iterations = int(rng.integers(25, 80))
        at = np.arange(1.0, iterations + 1)
        end, half = 0.75 + 0.04 * kind, 2.0 + 1.5 * kind
        accuracy = end * at / (at + half) + rng.normal(0, 0.004, iterations)
        seconds = float(rng.choice([0.2, 0.3, 0.5]))
        gpus = int(rng.choice([1, 1, 2, 4]))
        takes = iterations * seconds
        jobs.append(
            SimJob(
                name=f"kind{kind}",
                kind=f"kind{kind}",
                submit=0.0,
                gpus=gpus,
                iterations=iterations,
                speed=Speed(np.array([1]), np.array([1]), np.array([1 / seconds])),
                time_limit=120.0,
                curve_at=at,
                losses=1 - accuracy,
                accuracies=accuracy,
                target=round(0.93 * end, 3),
                deadline=max(1.1 * takes, float(rng.uniform(20, 120))),
                urgency=float(rng.integers(1, 11)),
                downgrade="target",
            )
        )
    span = sum(job.gpus * job.iterations / job.speed.at(job.gpus, 1) for job in jobs) / GPUS / LOAD
    submits = np.sort(rng.uniform(0, span, JOBS))
    return Workload("real", tuple(_at(job, float(at)) for job, at in zip(jobs, submits, strict=True)), 4, 4)


def _at(job: SimJob, submit: float) -> SimJob:
    told = {name: getattr(job, name) for name in job.__dataclass_fields__}
    return SimJob(**{**told, "submit": submit, "deadline": submit + job.deadline})


def measured(policy: str, seed: int) -> tuple[dict[str, float], Floats]:
    """The figures of one run, and each job's turnaround."""
    name, settings = POLICIES[policy]
    jobs = workload(seed)
    with Sandbox() as cluster, daemon_beside(cluster) as daemon:
        if name:
            daemon.start(settings, policy=name)
        finished = real_jobs.run(cluster, jobs)
    empty = np.empty(0)
    result = RunResult("real", "4x4", policy, "slurm", bool(name), seed, tuple(finished), empty, 0.0, 0.0)
    return summary(result), np.array([job.ended - job.submitted for job in finished])


def main(argv: Sequence[str] | None = None) -> None:
    """A line a policy, as it is measured, and the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--policy", choices=POLICIES, action="append")
    asked = options.parse_args(argv)
    wanted = list(dict.fromkeys(["slurm", *(asked.policy or POLICIES)]))
    told: dict[str, list[tuple[dict[str, float], Floats]]] = {name: [] for name in wanted}
    for seed in range(1, asked.seeds + 1):
        for name in wanted:
            told[name].append(measured(name, seed))
            line = ", ".join(f"{figure} {told[name][-1][0][figure]:.3f}" for figure in FIGURES)
            print(f"seed {seed}, {name}: {line}", flush=True)
    print("\n| policy | mean JCT | against Slurm alone | deadlines | accuracy by deadline | GPU hours | worst job |")
    print("|---|---|---|---|---|---|---|")
    for name in wanted:
        figures = {figure: np.array([each[figure] for each, _ in told[name]]) for figure in FIGURES}
        alone = np.array([each["jct_mean"] for each, _ in told["slurm"]])
        worst = max(float((a / b).max()) for (_, a), (_, b) in zip(told[name], told["slurm"], strict=True))
        print(
            f"| {name} | {figures['jct_mean'].mean():.1f} s | {_interval(100 * (figures['jct_mean'] / alone - 1))}% "
            f"| {100 * figures['deadline_ratio'].mean():.0f}% | {figures['accuracy_by_deadline'].mean():.3f} "
            f"| {figures['gpu_hours'].mean():.3f} | {worst:.1f} times |"
        )


def _interval(values: Floats) -> str:
    if len(values) < 2:
        return f"{values.mean():+.0f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.0f} ± {half:.0f}"


if __name__ == "__main__":
    main(sys.argv[1:])
