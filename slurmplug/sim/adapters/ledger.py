"""The ledger of a simulation: in memory, with the same answers to a cycle as the ledger on disk."""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from policies.plan import NOTHING_REMEMBERED, Memory
from policies.snapshot import JobKey
from slurmplug.cluster.port import Outcome, Status
from slurmplug.cycle.record import CycleRecord
from slurmplug.directives.changes import Change
from slurmplug.operations import Operation, OperationOutcome
from slurmplug.operations.history import gave_up_lately, move_history
from slurmplug.rules import precedence
from slurmplug.rules.guardrails import HOUR, MOVES, Past

CYCLES = 100
"""How many cycles that commanded something are searched for failures in a row."""


class MemoryLedger:
    """Implements the ledger that a cycle needs, without a file; see `slurmplug.ledger.ledger`."""

    def __init__(self) -> None:
        self._cycle, self._latest = 0, -np.inf
        self._memory: dict[str, Memory] = {}
        self._operations: dict[str, Operation] = {}
        """open ones, and those of the last hour"""
        self._commanding: deque[tuple[int, float, dict[str, Status]]] = deque(maxlen=CYCLES)
        """cycle, when it started, and the outcome of each command"""
        self._operation_of: dict[str, str] = {}
        self._first_seen: dict[JobKey, float] = {}
        """of live jobs"""
        self._users: dict[JobKey, str] = {}
        """of live jobs, and of those in `_operations`"""

    def next_cycle(self) -> int:
        """The number of the next cycle."""
        return self._cycle + 1

    def site_factors_set_elsewhere(self) -> Mapping[JobKey, float]:
        """Empty: a simulation has no other writer."""
        return {}

    def directive_changes(self) -> Collection[tuple[JobKey, Change]]:
        """Empty: nobody changes the directives of simulated jobs."""
        return ()

    def paused(self) -> bool:
        """Never in a simulation."""
        return False

    def record_failed_read(self, policy: str, error: str, now: float) -> None:  # noqa: ARG002 not recorded in a simulation
        """Record a cycle whose reading failed."""
        self._cycle, self._latest = self._cycle + 1, now

    def recall(self, policy: str) -> Memory:
        """The memory of that policy's last plan."""
        return self._memory.get(policy, NOTHING_REMEMBERED)

    def open_operations(self) -> Sequence[Operation]:
        """The operations under way."""
        return sorted((o for o in self._operations.values() if o.step != "ended"), key=lambda o: o.opened)

    def past(self, now: float, first_seen: float = 0.0, jobs: Collection[JobKey] = ()) -> Past:
        """What the guardrails need of earlier cycles.

        `first_seen`: seconds for which a job of `jobs` counts as just seen.
        """
        self._forget(now)
        stops = [each for each in self._operations.values() if each.kind == "stop"]
        admissions = [each for each in self._operations.values() if each.kind == "release"]
        failures = 0
        for _, _, statuses in reversed(self._commanding):
            if "done" in statuses.values():
                break
            failures += 1
        moves = move_history(((each, self._users[each.job]) for each in self._operations.values()), now)
        return Past(
            now=now,
            latest=self._latest,
            alive=len(self._first_seen),
            stops_last_hour=Counter(self._users[each.job] for each in stops if each.opened > now - HOUR),
            admissions_last_hour=Counter(self._users[each.job] for each in admissions if each.opened > now - HOUR),
            admitting=frozenset(each.job for each in admissions if each.step != "ended"),
            stopping=frozenset(each.job for each in stops if each.step != "ended"),
            gave_up=frozenset(each.job for each in stops if gave_up_lately(each, now)),
            ignored=frozenset(each.job for each in stops if _ignored(each) and each.job in self._first_seen),
            **vars(moves),
            fresh=frozenset(job for job in jobs if self._first_seen.get(job, now) > now - first_seen),
            failures_in_a_row=failures,
            last_failure=self._commanding[-1][1] if failures else -np.inf,
        )

    def begin(self, record: CycleRecord) -> None:
        """Record a cycle before its effects."""
        self._cycle, self._latest = record.snapshot.cycle, record.started
        for each in record.changes.records:
            if each.facts.live:
                self._first_seen.setdefault(each.key, record.changes.now)
                self._users[each.key] = each.facts.user
            else:
                self._first_seen.pop(each.key, None)
        self._memory[record.policy] = record.plan.memory
        if record.precedence is not None:
            self._memory[precedence.MEMORY] = record.precedence
        self._operations.update((operation.id, operation) for operation in record.operations)
        self._operation_of = {command.id: command.operation for command in record.commands if command.operation}
        if record.commands:
            unknown: dict[str, Status] = {command.id: "unknown" for command in record.commands}
            self._commanding.append((self._cycle, record.started, unknown))

    def finish(
        self,
        cycle: int,  # noqa: ARG002
        outcomes: Sequence[Outcome],
        site_factors: Mapping[JobKey, float],  # noqa: ARG002
        now: float,  # noqa: ARG002
        seconds: Mapping[str, float],  # noqa: ARG002
    ) -> None:
        """Record the outcomes of a cycle's commands."""
        if not outcomes:
            return
        self._commanding[-1][2].update((outcome.command, outcome.status) for outcome in outcomes)
        for outcome in outcomes:
            operation = self._operations.get(self._operation_of.get(outcome.command, ""))
            if operation is not None and operation.step != "ended":
                self._operations[operation.id] = replace(operation, last_status=outcome.status)

    def _forget(self, now: float) -> None:
        """Drop ended operations older than an hour; of live jobs, moves and stops that were ignored are kept."""
        over = [
            each
            for each in self._operations.values()
            if each.step == "ended"
            and max(each.opened, each.since) <= now - HOUR
            and not ((each.kind in MOVES or _ignored(each)) and each.job in self._first_seen)
        ]
        for each in over:
            del self._operations[each.id]
        if over:
            needed = self._first_seen.keys() | {each.job for each in self._operations.values()}
            self._users = {job: user for job, user in self._users.items() if job in needed}


def _ignored(operation: Operation) -> bool:
    return operation.outcome is OperationOutcome.IGNORED
