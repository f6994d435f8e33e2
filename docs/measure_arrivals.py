"""Whether jobs that will be submitted later, drawn from earlier days, improve forecasts of starts.

`python -m docs.measure_arrivals LOG.swf.gz [JOBS]`, for an even sample of that many jobs of a log. Each sample of the
run times has the arrivals from one of the fourteen days before, shifted to now. Jobs wait in order of submission, or of
what their users have used (a stand-in for fairshare, by which a later job may be ahead), with EASY backfill.
"""

import heapq
import sys
import time
from bisect import insort
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from predictors.arrays import Floats
from predictors.trials import runtime
from slurmplug.forecasting.starts.queue_history import QueueState
from slurmplug.forecasting.starts.run_time_samples import samples_of
from slurmplug.learning.dataset_files import JobLog, read_job_log
from slurmplug.learning.queue_log import SAMPLES, QueueLog

DAY = 86_400.0
DAYS = 14
HALF_LIFE = 7 * DAY


class Job(NamedTuple):
    """In order of the queue: its user's usage, its number; and its processors, time limit and run time."""

    used: float
    number: int
    units: float
    limit: float
    seconds: float


class Arrival(NamedTuple):
    """When a job is submitted."""

    at: float
    job: Job


class Running(NamedTuple):
    """When it ends, its processors, and when its time limit does."""

    end: float
    units: float
    latest: float


def start_of(
    target: int, running: Sequence[Running], waiting: Sequence[Job], later: Sequence[Arrival], total: float
) -> float:
    """When the job with this number starts, infinite for one that requests more than there is. Times from now on."""
    runs, queue, arrivals, now = list(running), sorted(waiting), list(later)[::-1], 0.0
    heapq.heapify(runs)
    free = total - sum(each.units for each in runs)
    while now < inf:
        shadow, spare, at = inf, inf, 0
        while at < len(queue) and free > 0:
            job = queue[at]
            in_time = now + job.limit <= shadow
            if job.units <= free and (in_time or job.units <= spare):
                if job.number == target:
                    return now
                spare -= 0.0 if in_time else job.units
                free -= job.units
                heapq.heappush(runs, Running(now + job.seconds, job.units, now + job.limit))
                queue.pop(at)
                continue
            if spare == inf:
                shadow, spare = _promise(job, runs, free, now)
            at += 1
        now = min(runs[0].end if runs else inf, arrivals[-1].at if arrivals else inf)
        while runs and runs[0].end <= now:
            free += heapq.heappop(runs).units
        while arrivals and arrivals[-1].at <= now:
            insort(queue, arrivals.pop().job)
    return inf


def _promise(first: Job, runs: Sequence[Running], free: float, now: float) -> tuple[float, float]:
    """When the first job can start by the time limits, and what is then free beside it."""
    for each in sorted(runs, key=lambda run: max(run.latest, now)):
        free += each.units
        if free >= first.units:
            return max(each.latest, now), free - first.units
    return inf, 0.0


class Arrivals(QueueLog):
    """A log whose queues are simulated with what was submitted on an earlier day as if it came again."""

    def waits(self, state: QueueState, random: np.random.Generator, *, fair: bool, arrive: bool) -> list[float]:
        """(samples,) seconds that the submitted job of a queue waits."""
        now, runs, waits = float(self.submit[state.row]), state.running, state.waiting
        remaining = self._drawn_remaining(runs, now - self.start[runs], random)
        seconds = samples_of(self.forecast[waits], self.limit[waits], SAMPLES, random)
        used, found, total = self._used(now, fair=fair), [], float(self.processors(state))
        for sample in range(SAMPLES):
            held = [
                Running(float(remaining[at, sample]), float(self.units[row]), float(self.start[row] + limit) - now)
                for at, (row, limit) in enumerate(zip(runs.tolist(), self.limit[runs].tolist(), strict=True))
            ]
            queue = [self._job(row, float(seconds[at, sample]), used) for at, row in enumerate(waits.tolist())]
            later = self._later(state.row, now, DAY * int(random.integers(1, DAYS + 1)), used) if arrive else []
            found.append(start_of(state.row, held, queue, later, total))
        return found

    def _used(self, now: float, *, fair: bool) -> Floats:
        """(users,) processors x seconds that each has used, an hour of a week ago counting half."""
        ran = np.maximum(np.minimum(self.end, now) - self.start, 0.0) if fair else np.zeros(len(self.end))
        decayed = ran * self.units * 0.5 ** (np.maximum(now - self.end, 0.0) / HALF_LIFE)
        return np.bincount(self.user, decayed).astype(np.float64)

    def _job(self, row: int, seconds: float, used: Floats, number: int | None = None) -> Job:
        units, limit = float(self.units[row]), float(self.limit[row])
        return Job(float(used[self.user[row]]), row if number is None else number, units, limit, max(seconds, 1.0))

    def _later(self, row: int, now: float, shift: float, used: Floats) -> list[Arrival]:
        """What was submitted from so many seconds ago on, as if it were from now on; a job that had not ended takes as
        long as is forecast."""
        first = int(np.searchsorted(self.submit, now - shift, side="right"))
        seconds, others = np.where(self.end <= now, self.end - self.start, self.expected), len(self.submit)
        return [
            Arrival(float(self.submit[each]) + shift - now, self._job(each, float(seconds[each]), used, each + others))
            for each in range(first, row)
        ]


def main() -> None:
    log = read_job_log(Path(sys.argv[1]))
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    kept = np.flatnonzero(np.isfinite(log.waits) & [bool(job.get("cpus")) for job in log.jobs])
    jobs, run_times = [log.jobs[row] for row in kept.tolist()], np.maximum(log.runtimes[kept], 1.0)
    forecast, _ = runtime.replay("stack", jobs, run_times, time.perf_counter)
    queues = Arrivals(JobLog(jobs, log.runtimes[kept], log.waits[kept]), forecast)
    rows = np.unique(np.linspace(len(jobs) // 10, len(jobs) - 1, most).astype(int)).tolist()
    true = log.waits[kept][rows]
    for order, fair in (("submission", False), ("usage", True)):
        for arrive in (False, True):
            random = np.random.default_rng(0)
            made = np.array([queues.waits(queues.state(row), random, fair=fair, arrive=arrive) for row in rows])
            low, middle, high = np.quantile(made, (0.1, 0.5, 0.9), axis=1)
            error, covered = np.abs(middle - true).mean(), np.mean((low <= true) & (true <= high))
            what = "with" if arrive else "without"
            print(f"order of {order}, {what} arrivals: mean absolute error {error:,.0f} s, 80% cover {covered:.0%}")


if __name__ == "__main__":
    main()
