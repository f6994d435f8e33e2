"""Deadlines are kept: a job is admitted if all can end in time, on as few GPUs as that takes."""

from dataclasses import dataclass

import numpy as np

from policies.baselines.optimus import iterations_left
from policies.marginal_gain.speeds import MedianSpeeds
from policies.placement.allocation import (
    elastic,
    gang_gpus,
    grow_elastic,
    leftover_gpus,
    movable,
    queue_order,
    startable,
)
from policies.placement.demand import remaining_seconds
from policies.placement.plans import plan_allocation
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecasts, Need

_ROUNDING = 1e-9


@dataclass(frozen=True)
class ElasticFlowSettings:
    """slot: seconds of a slot of the plan. slots: how many there are at most; the last one has all time beyond.
    margin: by what share work is planned to be more than forecast."""

    slot: float = 300.0
    slots: int = 500
    margin: float = 0.2

    def __post_init__(self) -> None:
        if not 1 <= self.slot < np.inf:
            raise ValueError(f"slot is at least 1 second, not {self.slot}")
        if not 1 <= self.slots <= 10_000:
            raise ValueError(f"slots is from 1 to 10000, not {self.slots}")
        if not 0 <= self.margin < np.inf:
            raise ValueError(f"margin is at least 0, not {self.margin}")


class ElasticFlow(Policy):
    """Admission by deadline, minimum satisfactory shares, then marginal returns (Gu et al.: ElasticFlow, ASPLOS 2023).

    The minimum satisfactory share of a job is the fewest GPUs that end it by its deadline, where it has in each slot
    that share or, if they are fewer, those that jobs with earlier deadlines leave: progressive filling. A new job is
    admitted if it and all admitted jobs, in order of deadline, have such a share (admission control). In the present
    slot each has its share, and GPUs left over go one by one where they save most GPU time of the plans (resource
    allocation). Speeds are forecast by GPUs, iterations those to the declared maximum.

    Ours: a job that is not admitted, or has no deadline, is not dropped: it runs on what admitted ones leave, the
    shortest first, at its minimum; it is not offered again. Sizes need not be powers of two. As forecasts err, where
    the paper has profiles, there is a margin, and an admitted job that can no longer end in time takes what it can get
    until its deadline, and bars no other job. Left out: buddy allocation (`allocate` places jobs).
    """

    name = "elasticflow"
    needs: frozenset[Need] = frozenset({"speed", "rigid speed", "remaining"})

    def __init__(self, settings: ElasticFlowSettings | None = None) -> None:
        self.settings: ElasticFlowSettings = settings or ElasticFlowSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Admit new jobs, give the admitted ones their shares, and share out what is left."""
        jobs = snapshot.jobs
        training = _Training(snapshot, forecasts, self.settings.margin)
        judged, admitted = _remembered(snapshot, memory)
        offered = jobs.managed & (jobs.gpus > 0) & ~np.isnan(jobs.deadline) & (movable(jobs) | startable(jobs))
        shares = Shares(snapshot, training, self.settings, admitted & offered)
        for row in queue_order(jobs).tolist():
            if offered[row] and not judged[row]:
                with_it = admitted & offered
                with_it[row] = True
                tried = Shares(snapshot, training, self.settings, with_it)
                if tried.late <= shares.late:
                    shares, admitted[row] = tried, True
        first = shares.now > 0
        order = queue_order(jobs, ~first, np.where(first, jobs.deadline, training.seconds))
        smallest = np.where(elastic(jobs), jobs.gpus_min, jobs.gpus)
        wanted = gang_gpus(snapshot, order, preempt=True, requested=np.where(first, shares.now, smallest))
        planned = np.where(shares.share > 0, shares.share, smallest).tolist()

        def saved(row: int, gpus: int) -> float:
            rates, plan = training.rates(row), planned[row]
            return float((rates[gpus + 1] - rates[gpus]) * plan / rates[plan]) if rates[plan] > 0 else 0.0

        wanted = grow_elastic(snapshot, wanted, saved)
        return plan_allocation(snapshot, order, wanted, memory=_to_memory(jobs, judged | offered, admitted))

    def until(self, snapshot: Snapshot) -> float:
        """The next slot, in which the plan may have other shares."""
        return float(np.floor(snapshot.now / self.settings.slot) + 1) * self.settings.slot


class _Training:
    """What is left of each job, and how fast it is on each number of GPUs."""

    def __init__(self, snapshot: Snapshot, forecasts: Forecasts, margin: float) -> None:
        jobs = self._jobs = snapshot.jobs
        self._speeds = MedianSpeeds.of(forecasts.speed)
        self._rates: dict[int, Floats] = {}
        iterations = iterations_left(snapshot, forecasts, self._speeds, begun=False)
        self._scales = elastic(jobs) & (iterations > 0)
        self.seconds: Floats = remaining_seconds(snapshot, forecasts.remaining)
        """(n,) left on the GPUs that each has or requested"""
        self.work: Floats = np.where(self._scales, iterations, self.seconds) * (1 + margin)
        """(n,) left, in iterations; of a job whose size or speed is not known to change, in seconds"""

    def rates(self, row: int) -> Floats:
        """(its most GPUs + 2,) work a second on 0, 1, ... GPUs, of which it uses only those that make it faster."""
        if row not in self._rates:
            most, least = int(self._jobs.gpus_max[row]) + 1, int(self._jobs.gpus_min[row])
            count = np.arange(most + 1)
            if self._scales[row]:
                usable = np.where((count >= least) & (count < most), self._speeds.up_to(row, most), 0.0)
                self._rates[row] = np.maximum.accumulate(usable)
            else:
                self._rates[row] = (count >= self._jobs.gpus[row]).astype(np.float64)
        return self._rates[row]

    def sizes(self, row: int) -> Ints:
        """The numbers of GPUs that it may have, ascending."""
        if not self._scales[row]:
            return self._jobs.gpus[[row]]
        return np.arange(self._jobs.gpus_min[row], self._jobs.gpus_max[row] + 1)


class Shares:
    """The minimum satisfactory shares of the admitted jobs, by progressive filling in order of deadline (algorithm 1).

    share, now (n,): its GPUs, and those of the present slot, 0 where earlier deadlines leave none. late: the jobs that
    cannot end by their deadline; each has its largest size.
    """

    def __init__(self, snapshot: Snapshot, training: _Training, settings: ElasticFlowSettings, admitted: Bools) -> None:
        jobs = snapshot.jobs
        self.share, self.now = np.zeros(len(jobs), dtype=np.int64), np.zeros(len(jobs), dtype=np.int64)
        self.late: set[int] = set()
        others = gang_gpus(snapshot, np.flatnonzero(~jobs.managed), preempt=True)
        self._free = np.full(settings.slots, leftover_gpus(snapshot, others), dtype=np.int64)
        rows = np.flatnonzero(admitted)
        for row in rows[np.argsort(jobs.deadline[rows], kind="stable")].tolist():
            self._fill(row, training, _slot_seconds(jobs.deadline[row] - snapshot.now, settings))

    def _fill(self, row: int, training: _Training, seconds: Floats) -> None:
        rates, sizes, work = training.rates(row), training.sizes(row), training.work[row] * (1 - _ROUNDING)
        used = np.minimum(sizes[:, None], self._free[: len(seconds)])
        rate = rates[used]
        done = np.cumsum(rate * seconds, axis=1)
        enough = np.flatnonzero(done[:, -1] >= work) if len(seconds) else np.zeros(0, dtype=np.int64)
        if not len(enough):
            self.late.add(row)
        if not len(seconds):
            return
        chosen = enough[0] if len(enough) else -1
        begun = np.append(0.0, done[chosen, :-1]) < work
        used_then = np.where((rate[chosen] > 0) & begun, used[chosen], 0)
        self._free[: len(seconds)] -= used_then
        self.share[row], self.now[row] = sizes[chosen], used_then[0]


def _slot_seconds(left: float, settings: ElasticFlowSettings) -> Floats:
    """(slots,) seconds of each slot until a deadline; the last slot of a plan has all that is beyond it."""
    count = min(max(int(np.ceil(left / settings.slot)), 0), settings.slots)
    seconds = np.full(count, settings.slot)
    if count:
        seconds[-1] = left - settings.slot * (count - 1)
    return seconds


def _remembered(snapshot: Snapshot, memory: Memory) -> tuple[Bools, Bools]:
    """(n,) whether each job was judged before, and whether it was admitted."""
    names = ("job_id", "first_submit", "admitted")
    columns = [memory[name].tolist() for name in names] if all(name in memory for name in names) else [[]] * 3
    known = {(job, submit): bool(admitted) for job, submit, admitted in zip(*columns, strict=True)}
    found = [known.get((key.job_id, key.first_submit)) for key in snapshot.jobs.keys]
    return np.array([each is not None for each in found], dtype=bool), np.array(found, dtype=bool)


def _to_memory(jobs: Jobs, judged: Bools, admitted: Bools) -> Memory:
    rows = np.flatnonzero(judged).tolist()
    keys = np.array([(jobs.keys[row].job_id, jobs.keys[row].first_submit) for row in rows], dtype=np.int64)
    ids = keys.reshape(-1, 2)
    return {"job_id": ids[:, 0], "first_submit": ids[:, 1], "admitted": admitted[rows]}
