"""What a cycle asks of its parts, whoever plays them: the daemon's write to disk, the simulator's keep it in memory."""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Protocol

from policies.plan import Memory
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecasts, Need
from slurmplug.cluster.port import Outcome, Reading
from slurmplug.cycle.record import CycleRecord
from slurmplug.intake.job_record import Admission, Changes
from slurmplug.operations import Operation
from slurmplug.rules.guardrails import Past


class Intake(Protocol):
    """Folds readings into snapshots."""

    @property
    def known(self) -> Collection[int]:
        """The job ids whose script need not be read."""
        ...

    @property
    def alive(self) -> Collection[int]:
        """The job ids that had not ended when last seen."""
        ...

    def absorb(self, reading: Reading, cycle: int) -> tuple[Snapshot, Changes]:
        """Fold a reading into what is known."""
        ...

    def set_labels(self, labels: Mapping[JobKey, float]) -> None:
        """Note the SiteFactors now in place."""
        ...

    def set_admissions(self, admissions: Mapping[JobKey, Admission]) -> None:
        """Note where jobs stand on their way to admission."""
        ...


class Forecaster(Protocol):
    """Knows what will be."""

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> Forecasts:
        """The forecasts that a policy needs, rows as the snapshot's jobs; the rest is unknown."""
        ...


class Ledger(Protocol):
    """Remembers the cycles. Whatever it cannot do is a `LedgerError`."""

    def next_cycle(self) -> int:
        """The number of the cycle to come."""
        ...

    def labels_set_elsewhere(self) -> Mapping[JobKey, float]:
        """The labels of the live jobs, where someone else wrote to the ledger since the last call; else none."""
        ...

    def failed(self, policy: str, error: str, now: float) -> None:
        """Note a cycle that could not read."""
        ...

    def recall(self, policy: str) -> Memory:
        """What the policy asked to be remembered."""
        ...

    def past(self, now: float, first_seen: float, jobs: Collection[JobKey]) -> Past:
        """What the guardrails must know of the cycles before, about these jobs and all others.

        `first_seen`: seconds for which a job of `jobs` counts as just seen.
        """
        ...

    def open_operations(self) -> Sequence[Operation]:
        """The operations under way; a command that was never answered counts as unknown."""
        ...

    def begin(self, record: CycleRecord) -> None:
        """Write a cycle, whole or not at all, before any of its effects."""
        ...

    def finish(self, cycle: int, outcomes: Sequence[Outcome], labels: Mapping[JobKey, float], now: float) -> None:
        """Write what came of a cycle's commands, and the labels now in place (NaN: not known)."""
        ...
