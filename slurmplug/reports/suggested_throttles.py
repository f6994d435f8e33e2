"""More elements of an array at once, where its throttle alone kept them waiting beside idle GPUs; no I/O."""

import heapq
from collections.abc import Mapping, Sequence
from itertools import accumulate

from slurmplug.ledger.suggestion_queries import EndedJob
from slurmplug.ledger.throttled_arrays import Throttled
from slurmplug.reports.ended_groups import Group
from slurmplug.reports.interface import Suggestion

FEWEST_CYCLES = 10
"""in which an array waited for its throttle alone, by which the throttle is judged"""


def judged(group: Group, throttled: Mapping[int, Throttled]) -> Mapping[int, Throttled]:
    """Its arrays that waited for their throttle often enough, by their ids.

    Of elements on several nodes it is not known how many more would have fitted.
    """
    found: dict[int, Throttled] = {}
    for job in group.jobs:
        waited = throttled.get(job.facts.array_id)
        if waited is not None and waited.cycles >= FEWEST_CYCLES and job.facts.nodes == 1:
            found[job.facts.array_id] = waited
    return found


def array_throttle(group: Group, waited: Mapping[int, Throttled]) -> Suggestion | None:
    """As many elements at once as there was room for on average while the last of these arrays waited."""
    few = {array: each for array, each in waited.items() if each.more >= 1.0}
    if not few:
        return None
    jobs = {array: [job for job in group.jobs if job.facts.array_id == array] for array in few}
    last = max(few, key=lambda array: max(job.facts.submit for job in jobs[array]))
    now, wait = _at_once(jobs[last]), few[last]
    better = max(now + 1, min(now + int(wait.more), len(jobs[last])))
    sooner = _done(jobs[last], now) - _done(jobs[last], better)
    idled = sum(min(few[array].gpu_seconds / 3_600.0, group.of(_waited(jobs[array])).gpu_hours) for array in few)
    return group.of([job for each in jobs.values() for job in each]).suggestion(
        "array throttle", now, better, idled,
        waited=wait.seconds, more=wait.more, sooner=sooner,
    )  # fmt: skip


def _at_once(jobs: Sequence[EndedJob]) -> int:
    """The most of these that ran at a time."""
    spans = [(job.facts.start, job.facts.end) for job in jobs]
    changes = [(at, one) for start, end in spans for at, one in ((start, 1), (end, -1)) if at is not None]
    return max(accumulate(one for _, one in sorted(changes)))


def _waited(jobs: Sequence[EndedJob]) -> Sequence[EndedJob]:
    """The elements that did not start at once."""
    return _in_order(jobs)[_at_once(jobs) :]


def _in_order(jobs: Sequence[EndedJob]) -> list[EndedJob]:
    """As they started."""
    return sorted(jobs, key=lambda job: job.facts.start or 0.0)


def _done(jobs: Sequence[EndedJob], at_once: int) -> float:
    """Seconds until these are done if so many run at a time, in the order in which they started."""
    places = [0.0] * at_once
    for job in _in_order(jobs):
        heapq.heapreplace(places, places[0] + job.seconds)
    return max(places)
