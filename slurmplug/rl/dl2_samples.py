"""What DL2's supervised stage learns from: a teacher's allocation of a slot, taken apart into choices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from policies.dl2 import Allocation
from policies.dl2_servers import ServerAllocation
from policies.model import Singles
from policies.placement.allocation import held_gpus, held_servers
from policies.plan import Plan
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats, Ints
from slurmplug.rl.informed_servers import Worths

SHARP = 8
"""how much likelier the choice of a better worker is"""


class Sample(NamedTuple):
    """A choice of the teacher: the state (k, features), what may be chosen, and how probable each is (k + 1,)."""

    state: Singles
    mask: Bools
    target: Singles


def imitated(
    choices: Allocation, wanted: Floats, rng: np.random.Generator, gain: Floats | None = None
) -> Iterator[Sample]:
    """The choices that lead to `wanted` (n,), the GPUs of each job of the snapshot.

    Which job has another worker next is as probable as it is short of that number; void, where none is. gain (n, k): of
    a further worker with so many so far, by which the teacher chose, so that its choice is known in each state: then
    by the power `SHARP` of that, and where there is one batch alone also beyond `wanted`.
    """
    workers = np.zeros(len(wanted), dtype=np.int64)
    while not choices.done:
        state, mask, batch = choices.state["jobs"], choices.mask, choices.batch
        workers[choices.rows] = choices.workers
        worth = np.maximum(wanted - workers, 0.0)[batch] * mask[:-1]
        if gain is not None:
            short = worth > 0 if len(batch) < len(choices.rows) else mask[:-1]
            gains = np.maximum(gain[batch, np.minimum(workers[batch], gain.shape[1] - 1)], 0.0) * short
            worth = (gains / max(gains.max(), 1e-9)) ** SHARP
        target = np.append(worth / worth.sum(), 0.0) if worth.sum() > 0 else np.append(worth, 1.0)
        yield Sample(state, mask, target.astype(np.float32))
        choices.choose(int(rng.choice(len(target), p=target)))


def imitated_with_servers(
    choices: ServerAllocation,
    wanted: Floats,
    servers: Floats,
    rng: np.random.Generator,
    worths: Worths | None = None,
) -> Iterator[Sample]:
    """The choices that lead to `wanted` and `servers` (n,), the GPUs and parameter servers of each job of the snapshot.

    First each job that is to train is given one of each, in any order, so that none is left with one kind alone. Then a
    job is given one of each as probably as it is short of both, and a worker or a server as it is short of one more
    than of the other. Void, where nothing is wanted that may be chosen. worths: of each choice, by which the teacher
    chose, so that its choice is known in each state: then by the power `SHARP` of that, wherever it leads.
    """
    given, given_servers = np.zeros((2, len(wanted)), dtype=np.int64)
    while not choices.done:
        state, mask, batch = choices.state["jobs"], choices.mask, choices.batch
        given[choices.rows], given_servers[choices.rows] = choices.workers, choices.servers
        short = np.maximum(wanted - given, 0.0)[batch], np.maximum(servers - given_servers, 0.0)[batch]
        both = np.minimum(*short)
        worth = np.stack([short[0] - both, short[1] - both, both], axis=1)
        waits = (given[batch] == 0) & (both > 0) & mask[:-1].reshape(-1, 3)[:, 2]
        if waits.any():
            worth = np.outer(waits, [0.0, 0.0, 1.0])
        worth = worth.ravel() * mask[:-1]
        if worths is not None:
            known = worths.of_batch(choices)
            worth = (known / max(known.max(), 1e-12)) ** SHARP
        target = np.append(worth / worth.sum(), 0.0) if worth.sum() > 0 else np.append(worth, 1.0)
        yield Sample(state, mask, target.astype(np.float32))
        choices.choose(int(rng.choice(len(target), p=target)))


def gpus_of(snapshot: Snapshot, plan: Plan) -> Floats:
    """(n,) the GPUs that each job has when this plan is carried out."""
    gpus = held_gpus(snapshot).astype(np.float64)
    rows = {key: row for row, key in enumerate(snapshot.jobs.keys)}
    for action in plan.actions:
        if action.kind in ("place", "resize", "migrate") and action.gpus is not None:
            gpus[rows[action.job]] = action.gpus
        elif action.kind == "preempt":
            gpus[rows[action.job]] = 0.0
    return gpus


def servers_of(snapshot: Snapshot, plan: Plan) -> Floats:
    """(n,) the parameter servers that each job has when this plan is carried out."""
    servers = held_servers(snapshot).astype(np.float64)
    rows = {key: row for row, key in enumerate(snapshot.jobs.keys)}
    for action in plan.actions:
        if action.kind in ("place", "resize", "migrate"):
            servers[rows[action.job]] = sum(action.servers or action.shares)
        elif action.kind == "preempt":
            servers[rows[action.job]] = 0.0
    return servers


@dataclass
class Taught:
    """What one simulation taught: the samples by columns, those of all one after the other, jobs (m,) of each; the
    summaries (slots, f); and the state of the random numbers after it."""

    jobs: Ints
    state: Singles
    mask: Bools
    target: Singles
    summaries: Floats
    rng: Mapping[str, Any]

    @classmethod
    def of(cls, slots: Sequence[tuple[list[Sample], Floats]], rng: np.random.Generator) -> "Taught":
        """From what `taught` yields."""
        samples = [each for of_slot, _ in slots for each in of_slot]
        jobs = np.array([len(each.state) for each in samples])
        state, mask, target = (np.concatenate(column) for column in zip(*samples, strict=True))
        summaries = np.array([summary for _, summary in slots])
        return cls(jobs, state, mask, target, summaries, rng.bit_generator.state)

    def samples(self) -> Iterator[Sample]:
        """One by one."""
        actions = (len(self.mask) - len(self.jobs)) // int(self.jobs.sum())
        ends, ends_of_actions = np.cumsum(self.jobs)[:-1], np.cumsum(actions * self.jobs + 1)[:-1]
        columns = (
            np.split(self.state, ends),
            np.split(self.mask, ends_of_actions),
            np.split(self.target, ends_of_actions),
        )
        return map(Sample, *columns)
