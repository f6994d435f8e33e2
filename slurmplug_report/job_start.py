"""When the job started in which this process runs: what lies in the spool from before is of another job with its id.

This runs inside users' programs, so it imports the standard library only, runs on Python 3.8, and never raises.
"""

from __future__ import annotations

import os
import time
from typing import Mapping

CLOCK_DIFFERENCE = 5.0
"""Seconds by which the clocks of a file server, a node and slurmctld may differ."""


def earliest_file_time(environment: Mapping[str, str]) -> float:
    """Files of this run were not written before this time, seconds since the epoch; -inf where that is not known.

    Slurm states a job's start from 23.02 on. In older releases the process of the batch script tells, where it is an
    ancestor of this one; in a step, which may begin long after the job, it is not known.
    """
    stated = environment.get("SLURM_JOB_START_TIME", "")
    if stated.isascii() and stated.isdigit() and len(stated) <= 12:
        return int(stated) - CLOCK_DIFFERENCE
    process = environment.get("SLURM_TASK_PID", "")
    if "SLURM_STEP_ID" in environment or not (process.isascii() and process.isdigit()):
        return float("-inf")
    return _ancestor_start(int(process)) - CLOCK_DIFFERENCE


def _ancestor_start(ancestor: int) -> float:
    """When that process started, by proc(5), seconds since the epoch; -inf where it is none of this one's ancestors."""
    process = os.getpid()
    try:
        while process > 0:
            parent, ticks = _parent_and_start(process)
            if process == ancestor:
                since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)  # in a container /proc/uptime may be another time
                return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")
            process = parent
    except (OSError, ValueError, IndexError):
        pass
    return float("-inf")


def _parent_and_start(process: int) -> tuple[int, int]:
    """The process's parent, and when it started in clock ticks since boot."""
    with open(f"/proc/{process}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[1]), int(fields[19])
