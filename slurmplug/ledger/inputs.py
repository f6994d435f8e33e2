"""The inputs of a cycle's decision and what was decided, so that an audit can decide again: stored whole, or as what
changed since a cycle whose inputs are stored whole."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from policies.snapshot import JobKey, Snapshot
from slurmplug.cycle.record import CycleRecord
from slurmplug.ledger import differences
from slurmplug.ledger.budgets import EACH_WHOLE, INPUTS_EVERY, INPUTS_IN_FULL, INPUTS_OF_CHANGES_EVERY
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.decided import as_kept
from slurmplug.ledger.differences import Parts


@dataclass(frozen=True)
class Encoded:
    """Inputs as they are stored. base: the cycle to whose inputs they are the difference, None where they are whole;
    at: the time of their cycle."""

    data: bytes
    base: int | None
    parts: Parts
    at: float

    def whole(self) -> "Encoded":
        """These inputs, stored whole rather than as a difference."""
        return Encoded(differences.whole(self.parts), None, self.parts, self.at)


@dataclass(frozen=True)
class Base:
    """The last inputs that were stored whole, of which cycle and what time, and how many were stored since."""

    cycle: int = 0
    at: float = 0.0
    parts: Parts | None = None
    since: int = 0

    def after(self, cycle: int, stored: Encoded) -> "Base":
        """The base of the next inputs, once those of a cycle are in the ledger."""
        if stored.base is None:
            return Base(cycle, stored.at, stored.parts)
        return replace(self, since=self.since + 1)


@dataclass(frozen=True)
class KeptSnapshot:
    """Of the last cycle whose inputs are kept: when it was, which jobs there were, and which of them ran."""

    at: float = -math.inf
    jobs: Sequence[JobKey] = ()
    running: bytes = b""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "KeptSnapshot":
        """That of this cycle."""
        return cls(snapshot.now, snapshot.jobs.keys, snapshot.jobs.running.tobytes())

    @property
    def waiting(self) -> frozenset[JobKey]:
        """The jobs that did not run."""
        return frozenset(key for key, runs in zip(self.jobs, self.running, strict=True) if not runs)

    def is_old_beside(self, snapshot: Snapshot) -> bool:
        """Whether the inputs of this cycle are to be kept, though it has no commands."""
        now = KeptSnapshot.of(snapshot)
        since = now.at - self.at
        changed = (now.jobs, now.running) != (self.jobs, self.running)
        return not 0 <= since < INPUTS_EVERY or (changed and since >= INPUTS_OF_CHANGES_EVERY)


def encode(record: CycleRecord, base: Base) -> Encoded:
    """The inputs of a cycle as bytes."""
    snapshot = record.snapshot
    kept = [snapshot, record.forecasts, record.memory, record.made_from, as_kept(record.decided)]
    given = differences.parts(kept, snapshot.jobs.keys)
    old = snapshot.now - base.at > INPUTS_IN_FULL
    if base.parts is None or base.since + 1 >= EACH_WHOLE or old:
        return Encoded(differences.whole(given), None, given, snapshot.now)
    return Encoded(differences.difference(given, base.parts), base.cycle, given, snapshot.now)


class KeptCycle(NamedTuple):
    """A cycle whose inputs are kept: its number, when it began, and the name of the policy that decided."""

    id: int
    at: float
    policy: str


def kept(ledger: LedgerFile, since: float = 0.0) -> list[KeptCycle]:
    """The cycles since then whose inputs are kept, the oldest first."""
    return [KeptCycle(*row) for row in ledger.tuples(_KEPT, since)]


def inputs(ledger: LedgerFile, cycle: int) -> Any | None:
    """What `codec.loads` returns of a cycle's snapshot, forecasts, memory, `made_from`, and what `decided.as_kept` has
    of the plan; None where they are not kept. A release before 0.2.0 kept the first three alone.

    Raises:
        LedgerError: they are damaged.
    """
    found = ledger.query("SELECT inputs, inputs_base FROM cycles WHERE id = ? AND inputs IS NOT NULL", cycle)
    if not found:
        return None
    data, base = found[0].values()
    if base is None:
        return ledger.decoded(data)
    whole = ledger.query("SELECT inputs FROM cycles WHERE id = ? AND inputs IS NOT NULL", base)
    if not whole:  # deleted since, by another process
        return None
    try:
        return differences.restored(data, whole[0]["inputs"])
    except ValueError as error:
        raise ledger.damaged(error) from error


_KEPT = "SELECT id, started, policy FROM cycles WHERE inputs IS NOT NULL AND started >= ? ORDER BY id"
