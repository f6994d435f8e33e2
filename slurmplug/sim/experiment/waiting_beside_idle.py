"""What share of the waiting passed while as much was idle as the job requested: no shortage explains it.

A job that waits so waits for something else: behind a reservation for a larger job, or for what a log does not say
(limits, holds, times of day, nodes that were down or that are not for it). Counted in all of the cluster, not by nodes.
"""

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats, Ints

_SLACK = 1e-6
_SELDOM = 0.01
"""of the time: what is held no longer than that is not what is held at most, as a log may be a second off"""


@dataclass(frozen=True, eq=False)
class Spans:
    """When each job (n,) was submitted, started and ended, in seconds; NaN where it did not, or that is not known."""

    submitted: Floats
    started: Floats
    ended: Floats


@dataclass(frozen=True, eq=False)
class Held:
    """What all jobs together hold from each of `times` (k,), increasing, until the next."""

    times: Floats
    amount: Floats

    @classmethod
    def by(cls, demand: Floats, spans: Spans) -> "Held":
        """By jobs that hold `demand` (n,) from start to end, since the first submission; k is 1 at least."""
        ran = ~np.isnan(spans.started) & ~np.isnan(spans.ended)
        first = np.nanmin(spans.submitted, initial=np.inf)
        times = np.concatenate([[first if first < np.inf else 0.0], spans.started[ran], spans.ended[ran]])
        changes = np.concatenate([[0.0], demand[ran], -demand[ran]])
        order = np.argsort(times, kind="stable")
        last = np.append(np.diff(times[order]) > 0, True)
        return cls(times[order][last], np.cumsum(changes[order])[last])

    def most(self) -> float:
        """The most that was held, but for what was held for less than a hundredth of the time."""
        lasts = np.diff(self.times)
        if not len(lasts):
            return 0.0
        order = np.argsort(-self.amount[:-1])
        reached = np.cumsum(lasts[order]) >= _SELDOM * lasts.sum()
        return float(self.amount[:-1][order][reached.argmax()])

    def seconds_with(self, room: float, capacity: float, since: Floats, until: Floats) -> Floats:
        """For how much of each span (n,) at least `room` of the capacity was idle."""
        idle = capacity - self.amount[:-1] >= room - _SLACK
        total = np.concatenate([[0.0], np.cumsum(np.diff(self.times) * idle)])
        return np.asarray(np.interp(until, self.times, total) - np.interp(since, self.times, total))


def waiting_beside_idle(gpus: Ints, cpus: Ints, spans: Spans, capacity: tuple[float, float]) -> Floats:
    """Seconds (n,) that each job waited while as many GPUs as it requests were idle, or CPUs where it requests none.

    capacity: GPUs and CPUs of the cluster. A job that did not start counts as 0.
    """
    waited = ~np.isnan(spans.started)
    found = np.zeros(len(gpus))
    of_gpus = gpus > 0
    for demand, those, there in ((gpus, of_gpus, capacity[0]), (cpus, ~of_gpus, capacity[1])):
        if (those & waited).any():
            found[those & waited] = _beside_idle(demand.astype(np.float64), those & waited, spans, there)
    return found


def _beside_idle(demand: Floats, those: Bools, spans: Spans, capacity: float) -> Floats:
    """The seconds that the jobs `those` (n,) waited beside as much idle of one resource, which all of them hold."""
    held = Held.by(demand, spans)
    since, until = spans.submitted[those], spans.started[those]
    sizes, of_size = np.unique(demand[those], return_inverse=True)
    found = np.zeros(len(since))
    for number, size in enumerate(sizes.tolist()):
        here = of_size == number
        found[here] = held.seconds_with(size, capacity, since[here], until[here])
    return found
