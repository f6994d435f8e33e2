"""Jobs of logs that tell how long each ran, but not what it trained."""

import re
from dataclasses import dataclass

import numpy as np

from slurmplug.sim.engine.job import SimJob, Speed
from slurmplug.sim.workloads.rows import Row, shown

NAN = float("nan")
_SPAN = re.compile(r"(?:(\d{1,6})-)?(\d{1,9}(?::\d{1,6}){0,2})(?:\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True)
class Recorded:
    """What a log tells of one job; seconds, MiB. A job without GPUs is one of CPUs."""

    name: str
    submit: float
    seconds: float
    gpus: int
    cpus: int = 0
    memory: float = 0.0
    time_limit: float = NAN
    user: str = "user"
    account: str = "account"
    qos: str = "normal"
    partition: str = "gpu"


def job(told: Recorded) -> SimJob:
    """It takes its run time wherever it runs, reports nothing, and carries no directives."""
    return SimJob(
        name=told.name,
        submit=told.submit,
        gpus=told.gpus,
        iterations=1,
        speed=Speed(np.array([max(told.gpus, 1)]), np.array([1]), np.array([1 / told.seconds])),
        user=told.user,
        account=told.account,
        qos=told.qos,
        partition=told.partition,
        cpus=told.cpus,
        memory=told.memory,
        time_limit=told.time_limit,
        managed=False,
    )


def span(row: Row, column: str) -> float:
    """Seconds in Slurm's MINUTES[:SECONDS], HOURS:MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]]; NaN for none.

    Raises:
        BadRow
    """
    text = row.text(column, "")
    if text.upper() in {"", "UNLIMITED", "PARTITION_LIMIT", "NOT_SET", "UNKNOWN", "NONE", "INVALID"}:
        return NAN
    match = _SPAN.fullmatch(text)
    if match is None:
        raise row.bad(column, f"is no span [DAYS-]HOURS:MINUTES:SECONDS: {shown(text)}")
    counts = [int(count) for count in match[2].split(":")]
    if match[1]:
        hours, minutes, seconds = [*counts, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: [0, *counts, 0], 2: [0, *counts], 3: counts}[len(counts)]
    return 86_400.0 * int(match[1] or 0) + 3600.0 * hours + 60.0 * minutes + seconds
