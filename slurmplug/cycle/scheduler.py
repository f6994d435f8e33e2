"""One scheduling cycle: read, forecast, decide, guard, record, apply.

The same for the daemon, the simulator and replay. Everything before `Ledger.begin` only looks and thinks; everything
after it has an effect.
"""

import gc
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from policies.plan import Action, Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import JobKey, Snapshot
from predictors.forecast import Forecasts
from slurmplug import operations
from slurmplug.cluster.port import ClusterPort, Command, Outcome, Reading, ResourceRequest, Site
from slurmplug.config.schema import Config
from slurmplug.cycle.protocols import Forecaster, Intake, Ledger
from slurmplug.cycle.record import CycleRecord
from slurmplug.errors import ConfigError, LedgerError, ReadFailed
from slurmplug.intake.job_record import Changes
from slurmplug.operations import Observation, Operation
from slurmplug.rules import claims, direct_placement, guardrails, site_factor

log = logging.getLogger(__name__)


@dataclass
class Scheduler:
    """The parts that one cycle goes through. `config` and `policy` may be replaced between two cycles."""

    port: ClusterPort
    intake: Intake
    forecaster: Forecaster
    policy: Policy
    ledger: Ledger
    config: Config
    _unwritten: Changes | None = None

    def run(self) -> CycleRecord | None:
        """One cycle; None where the cluster could not be read.

        Raises:
            LedgerError: nothing was applied, or what was applied is `unknown` until the next cycle looks.
        """
        with _garbage_left():
            return self._run()

    def _run(self) -> CycleRecord | None:
        clock = _Clock()
        number = self.ledger.next_cycle()
        self.intake.set_labels(self.ledger.labels_set_elsewhere())  # what is read below is not read again
        try:
            with clock.part("read"):
                reading = self.port.read(self.intake.known, self.intake.alive)
        except ReadFailed as error:
            log.warning("cycle %d: %s; nothing is done", number, error)
            self.ledger.failed(self.policy.name, str(error), self.port.now())
            return None
        with clock.part("absorb"):
            snapshot, changes = self.intake.absorb(reading, number)
            changes = self._unwritten = changes.after(self._unwritten)
        with clock.part("forecast"):
            snapshot, doubts = claims.bounded(snapshot, self.config.guardrails)
            memory = self.ledger.recall(self.policy.name)
            forecasts = self.forecaster.forecast(snapshot, self.policy.needs)
        with clock.part("decide"):
            plan, failure = self._decide(snapshot, forecasts, memory)
            plan = guardrails.starving_first(snapshot, plan, self.config.guardrails)
            plan = replace(plan, notes={**doubts, **plan.notes})
        acted_on = [action.job for action in plan.actions]
        past = self.ledger.past(self.port.now(), self.config.guardrails.first_seen, acted_on)
        placement = "all" if reading.site.places else self.config.operations.placement
        verdict = guardrails.check(snapshot, plan, past, self.config.mode, self.config.guardrails, placement=placement)
        placed, lasting = direct_placement.split(snapshot, verdict, reading.site)
        opened = self.ledger.open_operations()
        observation = self._observation(snapshot, reading, lasting, opened)
        moved, commands, impossible = operations.advance(observation, lasting, opened, self._settings())
        verdict = replace(verdict, actions=_without(verdict.actions, impossible), vetoes=(*verdict.vetoes, *impossible))
        writes, postponed, misfit = self._writes(snapshot, verdict, reading.site)
        record = CycleRecord(
            started=snapshot.now,
            policy=self.policy.name,
            modes=self.config.mode.model_dump(),
            snapshot=snapshot,
            forecasts=forecasts,
            memory=memory,
            plan=plan,
            verdict=verdict,
            operations=moved,
            commands=(*commands, *placed, *writes),
            changes=changes,
            postponed=postponed,
            seconds=clock.seconds,
            error=failure or misfit,
            admissions=operations.admissions(moved, commands),
        )
        self.ledger.begin(record)
        self._unwritten = None
        self.intake.set_admissions(record.admissions)
        with clock.part("apply"):
            outcomes = self.port.apply(record.commands) if record.commands else ()
        now_in_place = _labels_in_place(record.commands, outcomes)
        self.intake.set_labels(now_in_place)
        self.ledger.finish(number, outcomes, now_in_place, self.port.now())
        jobs, took = len(snapshot.jobs), sum(clock.seconds.values())
        log.debug("cycle %d: %d jobs, %d commands, %.3f s", number, jobs, len(record.commands), took)
        return record

    def seconds_to_next(self) -> float:
        """The interval between two cycles, shorter while a job is being moved: it holds GPUs without training."""
        config = self.config
        try:
            urgent = operations.urgent(self.ledger.open_operations())
        except LedgerError:
            urgent = False
        return min(config.interval, config.operations.interval) if urgent else config.interval

    def _observation(
        self, snapshot: Snapshot, reading: Reading, verdict: guardrails.Verdict, opened: Sequence[Operation]
    ) -> Observation:
        """What the operations see; for a job of which Slurm does not report the request, no operation begins."""
        queried = operations.jobs_to_query(verdict, opened)
        requests: Mapping[int, ResourceRequest] = {}
        limits = None
        if queried:
            try:
                requests = self.port.resource_requests([key.job_id for key in queried])
            except ReadFailed as error:
                log.warning("what %d jobs requested is not known: %s", len(queried), error)
            try:
                limits = self.port.limits()
            except ReadFailed as error:
                log.warning("the limits of QOS and associations are not known: %s", error)
        return Observation(
            snapshot=snapshot,
            queue=reading.jobs,
            reservations=frozenset(each.name for each in reading.reservations),
            reserved_nodes=frozenset(node for each in reading.reservations for node in each.nodes),
            requests=requests,
            limits=limits,
        )

    def _settings(self) -> operations.OperationSettings:
        stop, moves = self.config.stop, self.config.operations
        return operations.OperationSettings(
            stop.grace, stop.cancel, moves.start_limit, moves.watch_limit, moves.placement
        )

    def _decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> tuple[Plan, str]:
        """The policy's plan; one that fails leaves the queue to Slurm for this cycle, and the error is recorded."""
        try:
            return guardrails.sound(snapshot, self.policy.decide(snapshot, forecasts, memory)), ""
        except (Exception, SystemExit) as error:  # a site's own policy does not end the daemon
            log.exception("policy %s failed; Slurm decides alone in this cycle", self.policy.name)
            nothing = Plan(rank=np.full(len(snapshot.jobs), np.nan), memory=memory)
            return nothing, f"policy {self.policy.name} failed: {type(error).__name__}: {error}"

    def _writes(
        self, snapshot: Snapshot, verdict: guardrails.Verdict, site: Site
    ) -> tuple[Sequence[Command], int, str]:
        """The priorities to write, how many wait for the next cycle, and why none could be made."""
        if verdict.frozen or site.places:
            return (), 0, ""
        try:
            writes = site_factor.commands(snapshot, verdict.rank, site, self.config.priority, verdict.raised)
        except ConfigError as error:
            log.error("%s; no priority is written", error)
            return (), 0, str(error)
        return *guardrails.within_budget(writes, self.config.guardrails), ""


@contextmanager
def _garbage_left() -> Iterator[None]:
    """Circular garbage waits for the time between two cycles: to look for it among all that is known of 10,000 jobs
    takes as long as to decide."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _without(actions: Sequence[Action], impossible: Sequence[tuple[Action, Reason]]) -> tuple[Action, ...]:
    gone = {id(action) for action, _ in impossible}
    return tuple(action for action in actions if id(action) not in gone)


def _labels_in_place(commands: Sequence[Command], outcomes: Sequence[Outcome]) -> dict[JobKey, float]:
    """The label that each written job now has; one that a refused write left as it was is not named."""
    written = {command.id: command for command in commands if "SiteFactor" in command.fields}
    return {
        written[outcome.command].job: (
            float(written[outcome.command].fields["SiteFactor"]) if outcome.status == "done" else np.nan
        )
        for outcome in outcomes
        if outcome.command in written and outcome.status != "refused"
    }


class _Clock:
    """What the parts of a cycle take, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = perf_counter() - start
