"""One queue simulated forward on one sample of run times, job by job and from one end to the next, as plainly as can
be: what the simulation of many rows at once is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats
from slurmplug.forecasting.starts.queues import Running, Sums, Waiting


@dataclass
class _Runs:
    demand: list[float]
    ends: float
    until: float
    group: int


def plain_start_times(
    running: Running, waiting: Waiting, free: Floats, *, sums: Sums | None = None, max_tested: int = 500
) -> Floats:
    """(q, s, j) as `simulation.start_times`."""
    queues, samples, jobs = waiting.seconds.shape
    found = np.full((queues, samples, jobs), np.nan)
    for q in range(queues):
        for s in range(samples):
            found[q, s] = _Queue(running, waiting, free[q], sums, (q, s)).starts(max_tested)
    return found


class _Queue:
    def __init__(
        self, running: Running, waiting: Waiting, free: Floats, sums: Sums | None, which: tuple[int, int]
    ) -> None:
        q, s = which
        self.sums, self.now = sums, 0.0
        self.demand, self.limit = waiting.demand[q].tolist(), waiting.limit[q].tolist()
        self.seconds = waiting.seconds[q, s].tolist()
        self.group = [0] * len(self.limit) if waiting.group is None else waiting.group[q].tolist()
        self.waits = [job for job, demand in enumerate(self.demand) if any(demand)]
        self.found = [math.nan if not any(demand) else math.inf for demand in self.demand]
        self.free = free.tolist()
        of = [0] * len(running.until[q]) if running.group is None else running.group[q].tolist()
        rows = zip(running.demand[q].tolist(), running.ends[q, s].tolist(), running.until[q].tolist(), of, strict=True)
        every = [_Runs(*row) for row in rows]
        self.runs = [each for each in every if any(each.demand) or self._counts(each.group)]
        total = [sum(each) for each in zip(self.free, *(each.demand for each in self.runs), strict=True)]
        self.waits = [job for job in self.waits if self._fits(job, total)]

    def starts(self, max_tested: int) -> list[float]:
        while True:
            self._start_now(max_tested)
            if not self.waits or not self.runs:
                return self.found
            self.now = min(each.ends for each in self.runs)
            for each in self.runs:
                if each.ends == self.now:
                    self.free = [a + b for a, b in zip(self.free, each.demand, strict=True)]
            self.runs = [each for each in self.runs if each.ends > self.now]

    def _start_now(self, max_tested: int) -> None:
        while head := self._first():
            job = head[0]
            if self._fits(job, self.free):
                self._start(job)
            elif (at := self._room(job)) is None:
                self.waits = [each for each in self.waits if self._alike(each) != self._alike(job)]
            else:
                self._backfill(job, at, max_tested)
                return

    def _alike(self, job: int) -> tuple[list[float], float, int]:
        return self.demand[job], self.limit[job], self.group[job]

    def _first(self) -> list[int]:
        return [job for job in self.waits if not self._held_back(job)][:1]

    def _backfill(self, head: int, shadow: float, max_tested: int) -> None:
        spare = [free - need for free, need in zip(self._free_at(shadow), self.demand[head], strict=True)]
        for job in [job for job in self.waits if job > head]:
            outlasts = self.now + self.limit[job] > shadow
            held = sum(self._held_back(each) for each in self.waits)
            if job > head + max_tested + held or self._held_back(job) or not self._fits(job, self.free):
                continue
            if outlasts and not self._fits(job, spare):
                continue
            if outlasts:
                spare = [free - need for free, need in zip(spare, self.demand[job], strict=True)]
            self._start(job)

    def _start(self, job: int) -> None:
        self.found[job] = self.now
        self.waits.remove(job)
        self.free = [free - need for free, need in zip(self.free, self.demand[job], strict=True)]
        ends, until = self.now + self.seconds[job], self.now + self.limit[job]
        self.runs.append(_Runs(self.demand[job], ends, until, self.group[job]))

    def _fits(self, job: int, room: list[float]) -> bool:
        return all(need <= max(free, 0.0) for need, free in zip(self.demand[job], room, strict=True))

    def _free_at(self, time: float) -> list[float]:
        """What the time limits leave free then."""
        ended = [each.demand for each in self.runs if max(each.until, self.now) <= time]
        return [sum(each) for each in zip(self.free, *ended, strict=True)]

    def _room(self, job: int) -> float | None:
        times = sorted(max(each.until, self.now) for each in self.runs)
        return next((time for time in times if self._fits(job, self._free_at(time))), None)

    def _counts(self, group: int) -> bool:
        return self.sums is not None and bool((self.sums.counts[group] >= 0).any())

    def _held_back(self, job: int) -> bool:
        """Whether a sum over what runs is above what it may be at most before the job starts."""
        if self.sums is None:
            return False
        used = [0.0] * self.sums.most.shape[1]
        for each in self.runs:
            for one, amount in zip(
                self.sums.counts[each.group].tolist(), self.sums.amounts[each.group].tolist(), strict=True
            ):
                if one >= 0:
                    used[one] += amount
        return any(a > most for a, most in zip(used, self.sums.most[self.group[job]].tolist(), strict=True))
