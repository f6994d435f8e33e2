"""Jobs of logs that have the run time of each, but not what it trained."""

import re
from dataclasses import dataclass
from functools import lru_cache
from sys import intern

import numpy as np

from predictors.arrays import Ints
from slurmplug.sim.engine.job import SimJob, Speed
from slurmplug.sim.workloads.rows import Row, quoted

NAN = float("nan")
_DURATION = re.compile(r"(?:(\d{1,6})-)?(\d{1,9}(?::\d{1,6}){0,2})(?:\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True)
class RecordedJob:
    """One job of a log; times in seconds, memory in MiB. A job without GPUs is one of CPUs."""

    name: str
    submit: float
    seconds: float
    gpus: int
    cpus: int = 0
    cpus_requested: int = 0
    memory: float = 0.0
    time_limit: float = NAN
    user: str = "user"
    account: str = "account"
    qos: str = "normal"
    partition: str = "gpu"
    waited: float = NAN
    nodes: int = 0
    gpu_type: str = ""


def job(recorded: RecordedJob) -> SimJob:
    """The simulated job: it takes its recorded run time wherever it runs, reports nothing, and has no directives."""
    return SimJob(
        name=recorded.name,
        submit=recorded.submit,
        gpus=recorded.gpus,
        iterations=1,
        speed=Speed(_one(max(recorded.gpus, 1)), _one(1), np.array([1 / recorded.seconds])),
        user=intern(recorded.user),
        account=intern(recorded.account),
        qos=intern(recorded.qos),
        partition=intern(recorded.partition),
        cpus=recorded.cpus,
        cpus_requested=recorded.cpus_requested,
        memory=recorded.memory,
        time_limit=recorded.time_limit,
        waited=recorded.waited,
        nodes=recorded.nodes,
        gpu_type=intern(recorded.gpu_type),
        managed=False,
    )


@lru_cache(maxsize=1024)
def _one(number: int) -> Ints:
    """The same array for all jobs with that number: a log may have a million."""
    return np.array([number])


def parse_duration(row: Row, column: str) -> float:
    """Seconds in Slurm's MINUTES[:SECONDS], HOURS:MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]]; NaN for none.

    Raises:
        BadRow
    """
    text = row.text(column, "")
    if text.upper() in {"", "UNLIMITED", "PARTITION_LIMIT", "NOT_SET", "UNKNOWN", "NONE", "INVALID"}:
        return NAN
    match = _DURATION.fullmatch(text)
    if match is None:
        raise row.bad(column, f"is no duration [DAYS-]HOURS:MINUTES:SECONDS: {quoted(text)}")
    counts = [int(count) for count in match[2].split(":")]
    if match[1]:
        hours, minutes, seconds = [*counts, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: [0, *counts, 0], 2: [0, *counts], 3: counts}[len(counts)]
    return 86_400.0 * int(match[1] or 0) + 3600.0 * hours + 60.0 * minutes + seconds
