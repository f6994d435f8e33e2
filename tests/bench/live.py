"""The same real jobs under Slurm alone and under slurmplug, policy by policy: `make bench-live`.

Each seed's jobs run once under every policy, on a fresh cluster of 16 GPUs; the seeds side by side. A daemon knows how
another draw of such jobs went. The jobs never are restarted, so that order and stopping are all that a policy can give;
OASiS also keeps jobs waiting until they are admitted. Times are in seconds; intervals are those of the mean over seeds.
`python -m tests.bench.live --simulated` has them in the simulator, where one order has the true run times.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from predictors.arrays import Floats
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.sandbox import ClusterSpec, Sandbox
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.experiment.result import RunResult
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.experiment.summary import summary
from tests.live import real_jobs
from tests.live.daemon_process import daemon_beside
from tests.live.test_submit_plugin import CHECK, site_script

JOBS, GPUS = 80, 16
LOAD = 2.0
"""GPU seconds asked for by the second of arrivals, over the GPUs"""
SECONDS = (0.2, 0.3, 0.5)
"""of an iteration, by kind: a model has its speed"""
SLOT = 10.0
POLICIES = {
    "Slurm alone": "",
    "mlf-h: order only": "mlf-h",
    "mlfs": "mlfs",
    "slaq": "slaq",
    "ml-sjf": "ml-sjf",
    "oasis": "oasis",
}
SETTINGS = f"""
[mode]
default = "act"
admit = "act"
[priority]
top = 1_000_000
[policies.oasis]
slot = {SLOT}
"""
"""The policy's order outweighs fairshare, which else counts about as much."""
ALONE, ADMITS = "Slurm alone", "oasis"
SIMULATED = {
    ALONE: "slurm",
    "srtf with true run times": "srtf",
    **{told: name for told, name in POLICIES.items() if told not in (ALONE, ADMITS)},
}
FIGURES = ("jct_mean", "ended", "deadline_ratio", "accuracy_by_deadline", "gpu_hours", "utility", "stops")
INSENSITIVE = 0.35
"""the share of jobs whose utility does not fall with time (OASiS, section V-A)"""
STEEPNESS = (0.1 / SLOT, 0.27 / SLOT)
"""a second, of the others: of theirs, 0.01 to 1 a slot, the part that a directive may tell"""
TURNED_DOWN = 5 * SLOT
"""seconds without another job that lives, after which who is held will not be admitted"""
PAGE = Path(__file__).parents[2] / "docs" / "results.md"
BEGIN, END = "<!-- made by make bench-live -->", "<!-- end -->"


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
        seconds = SECONDS[kind % len(SECONDS)]
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
    submits = np.sort(rng.uniform(0, span, JOBS)).tolist()
    steepness = np.where(rng.random(JOBS) < INSENSITIVE, 0.0, rng.uniform(*STEEPNESS, JOBS)).round(4).tolist()
    placed = (_at(*each) for each in zip(jobs, submits, steepness, strict=True))
    return Workload("real", tuple(placed), 4, 4)


def _at(job: SimJob, submit: float, steepness: float) -> SimJob:
    """Submitted then; what it is worth goes by its urgency, until its deadline."""
    values = {name: getattr(job, name) for name in job.__dataclass_fields__}
    utility = (10 * job.urgency, steepness, job.deadline)
    return SimJob(**{**values, "submit": submit, "deadline": submit + job.deadline, "utility": utility})


def history(folder: Path) -> Path:
    """The ledger of a daemon that only observed another draw of the jobs, under Slurm alone."""
    ledger = folder / "history.db"
    with Sandbox() as cluster, daemon_beside(cluster) as daemon:
        daemon.start('[mode]\ndefault = "observe"\n')
        real_jobs.run(cluster, workload(0))
        daemon.pass_cycles()
        daemon.signal(signal.SIGTERM)
        shutil.copy(daemon.ledger_path, ledger)
    return ledger


def measured(policy: str, seed: int, *, ledger: Path) -> dict[str, Any]:
    """The figures of one run, and each job's turnaround."""
    name = POLICIES[policy]
    jobs = workload(seed)
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        Sandbox(_spec(policy, Path(folder))) as cluster,
        daemon_beside(cluster) as daemon,
    ):
        if name:
            shutil.copy(ledger, daemon.ledger_path)
            shutil.chown(daemon.ledger_path, cluster.operator)
            daemon.start(SETTINGS, policy=name)
        finished = real_jobs.run(cluster, jobs, turned_down=TURNED_DOWN)
    empty = np.empty(0)
    return _figures(RunResult("real", "4x4", policy, "slurm", bool(name), seed, tuple(finished), empty, 0.0, 0.0))


def simulated(policy: str, seed: int) -> dict[str, Any]:
    """The same figures of a simulation, with a cycle a second as live."""
    chosen = policy_registry.policy(Config.model_validate({"policy": SIMULATED[policy], "interval": 1.0}))
    settings = SimulationSettings("4x4", 1.0, seed, stopping=policy == "mlfs", launcher="slurm")
    return _figures(Simulation(workload(seed), chosen, settings).run())


def _figures(result: RunResult) -> dict[str, Any]:
    figures = {figure: float(value) for figure, value in summary(result).items() if figure in FIGURES}
    return figures | {"turnaround": [job.ended - job.submitted for job in result.finished]}


def _spec(policy: str, folder: Path) -> ClusterSpec:
    """Where a policy admits jobs, the submit plugin holds them."""
    if policy != ADMITS:
        return ClusterSpec()
    folder.chmod(0o755)
    check = folder / "slurmplug.lua"
    check.write_text(CHECK.read_text())
    script = site_script(folder, check)
    script.write_text(script.read_text().replace("slurmplug.check(", "slurmplug.hold("))
    return ClusterSpec(job_submit=script)


def table(told: dict[str, list[dict[str, Any]]]) -> str:
    """A line a policy, seeds in the same order for each."""
    head = (
        "policy", "mean JCT", "against Slurm alone", "worst job", "deadlines met", "accuracy by deadline",
        "GPU hours", "stopped", "utility", "jobs run",
    )  # fmt: skip
    lines = [head, ("---",) * len(head)]
    alone = [np.array(each["turnaround"]) for each in told[ALONE]]
    for name, runs in told.items():
        figures = {figure: np.array([each[figure] for each in runs]) for figure in FIGURES}
        ours = [np.array(each["turnaround"]) for each in runs]
        worst = max(float(np.nanmax(mine / theirs)) for mine, theirs in zip(ours, alone, strict=True))
        # where some never ran, the same jobs are compared
        change = np.array([
            mine[~np.isnan(mine)].mean() / theirs[~np.isnan(mine)].mean() - 1
            for mine, theirs in zip(ours, alone, strict=True)
        ])  # fmt: skip
        lines.append((
            name,
            f"{figures['jct_mean'].mean():.1f} s",
            "" if name == ALONE else f"{_interval(100 * change)}%",
            "" if name == ALONE else f"{worst:.1f} times",
            f"{100 * figures['deadline_ratio'].mean():.0f}%",
            f"{figures['accuracy_by_deadline'].mean():.3f}",
            f"{figures['gpu_hours'].mean():.3f}",
            f"{figures['stops'].mean():.0f}",
            f"{figures['utility'].mean():,.0f}",
            f"{figures['ended'].mean():.0f} of {len(ours[0])}",
        ))  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _interval(values: Floats) -> str:
    if len(values) < 2:
        return f"{values.mean():+.0f}"
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.0f} ± {half:.0f}"


def main(argv: Sequence[str] | None = None) -> None:
    """A line a run, and the table, which goes into docs/results.md where it is of all policies."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--policy", choices=POLICIES, action="append")
    options.add_argument("--json", type=Path, help="keeps the figures of each run; what is in it is not run again")
    options.add_argument("--simulated", action="store_true", help="in the simulator, in a minute")
    asked = options.parse_args(argv)
    if asked.simulated:
        seeds = range(1, asked.seeds + 1)
        print(table({name: [simulated(name, seed) for seed in seeds] for name in SIMULATED}))
        return
    wanted = [name for name in POLICIES if name == ALONE or not asked.policy or name in asked.policy]
    kept = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    values: dict[str, list[dict[str, Any]]] = {}
    seeds = range(1, asked.seeds + 1)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, ThreadPoolExecutor(len(seeds)) as pool:
        known = history(Path(folder))
        for name in wanted:
            runs = partial(measured, name, ledger=known)
            kept[name] = values[name] = kept.get(name) or list(pool.map(runs, seeds))
            for seed, figures in zip(seeds, values[name], strict=True):
                line = ", ".join(f"{figure} {figures[figure]:.3f}" for figure in FIGURES)
                print(f"{name}, seed {seed}: {line}", flush=True)
            if asked.json:
                asked.json.write_text(json.dumps(kept))
    made = table(values)
    print(f"\n{made}")
    if wanted == list(POLICIES):
        head, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(sys.argv[1:])
