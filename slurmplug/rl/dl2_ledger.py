"""A site's own past as DL2's teacher: what each job was given, whoever decided that, from the cycles in slurmplug's
ledger whose inputs are kept."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from policies.dl2 import slot_of
from policies.dl2_servers import ServerAllocation
from policies.placement.allocation import held_gpus
from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts
from slurmplug.errors import LedgerError, UsageError
from slurmplug.ledger import codec, run_queries
from slurmplug.ledger.inputs import inputs, kept
from slurmplug.ledger.ledger import Ledger
from slurmplug.rl.informed_servers import Worths

SCHEME = "ledger:"
MOST_TYPES = 16
"""job types that have a place in the state: those of the most jobs"""


class Slot(NamedTuple):
    """What is known at the beginning of a slot, the GPUs (n,) that each job of it was given in the slot, and, where the
    teacher says so, what further ones were worth (n, k). Where jobs have parameter servers, how many of these (n,),
    and, where the teacher says so, what each choice was worth."""

    snapshot: Snapshot
    forecasts: Forecasts
    given: Floats
    gain: Floats | None = None
    servers: Floats | None = None
    worths: Callable[[ServerAllocation], Worths] | None = None


def logged(path: Path, slot: float) -> Iterator[Slot]:
    """Each slot of so many seconds of which a cycle is kept, and one of the next slot.

    Raises:
        LedgerError: the ledger cannot be read
    """
    before: tuple[Snapshot, Forecasts] | None = None
    with closing(Ledger(path, readonly=True)) as ledger:
        waited = run_queries.ended_while_waiting(ledger)
        for snapshot, forecasts in _cycles(path, ledger):
            later = slot_of(snapshot, slot) - slot_of(before[0], slot) if before is not None else 1
            if before is not None and later == 1:
                yield Slot(*before, given(before[0], snapshot, waited))
            if later:
                before = snapshot, forecasts


def given(begin: Snapshot, end: Snapshot, waited: Mapping[JobKey, int]) -> Floats:
    """(n,) the GPUs that each job of `begin` has at `end`; one that ended before, those that it held or requested, or
    none if it was cancelled while it waited. waited: of jobs that ended so, how often they were requeued before."""
    jobs = begin.jobs
    held = dict(zip(end.jobs.keys, held_gpus(end).tolist(), strict=True))
    never = [waited.get(key) == restarts for key, restarts in zip(jobs.keys, jobs.restarts.tolist(), strict=True)]
    without = np.where(jobs.running, held_gpus(begin), np.where(never, 0, jobs.gpus))
    return np.array([held.get(key, gpus) for key, gpus in zip(jobs.keys, without.tolist(), strict=True)], dtype=float)


def types(path: Path, slot: float) -> tuple[str, ...]:
    """The types of the most jobs in it.

    Raises:
        LedgerError: the ledger cannot be read
        UsageError: it has no slot to learn from
    """
    jobs = {
        key: kind
        for each in logged(path, slot)
        for key, kind in zip(each.snapshot.jobs.keys, each.snapshot.jobs.kind.tolist(), strict=True)
    }
    if not jobs:
        raise UsageError(
            f"{path} has no two slots of {slot:g} s, one after the other, with cycles whose inputs are kept: "
            "those in which something was commanded, for as long as `ledger.keep_inputs_days`"
        )
    named = Counter(kind for kind in jobs.values() if kind and "," not in kind)
    return tuple(sorted(kind for kind, _ in named.most_common(MOST_TYPES)))


def _cycles(path: Path, ledger: Ledger) -> Iterator[tuple[Snapshot, Forecasts]]:
    for cycle in kept(ledger):
        if (found := inputs(ledger, cycle.id)) is not None:
            try:
                yield codec.rebuild(Snapshot, found[0]), codec.rebuild(Forecasts, found[1])
            except ValueError as error:
                raise LedgerError(f"the inputs of cycle {cycle.id} in {path} are of another release") from error
