"""What users could ask for instead, by how their own jobs ended, and what that would have gained; no I/O."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil, exp, sqrt

import numpy as np
from scipy.special import stdtrit

from predictors.forecast import Forecast
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds, Whose, kind_of
from slurmplug.forecasting.speeds.speed_tables import SpeedTables
from slurmplug.ledger.suggestion_queries import EndedJob
from slurmplug.ledger.throttled_arrays import Throttled
from slurmplug.reports import suggested_limits, suggested_throttles
from slurmplug.reports.ended_groups import Group, groups_of
from slurmplug.reports.interface import FEWEST_MEASURED, FEWEST_RUNS, Suggestion, Suggestions

CONFIDENCE = 0.9
"""of every interval"""
FEWEST_MEASUREMENTS = 10
"""reports of the use of its GPUs, half a minute apart, by which a job is judged"""
LITTLE_USE = 0.3
"""share of the time up to which GPUs are hardly in use"""
BUSY = 0.8
"""share of the time for which GPUs are in use that are well used"""
SLOWER = 1.1
"""More GPU time for an iteration is suggested against if it is more than so many times as much for sure."""
LONGER = 2.0
"""A smaller number of GPUs is not suggested if a job would take more than so many times as long on it."""


def suggest(jobs: Sequence[EndedJob], seen: SeenSpeeds, throttled: Mapping[int, Throttled]) -> Suggestions:
    """What to change, the most gained first.

    seen: the step times that the speed forecasts are learnt from. throttled: arrays that waited for their throttle
    alone, by their ids.
    """
    groups = groups_of(jobs)
    limits = [group for group in groups if len(group.completed) >= FEWEST_RUNS]
    used = [group for group in groups if len(_measured(group)) >= FEWEST_MEASURED]
    sizes = [each for each in _by_size(groups) if len(each) > 1]
    waited = [(group, arrays) for group in groups if (arrays := suggested_throttles.judged(group, throttled))]
    apart = [(group, runs) for group in groups if (runs := suggested_limits.elements_told_apart(group))]
    found = [*map(suggested_limits.time_limit, limits), *map(_gpus_in_use, used)]
    found += [_size(group, each) for each in sizes for group in each]
    found += [suggested_throttles.array_throttle(*each) for each in waited]
    found += [suggested_limits.array_split(*each) for each in apart]
    scaling, compared = (
        _Scaling(seen, groups),
        {(group.user, group.kind, group.gpus) for each in sizes for group in each},
    )
    learnt = [each for each in groups if (each.user, each.kind, each.gpus) not in compared and scaling.known(each)]
    found += map(scaling.size, learnt)
    return Suggestions(
        jobs=len(jobs),
        groups=len(groups),
        judged={
            "time limit": len(limits),
            "GPUs in use": len(used),
            "size": len(compared) + len(learnt),
            "array throttle": len(waited),
            "array split": len(apart),
        },
        suggestions=sorted(filter(None, found), key=lambda each: -each.gpu_hours),
    )


def _measured(group: Group) -> list[EndedJob]:
    return [job for job in group.jobs if job.gpu_use.measured >= FEWEST_MEASUREMENTS]


def _gpus_in_use(group: Group) -> Suggestion | None:
    """Fewer GPUs, or none that would help, where the job has one and that is hardly in use."""
    measured = _measured(group)
    hours = np.array([job.gpu_hours for job in measured])
    used = np.array([job.gpu_use.shares / job.gpu_use.measured for job in measured])
    share = float((used * hours).sum() / hours.sum())
    if share >= LITTLE_USE:
        return None
    enough = max(1, ceil(group.gpus * share / BUSY))
    better = float(enough) if enough < group.gpus else None
    idle = float(((1.0 - used) * hours).sum())
    return group.of(measured).suggestion("GPUs in use", float(group.gpus), better, idle, share=share)


def _by_size(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups that differ in the number of GPUs alone, with those of their jobs whose pace is known."""
    found: dict[tuple[str, str, tuple[str, ...]], list[Group]] = defaultdict(list)
    for group in groups:
        paced = [job for job in group.jobs if job.pace is not None]
        if len(paced) >= FEWEST_MEASURED:
            types = group.jobs[0].facts.of_gpus.types
            found[group.user, group.kind, types].append(group.of(paced))
    return list(found.values())


def _size(group: Group, others: Sequence[Group]) -> Suggestion | None:
    """The smaller number of GPUs on which an iteration takes the least GPU time, if that is less for sure, and the job
    would not take much longer."""
    best: Suggestion | None = None
    for other in others:
        if other.gpus >= group.gpus:
            continue
        more, low, high = _ratio(_gpu_seconds(group), _gpu_seconds(other))
        as_long = group.gpus / other.gpus / more
        if low > SLOWER and as_long <= LONGER and (best is None or more > best.because["gpu_time"]):
            best = group.suggestion(
                "size", float(group.gpus), float(other.gpus), group.gpu_hours * (1.0 - 1.0 / more),
                gpu_time=more, gpu_time_low=low, gpu_time_high=high, times_as_long=as_long,
            )  # fmt: skip
    return best


class _Scaling:
    """How kinds of jobs scale by the speed forecasts, for groups that ran on one number of GPUs alone."""

    def __init__(self, seen: SeenSpeeds, groups: Sequence[Group]) -> None:
        self._seen, self._tables = seen, SpeedTables(seen)
        self._a_node = max((ceil(j.gpus / max(j.facts.nodes, 1)) for group in groups for j in group.jobs), default=1)

    def known(self, group: Group) -> bool:
        """Whether jobs of the kind were seen on this number of GPUs or more, and the same ones on fewer."""
        return len(self._counts(group)) > 0

    def _whose(self, group: Group) -> Whose:
        last = group.jobs[-1]
        kind = kind_of(last.type, group.user, last.facts.name, last.facts.of_gpus.only_type)
        return self._seen.whose(kind, group.user)

    def _counts(self, group: Group) -> list[int]:
        """The smaller numbers of GPUs between those on which the kind was seen."""
        scaling = self._seen.scaling(self._whose(group))
        counts = [place.gpus for steps in scaling.values() for place in steps]
        return [*range(min(counts), group.gpus)] if counts and max(counts) >= group.gpus else []

    def size(self, group: Group) -> Suggestion | None:
        """As `_size`, by the forecast."""
        self._tables.begin(np.arange(1.0, group.gpus + 1.0), self._a_node)
        whose = self._whose(group)
        table = self._tables[self._tables.by_placement(whose, self._tables.tight(group.gpus))]
        faster = Forecast(table, np.full(len(table), "speed")).quantile(
            [(1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2]
        )
        best: Suggestion | None = None
        for gpus in self._counts(group):
            low, more, high = (faster[gpus - 1] * group.gpus / gpus).tolist()
            as_long = group.gpus / gpus / more
            if low > SLOWER and as_long <= LONGER and (best is None or more > best.because["gpu_time"]):
                best = group.suggestion(
                    "size", float(group.gpus), float(gpus), group.gpu_hours * (1.0 - 1.0 / more),
                    gpu_time=more, gpu_time_low=low, gpu_time_high=high, times_as_long=as_long,
                    forecast_from=float(len(self._seen.scaling(whose))),
                )  # fmt: skip
        return best


def _gpu_seconds(group: Group) -> list[float]:
    """GPU seconds an iteration, by job."""
    return [job.gpus * job.pace for job in group.jobs if job.pace is not None]


def _ratio(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """How many times as much the first are, in the geometric mean, and its interval (Welch's t test of the logarithms,
    Biometrika 34, 1947)."""
    logs = [np.log(each) for each in (one, other)]
    difference = float(logs[0].mean() - logs[1].mean())
    variances = [float(each.var(ddof=1)) / len(each) for each in logs]
    total = sum(variances)
    if not total:
        return (exp(difference),) * 3
    freedom = total**2 / sum(v**2 / (len(each) - 1) for v, each in zip(variances, logs, strict=True))
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * sqrt(total)
    return exp(difference), exp(difference - half), exp(difference + half)
