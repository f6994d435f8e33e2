"""A workload of the simulator as real jobs on a sandbox: the same curves, told iteration by iteration."""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from predictors.arrays import Floats
from slurmplug.directives.grammar import PREFIX
from slurmplug.sandbox import Sandbox
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.experiment.result import FinishedJob

PROGRAM = """
import json, sys, time
from slurmplug import report
seconds, told = json.loads(sys.argv[1])
began = time.time()
for done, (loss, accuracy) in enumerate(told, 1):
    time.sleep(max(0.0, began + done * seconds - time.time()))
    if report(iteration=done, loss=loss, accuracy=accuracy):
        break
"""


def training(job: SimJob) -> str:
    """The batch script that trains as the job does in a simulation, on the GPUs that it asks for on one node."""
    at = np.arange(1, job.iterations + 1)
    curves = (np.interp(at, job.curve_at, values).round(6).tolist() for values in (job.losses, job.accuracies))
    output = json.dumps([1.0 / job.speed.at(job.gpus, 1), list(zip(*curves, strict=True))])
    return "\n".join(
        [
            "#!/bin/sh",
            f"#SBATCH --job-name={job.name} --gres=gpu:{job.gpus} --time={max(1, round(job.time_limit / 60))}",
            f"#SBATCH --cpus-per-task=1 --mem=1 --output=/dev/null {'--requeue' if job.managed else ''}",
            *([f"{PREFIX} {directives(job)}"] if job.managed else []),
            f"exec {sys.executable} - '{output}' <<'END'{PROGRAM}END\n",
        ]
    )


def directives(job: SimJob) -> str:
    """What stands on its `#PLUG` line; a deadline is told from submission on."""
    options = {
        "max-iterations": job.iterations,
        "type": job.kind,
        "stop": job.stop,
        "allow-downgrade": job.downgrade,
        "urgency": job.urgency,
        "target": f"accuracy>={job.target}" if job.target == job.target else "",
        "deadline": f"{round(job.deadline - job.submit)}s" if job.deadline == job.deadline else "",
        "utility": _utility(job.utility) if job.utility else "",
    }
    return " ".join(f"--{name}={value}" for name, value in options.items() if value != "" and value == value)


def _utility(told: tuple[float, float, float]) -> str:
    """A directive tells of hours."""
    worth, steepness, target = told
    return f"{worth:g},{steepness * 3600:g},{target / 3600:g}"


def run(
    cluster: Sandbox,
    workload: Workload,
    *,
    patience: float = 900.0,
    began: float | None = None,
    turned_down: float = math.inf,
    script: Callable[[SimJob], str] = training,
) -> list[FinishedJob]:
    """Submit each job when its time has come, wait until all have ended, and tell what came of them.

    began: the workload's start, seconds since the epoch; now where it is not given. turned_down: seconds in which
    nobody lives but who is held, after which these count as turned down, and have no end. script: what is submitted.

    Raises:
        WaitTimeout: they take longer than `patience` seconds after the last submission.
    """
    began = time.time() if began is None else began
    ids = []
    for number, job in enumerate(workload.jobs):
        time.sleep(max(0.0, began + job.submit - time.time()))
        user = cluster.researchers[number % len(cluster.researchers)]
        ids.append(cluster.sbatch(user, script(job)))
    left = _left_when_all_is_over(cluster, ids, patience, turned_down)
    listed = ",".join(str(each) for each in ids if each not in left)
    cluster.wait(lambda: len(accounted(cluster, listed)) == len(ids) - len(left), 60, "the accounting to know all ends")
    result = accounted(cluster, listed)
    return [
        _finished(cluster, job, result.get(its_id, ("PENDING", began + job.submit, math.nan, math.nan)), its_id, began)
        for job, its_id in zip(workload.jobs, ids, strict=True)
    ]


def _left_when_all_is_over(cluster: Sandbox, ids: Sequence[int], patience: float, turned_down: float) -> set[int]:
    """The jobs that are still held when nobody else has lived for so long; none where all have ended."""
    alive = ["squeue", "-h", "-t", "PD,R,S,CF,CG", "-j", ",".join(map(str, ids)), "-o", "%A %r"]
    left: set[int] = set()
    lived = time.monotonic()

    def over() -> bool:
        nonlocal left, lived
        rows = [line.split(maxsplit=1) for line in cluster.run("root", alive, check=False).stdout.splitlines()]
        left = {int(job_id) for job_id, _ in rows}
        if not all(reason.startswith("JobHeld") for _, reason in rows):
            lived = time.monotonic()
        return not left or time.monotonic() - lived > turned_down

    cluster.wait(over, timeout=patience, what="all jobs to end")
    return left


def accounted(cluster: Sandbox, listed: str) -> dict[int, tuple[str, float, float, float]]:
    """State, submission, start and end, by job id, of those that have ended."""
    columns = ["sacct", "-nPX", "--allusers", "-o", "JobIDRaw,State,Submit,Start,End", "-j", listed]
    lines = cluster.run("root", columns, env={"SLURM_TIME_FORMAT": "%s"}).stdout.splitlines()
    rows = (line.split("|") for line in lines)
    return {
        int(job_id): (state.split()[0], float(submitted), float(started), float(ended))
        for job_id, state, submitted, started, ended in rows
        if "Unknown" not in (submitted, started, ended)
    }


def _finished(
    cluster: Sandbox, job: SimJob, told: tuple[str, float, float, float], job_id: int, began: float
) -> FinishedJob:
    state, submitted, started, ended = told
    times, iterations = _progress(cluster, job_id)
    ran = not math.isnan(started)
    corners = slice(None) if ran else slice(0)
    return FinishedJob(
        job=job,
        submitted=submitted - began,
        started=started - began,
        ended=ended - began,
        state=state,
        stopped=state == "COMPLETED" and len(iterations) > 0 and iterations[-1] < job.iterations,
        times=np.concatenate([[started - began], times - began, [ended - began]])[corners],
        iterations=np.concatenate([[0.0], iterations, iterations[-1:] if len(iterations) else [0.0]])[corners],
        wait=started - submitted,
        gpu_seconds=job.gpus * (ended - started) if ran else 0.0,
        bandwidth_bytes=0.0,
        preemptions=0,
        migrations=0,
        resizes=0,
    )


def _progress(cluster: Sandbox, job_id: int) -> tuple[Floats, Floats]:
    """When each iteration was reported, and which."""
    lines: Sequence[str] = []
    for path in (cluster.spool / "reports").glob(f"{job_id}.0*.jsonl"):
        lines = path.read_text().splitlines()
    listed = [(line["time"], line["iteration"]) for line in map(json.loads, lines) if "iteration" in line]
    times, iterations = np.array(listed, dtype=float).reshape(-1, 2).T
    return times, iterations
