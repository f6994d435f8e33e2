"""Shorter time limits, for all jobs of a group or for those elements of its arrays that are told apart; no I/O."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil

from slurmplug.cluster.parse.jobs import task_ranges
from slurmplug.ledger.suggestion_queries import EndedJob
from slurmplug.reports.ended_groups import Group
from slurmplug.reports.interface import FEWEST_MEASURED, FEWEST_RUNS, Suggestion

ROOM = 1.2
"""A suggested time limit is so many times the longest that was seen or forecast, and then rounded up,"""
TOO_LONG = 2.0
"""and one that is in use is too long from so many times that on."""
_ROUNDED: Sequence[tuple[float, float]] = ((4 * 3_600.0, 900.0), (48 * 3_600.0, 3_600.0), (float("inf"), 21_600.0))
"""below the first number of seconds, a time limit is rounded up to a multiple of the second"""


def time_limit(group: Group) -> Suggestion | None:
    """A shorter one than that of the last job, which no job of the group has exceeded, however it ended."""
    last = group.jobs[-1]
    limit, timed_out = last.facts.time_limit, any(job.facts.state == "TIMEOUT" for job in group.jobs)
    if limit is None or last.longest is None or timed_out:
        return None
    longest = max(job.seconds for job in group.jobs)
    better = _with_room(max(longest, last.longest))
    if limit < TOO_LONG * better:
        return None
    return group.suggestion(
        "time limit", limit, better, _reserved(group.jobs, better), longest=longest, forecast_high=last.longest,
        completed=len(group.completed),
    )  # fmt: skip


def elements_told_apart(group: Group) -> Mapping[int, Sequence[EndedJob]]:
    """The elements of its last array that have run often enough to say how long each takes, by their indices; empty
    where these have completed too seldom together."""
    last = next((job.facts.array_id for job in reversed(group.jobs) if job.facts.array_task >= 0), 0)
    runs: dict[int, list[EndedJob]] = defaultdict(list)
    for job in group.jobs:
        if job.facts.array_task >= 0:
            runs[job.facts.array_task].append(job)
    completed = {task: len(group.of(jobs).completed) for task, jobs in runs.items()}
    enough = {
        task: jobs
        for task, jobs in runs.items()
        if completed[task] >= FEWEST_MEASURED and any(job.facts.array_id == last for job in jobs)
    }
    return enough if sum(completed[task] for task in enough) >= FEWEST_RUNS else {}


def array_split(group: Group, runs: Mapping[int, Sequence[EndedJob]]) -> Suggestion | None:
    """A time limit of their own for the elements of its arrays that have always been far shorter than the longest.

    runs: of the elements that are told apart. The short ones are chosen so that the most is gained.
    """
    limit = group.jobs[-1].facts.time_limit
    longest = {task: max(job.seconds for job in jobs) for task, jobs in runs.items()}
    in_time = {task: not any(job.facts.state == "TIMEOUT" for job in jobs) for task, jobs in runs.items()}
    order = sorted(runs, key=lambda task: (not in_time[task], longest[task]))
    best: Suggestion | None = None
    for count in range(1, len(order)):
        short = order[:count]
        better = _with_room(longest[short[-1]])
        far_longer = not in_time[order[-1]] or _with_room(longest[order[-1]]) >= TOO_LONG * better
        if limit is None or not in_time[short[-1]] or not far_longer or limit < TOO_LONG * better:
            continue
        jobs = [job for task in short for job in runs[task]]
        gained = _reserved(jobs, better)
        if best is None or gained > best.gpu_hours:
            best = group.of(jobs).suggestion(
                "array split", limit, better, gained, task_ranges(sorted(short)),
                longest=longest[short[-1]], longest_of_others=max(longest[task] for task in order[count:]),
            )  # fmt: skip
    return best


def _reserved(jobs: Sequence[EndedJob], better: float) -> float:
    """GPU hours that the time limits of these jobs reserved beyond a better one."""
    had = [(job.facts.time_limit, job.gpus) for job in jobs]
    return sum((limit - better) * gpus for limit, gpus in had if limit is not None and limit > better) / 3_600.0


def _with_room(seconds: float) -> float:
    multiple = next(each for most, each in _ROUNDED if ROOM * seconds < most)
    return ceil(ROOM * seconds / multiple) * multiple
