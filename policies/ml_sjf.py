"""ML-SJF: shortest predicted job first (Sherman, Lal, Choi, Pagarkar)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from policies.placement.allocation import queue_order
from policies.placement.demand import total_seconds
from policies.placement.plans import plan_in_order
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Floats, Ints, Texts
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class MLSJFSettings:
    """estimate: the run time that is assumed. "forecast" is ML-SJF; the others are the paper's baselines: "random" a
    random number for each job, "type" the mean of the jobs of its type so far ("hard-coded").

    mix: how strongly heavy jobs of one type are kept apart; 0 is the paper's order. A job of a heavy type, with at
    least the mean run time of all pending jobs, counts as exp(mix (share - due)) times as long: share is its
    type's share of the GPUs, due its type's share of the pending work. So heavy jobs run beside light ones of other
    types.
    """

    estimate: Literal["forecast", "random", "type"] = "forecast"
    mix: float = 0.0

    def __post_init__(self) -> None:
        if self.estimate not in ("forecast", "random", "type"):
            raise ValueError(f"estimate is forecast, random or type, not {self.estimate!r}")
        if not self.mix >= 0:
            raise ValueError(f"mix is a number not less than 0, not {self.mix}")


class MLSJF(Policy):
    """The job with the shortest predicted run time starts first, and runs to its end.

    Of the paper it takes the order (section 2.1), the run time predicted from the features at submission (section 5;
    `predictors.runtime`, support vector regression among others), and its baselines: a random number and the type's
    mean. The paper's finding that an order by run time runs equal heavy jobs side by side (section 6) led to the mix
    term, which is an addition. It leaves out the paper's agents: jobs are placed where they fit. A job of unknown run
    time comes last.
    """

    name = "ml-sjf"
    needs: frozenset[Need] = frozenset({"total"})
    decides_on = "events"

    def __init__(self, settings: MLSJFSettings | None = None) -> None:
        self.settings: MLSJFSettings = settings or MLSJFSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Rank by estimated run time, and start the shortest jobs."""
        jobs = snapshot.jobs
        seconds = total_seconds(jobs, forecasts.total)
        statistics = memory
        if self.settings.estimate == "random":
            seconds = np.array([random_estimate(key, snapshot.seed) for key in jobs.keys], dtype=np.float64)
        elif self.settings.estimate == "type":
            statistics = _type_statistics(jobs, seconds, memory)
            seconds = _mean_of_type(jobs, statistics)
        order = queue_order(jobs, seconds)
        if self.settings.mix > 0:
            order = mixed_order(jobs, order, seconds, self.settings.mix, float(snapshot.nodes.capacity[:, 0].sum()))
        plan = plan_in_order(snapshot, order, memory=statistics)
        return Plan(plan.score, {"estimate": seconds}, plan.actions, plan.memory)


def random_estimate(key: JobKey, seed: int) -> float:
    """A random number from 0 to 1, always the same for a job and seed."""
    return float(np.random.default_rng([seed, *key[1:]]).random())


def mixed_order(jobs: Jobs, order: Ints, seconds: Floats, mix: float, gpus: float) -> Ints:
    """The order with heavy jobs of one type kept apart: one by one, of the first job of each type the shortest.

    A type's share of all `gpus` is that of running jobs and of those ordered before, the oldest leaving when full.
    """
    runs, managed = jobs.running[order], jobs.managed[order]
    waits = order[~runs & managed]
    if not len(waits):
        return order
    need = np.maximum(jobs.gpus, 1).astype(np.float64)
    kinds, kind_of = np.unique(jobs.kind, return_inverse=True)
    taken = np.bincount(kind_of[order[runs]], weights=need[order[runs]], minlength=len(kinds))
    work = np.nan_to_num(seconds[waits]) * need[waits]
    due = np.bincount(kind_of[waits], weights=work, minlength=len(kinds)) / max(float(work.sum()), 1e-12)
    number = np.maximum(np.bincount(kind_of[waits], minlength=len(kinds)), 1)
    heavy = np.bincount(kind_of[waits], weights=np.nan_to_num(seconds[waits]), minlength=len(kinds)) / number
    heavy = heavy >= np.nan_to_num(seconds[waits]).mean()
    queues = [waits[kind_of[waits] == kind] for kind in range(len(kinds))]
    at = np.zeros(len(kinds), dtype=np.int64)
    chosen: list[int] = []
    alongside = order[runs].tolist()  # jobs that the next one runs beside: the oldest leaves when all GPUs are taken
    for _ in range(len(waits)):
        while alongside and taken.sum() + 1 > gpus:
            oldest = alongside.pop(0)
            taken[kind_of[oldest]] -= need[oldest]
        heads = [(kind, int(queue[at[kind]])) for kind, queue in enumerate(queues) if at[kind] < len(queue)]

        def effective_length(head: tuple[int, int]) -> tuple[float, int]:
            kind, row = head
            share = min(taken[kind] / max(gpus, 1.0), 1.0)
            length = seconds[row] if np.isfinite(seconds[row]) else np.inf
            return length * (np.exp(mix * (share - due[kind])) if heavy[kind] else 1.0), row

        kind, row = min(heads, key=effective_length)
        at[kind] += 1
        chosen.append(row)
        alongside.append(row)
        taken[kind] += need[row]
    not_waiting = order[runs | ~managed]
    return np.concatenate([not_waiting, np.array(chosen, dtype=np.int64)])


def _type_statistics(jobs: Jobs, seconds: Floats, memory: Memory) -> Memory:
    """The sum and the number of the run times of each type so far; each job counts once."""
    types: Texts = memory["types"] if memory else np.zeros(0, dtype=np.str_)
    sums = dict(zip(types.tolist(), memory["sums"].tolist(), strict=True)) if memory else {}
    numbers = dict(zip(types.tolist(), memory["numbers"].tolist(), strict=True)) if memory else {}
    counted = {tuple(key) for key in memory["told"].tolist()} if memory else set()
    present = {tuple(key[1:]) for key in jobs.keys}
    for row, key in enumerate(jobs.keys):
        if tuple(key[1:]) not in counted and np.isfinite(seconds[row]):
            kind = str(jobs.kind[row])
            sums[kind] = sums.get(kind, 0.0) + float(seconds[row])
            numbers[kind] = numbers.get(kind, 0) + 1
    kept = sorted(present)
    return {
        "types": np.array(list(sums), dtype=np.str_),
        "sums": np.array(list(sums.values()), dtype=np.float64),
        "numbers": np.array(list(numbers.values()), dtype=np.int64),
        "told": np.array(kept, dtype=np.int64).reshape(-1, 2),
    }


def _mean_of_type(jobs: Jobs, statistics: Memory) -> Floats:
    """(n,) the mean run time of each job's type, NaN for an unknown type."""
    means = dict(zip(statistics["types"].tolist(), (statistics["sums"] / statistics["numbers"]).tolist(), strict=True))
    return np.array([means.get(kind, np.nan) for kind in jobs.kind.tolist()], dtype=np.float64)
