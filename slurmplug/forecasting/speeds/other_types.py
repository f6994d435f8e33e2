"""How fast jobs train on a type of GPU on which they were not seen, by what was seen of them on other types.

What a kind's jobs do on two types of GPU is never taken for one: they are kinds of their own (`seen_speeds.kind_of`).
From one to the other leads the ratio of their step times, by `predictors.gpu_type_ratio`: that of the kind where its
jobs ran on both, else those of the user's other kinds and what enough other users agree on.
"""

from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from math import log, sqrt
from statistics import median
from typing import TypeAlias

from predictors import influence
from predictors.gpu_type_ratio import KINDS_SPREAD, LogRatio, expected_log_ratio, mean_of_jobs
from slurmplug.forecasting.speeds.paces import Pace
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds, Steps, Whose, typed_kind

MOST_KINDS = 50
"""The kinds, those seen last, whose step times are compared between two types of GPU."""
OF_ITSELF = 0.1
"""Standard deviation of the logarithm of a job's pace on one GPU of a type, by its step time on some."""

_Evidence: TypeAlias = dict[str, dict[str, LogRatio]]
"""By user and kind, the step time on the second of two types relative to that on the first."""


class OtherTypes:
    """The paces of jobs on one GPU of a type, by what was seen of them, or of others of their kind, on other types."""

    def __init__(
        self,
        seen: SeenSpeeds,
        pace_of: Callable[[Whose], Pace | None],
        relative_speed: Callable[[Whose, int], float],
    ) -> None:
        """pace_of: the pace of a kind's jobs on one GPU. relative_speed: a kind's on so many GPUs to that on one."""
        self._seen, self._pace_of, self._relative_speed = seen, pace_of, relative_speed
        self._evidence: dict[tuple[str, str], _Evidence] = {}
        self._ratios: dict[tuple[str, str, str, str], LogRatio] = {}

    def begin(self) -> None:
        """Begin a cycle: ratios are worked out again, where they are asked for."""
        self._evidence.clear()
        self._ratios.clear()

    def of_job(self, kind: str, gpu_type: str, user: str, job: Hashable) -> Pace | None:
        """The pace of a user's job of a kind, without its type of GPU, on one GPU of this type, by what was seen of the
        job itself on others; None where nothing was."""
        paces = {}
        for before in self._seen.gpu_types(kind):
            there = Whose(typed_kind(kind, before), user)
            if before != gpu_type and (steps := self._seen.of_job(there, job)):
                paces[before] = Pace(self._log_step(there, steps), OF_ITSELF)
        return self._from_others(kind, gpu_type, user, paces)

    def of_kind(self, kind: str, gpu_type: str, user: str) -> Pace | None:
        """The pace of a job by what was seen of jobs of its kind on other types of GPU; None for nothing."""
        paces = {}
        for before in self._seen.gpu_types(kind):
            pace = self._pace_of(self._seen.whose(typed_kind(kind, before), user)) if before != gpu_type else None
            if pace is not None:
                paces[before] = pace
        return self._from_others(kind, gpu_type, user, paces)

    def _from_others(self, kind: str, gpu_type: str, user: str, paces: Mapping[str, Pace]) -> Pace | None:
        """The pace on this type, by the paces on other types."""
        if not paces:
            return None
        ratios = {before: self._ratio(user, kind, before, gpu_type) for before in paces}
        found = [
            Pace(pace.log_step + ratios[before].mean, sqrt(pace.spread**2 + ratios[before].variance))
            for before, pace in paces.items()
        ]
        weights = [pace.spread**-2 for pace in found]
        mean = sum(weight * pace.log_step for weight, pace in zip(weights, found, strict=True)) / sum(weights)
        return Pace(mean, min(pace.spread for pace in found))  # they are not independent

    def _log_step(self, whose: Whose, steps: Steps) -> float:
        """The logarithm of the seconds an iteration takes on one GPU, by the latest placement."""
        place, step = next(reversed(steps.items()))
        return log(step * self._relative_speed(whose, place.gpus))

    def _ratio(self, user: str, kind: str, before: str, after: str) -> LogRatio:
        asked = user, kind, before, after
        if asked not in self._ratios:
            every = self._seen_on_both(before, after)
            own = dict(every.get(user, {}))
            others = {other: kinds for other, kinds in every.items() if other != user}
            of_kind = own.pop(kind, None)
            if of_kind is None and (agreed := _agreed({u: k[kind].mean for u, k in others.items() if kind in k})):
                of_kind = mean_of_jobs(agreed)
            votes = _agreed({u: median(each.mean for each in k.values()) for u, k in others.items()})
            self._ratios[asked] = expected_log_ratio(of_kind, [*own.values(), *map(_of_one_kind, votes)])
        return self._ratios[asked]

    def _seen_on_both(self, before: str, after: str) -> _Evidence:
        if before > after:
            return {
                user: {kind: LogRatio(-each.mean, each.variance) for kind, each in kinds.items()}
                for user, kinds in self._seen_on_both(after, before).items()
            }
        if (before, after) not in self._evidence:
            found: _Evidence = {}
            for kind in islice(self._seen.kinds_on_both(before, after), MOST_KINDS):
                first, second = (typed_kind(kind, each) for each in (before, after))
                for user in self._seen.users(first) & self._seen.users(second):
                    found.setdefault(user, {})[kind] = self._compared(user, first, second)
            self._evidence[before, after] = {
                user: {kind: each for kind, each in kinds.items() if each.variance <= KINDS_SPREAD**2}
                for user, kinds in found.items()
            }
        return {user: kinds for user, kinds in self._evidence[before, after].items() if kinds}

    def _compared(self, user: str, first: str, second: str) -> LogRatio:
        """A kind's step time on the second type to that on the first: within jobs that ran on both, else between jobs
        of the user, whose sizes may differ."""
        sides = Whose(first, user), Whose(second, user)
        before, after = (self._seen.jobs_of(each) for each in sides)
        within = [
            self._log_step(sides[1], after[job]) - self._log_step(sides[0], before[job])
            for job in before.keys() & after.keys()
        ]
        if within:
            return mean_of_jobs(within, measured=2 * OF_ITSELF**2)
        paces = [(self._pace_of(each), len(jobs)) for each, jobs in zip(sides, (before, after), strict=True)]
        known = [(pace.log_step, pace.spread**2 / (n + 1)) for pace, n in paces if pace is not None]
        if len(known) < len(paces):
            return LogRatio(0.0, float("inf"))
        return LogRatio(known[1][0] - known[0][0], known[0][1] + known[1][1])


def _agreed(by_user: Mapping[str, float]) -> list[float]:
    """The one value on which enough users agree, where they are enough."""
    return list(influence.agreed("", {user: {"": value} for user, value in by_user.items()}).values())


def _of_one_kind(value: float) -> LogRatio:
    return LogRatio(value, 0.0)
