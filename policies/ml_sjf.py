"""ML-SJF: shortest predicted job first (Sherman, Lal, Choi, Pagarkar)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from policies.allocation import in_order
from policies.baselines.common import ordered, total_seconds
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Floats, Ints, Texts
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class MLSJFSettings:
    """estimate: what a job is taken to last. "forecast" is ML-SJF; the others are what the paper compares it with,
    "random" a guess of its own for each job, "type" the mean of the jobs of its type seen so far ("hard-coded").

    mix: how far heavy jobs alike are kept apart; 0 is the paper's order. A job of a heavy type, in the mean as long as
    those that wait or longer, counts as exp(mix (share - due)) times as long: share is what its type has of the GPUs,
    due what it has of the work that waits. So heavy jobs run beside light ones of other types, from the beginning.
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

    Of the paper it takes the order (section 2.1), the run time predicted from what is known at submission (section 5;
    `predictors.runtime`, support vector regression among others), and its rivals: a random guess and the type's mean.
    A forecast without error, as the simulator has where a workload names none, is the truth. The paper's finding that
    an order by run time runs equal heavy jobs beside each other (section 6) led to the mix term, which is ours. It
    leaves out its agents: jobs go where they fit. One whose run time nobody knows comes last.
    """

    name = "ml-sjf"
    needs: frozenset[Need] = frozenset({"total"})
    decides_on = "events"

    def __init__(self, settings: MLSJFSettings | None = None) -> None:
        self.settings: MLSJFSettings = settings or MLSJFSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """Rank by estimated run time, and start what is shortest."""
        jobs = snapshot.jobs
        seconds = total_seconds(jobs, forecasts.total)
        seen = memory
        if self.settings.estimate == "random":
            seconds = np.array([guess(key, snapshot.seed) for key in jobs.keys], dtype=np.float64)
        elif self.settings.estimate == "type":
            seen = _seen(jobs, seconds, memory)
            seconds = _mean_of_type(jobs, seen)
        order = in_order(jobs, seconds)
        if self.settings.mix > 0:
            order = mixed(jobs, order, seconds, self.settings.mix, float(snapshot.nodes.capacity[:, 0].sum()))
        plan = ordered(snapshot, order, memory=seen)
        return Plan(plan.rank, {"estimate": seconds}, plan.actions, plan.memory)


def guess(key: JobKey, seed: int) -> float:
    """A number from 0 to 1 that is the job's own, whenever it is asked for."""
    return float(np.random.default_rng([seed, *key[1:]]).random())


def mixed(jobs: Jobs, order: Ints, seconds: Floats, mix: float, gpus: float) -> Ints:
    """The order, one by one: of the foremost job of each type the one that counts as shortest.

    A type's share of all `gpus` is that of what runs and of what was ordered before, as far as these go.
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
    beside = order[runs].tolist()  # what the next would run beside: the oldest goes where there is no room
    for _ in range(len(waits)):
        while beside and taken.sum() + 1 > gpus:
            gone = beside.pop(0)
            taken[kind_of[gone]] -= need[gone]
        heads = [(kind, int(queue[at[kind]])) for kind, queue in enumerate(queues) if at[kind] < len(queue)]

        def counts(head: tuple[int, int]) -> tuple[float, int]:
            kind, row = head
            share = min(taken[kind] / max(gpus, 1.0), 1.0)
            lasts = seconds[row] if np.isfinite(seconds[row]) else np.inf
            return lasts * (np.exp(mix * (share - due[kind])) if heavy[kind] else 1.0), row

        kind, row = min(heads, key=counts)
        at[kind] += 1
        chosen.append(row)
        beside.append(row)
        taken[kind] += need[row]
    out_of_line = order[runs | ~managed]
    return np.concatenate([out_of_line, np.array(chosen, dtype=np.int64)])


def _seen(jobs: Jobs, seconds: Floats, memory: Memory) -> Memory:
    """Of each type the run times of its jobs so far, in sum and number; each job counts once."""
    types: Texts = memory["types"] if memory else np.zeros(0, dtype=np.str_)
    sums = dict(zip(types.tolist(), memory["sums"].tolist(), strict=True)) if memory else {}
    numbers = dict(zip(types.tolist(), memory["numbers"].tolist(), strict=True)) if memory else {}
    told = {tuple(key) for key in memory["told"].tolist()} if memory else set()
    now = {tuple(key[1:]) for key in jobs.keys}
    for row, key in enumerate(jobs.keys):
        if tuple(key[1:]) not in told and np.isfinite(seconds[row]):
            kind = str(jobs.kind[row])
            sums[kind] = sums.get(kind, 0.0) + float(seconds[row])
            numbers[kind] = numbers.get(kind, 0) + 1
    kept = sorted(now)
    return {
        "types": np.array(list(sums), dtype=np.str_),
        "sums": np.array(list(sums.values()), dtype=np.float64),
        "numbers": np.array(list(numbers.values()), dtype=np.int64),
        "told": np.array(kept, dtype=np.int64).reshape(-1, 2),
    }


def _mean_of_type(jobs: Jobs, seen: Memory) -> Floats:
    """(n,) NaN for a type of which nothing is known."""
    means = dict(zip(seen["types"].tolist(), (seen["sums"] / seen["numbers"]).tolist(), strict=True))
    return np.array([means.get(kind, np.nan) for kind in jobs.kind.tolist()], dtype=np.float64)
