"""The interfaces of a cycle's parts. The daemon's intake, forecaster and ledger implement them, and the simulator's."""

from collections.abc import Collection, Container, Mapping, Sequence, Set
from typing import Protocol

from policies.plan import Memory
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecasts, Need
from slurmplug.cluster.port import Outcome, Reading, Submission
from slurmplug.cycle.record import CycleRecord
from slurmplug.directives.changes import Change
from slurmplug.intake.job_record import Admission, Changes
from slurmplug.operations import Operation
from slurmplug.rules.guardrails import Past


class Intake(Protocol):
    """Folds readings into snapshots."""

    @property
    def known(self) -> Container[Submission]:
        """The submissions whose script need not be read."""
        ...

    @property
    def alive(self) -> Mapping[int, int]:
        """The jobs that had not ended when last seen, with the uid of each one's user."""
        ...

    def absorb(self, reading: Reading, cycle: int) -> tuple[Snapshot, Changes]:
        """Fold a reading into what is known."""
        ...

    def set_site_factors(self, site_factors: Mapping[JobKey, float], *, elsewhere: bool = False) -> None:
        """Store the SiteFactors that slurmplug wrote (NaN: not known); `elsewhere`: maybe in another process."""
        ...

    def set_changed_requests(self, jobs: Collection[JobKey]) -> None:
        """Store the jobs whose request slurmplug has changed since the last reading."""
        ...

    def set_directive_changes(self, changes: Collection[tuple[JobKey, Change]]) -> None:
        """Store the changes of directives that the next reading puts in force."""
        ...

    def set_admissions(self, admissions: Mapping[JobKey, Admission]) -> None:
        """Store how far jobs are on their way to admission."""
        ...


class Forecaster(Protocol):
    """Forecasts run times, accuracies and speeds."""

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> Forecasts:
        """The forecasts that a policy needs, rows as the snapshot's jobs; the rest is unknown."""
        ...


class Ledger(Protocol):
    """Records cycles. Its methods raise LedgerError where it cannot be read or written."""

    def next_cycle(self) -> int:
        """The number of the next cycle."""
        ...

    def site_factors_set_elsewhere(self) -> Mapping[JobKey, float]:
        """The SiteFactors of live jobs, if another process wrote to the ledger since the last call; else none."""
        ...

    def directive_changes(self) -> Collection[tuple[JobKey, Change]]:
        """The changes of directives of jobs that no cycle has put in force yet, the earliest first."""
        ...

    def paused(self) -> bool:
        """Whether an operator paused slurmplug."""
        ...

    def record_failed_read(self, policy: str, error: str, now: float) -> None:
        """Record a cycle in which the cluster could not be read."""
        ...

    def recall(self, policy: str) -> Memory:
        """The `Plan.memory` of the policy's last cycle."""
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

    def finish(
        self,
        cycle: int,
        outcomes: Sequence[Outcome],
        site_factors: Mapping[JobKey, float],
        now: float,
        seconds: Mapping[str, float],
    ) -> None:
        """Record the outcomes of a cycle's commands, the SiteFactors in place (NaN: unknown), and the stages' times."""
        ...
