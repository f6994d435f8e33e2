"""One scheduling cycle: read, absorb, forecast, decide, guard, advance, record, apply.

The same for the daemon and the simulator. Nothing before `Ledger.begin` has an effect.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from policies.plan import Action, Memory, Plan, Reason
from policies.policy import Policy
from policies.snapshot import JobKey, Snapshot
from slurmplug import operations
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import ClusterPort, Command, Outcome, Reading, ResourceRequest, Site
from slurmplug.config.schema import Config
from slurmplug.cycle import trust
from slurmplug.cycle.comparison import Comparison
from slurmplug.cycle.events import EventLog
from slurmplug.cycle.observed import Decided, Observed
from slurmplug.cycle.protocols import Forecaster, Intake, Ledger
from slurmplug.cycle.record import CycleRecord
from slurmplug.cycle.timing import StageTimes, gc_paused
from slurmplug.errors import LedgerError, ReadFailed
from slurmplug.intake.job_record import Changes
from slurmplug.operations import Observation, Operation
from slurmplug.rules import (
    claims,
    direct_placement,
    guardrails,
    idle_gpus,
    precedence,
    site_factor,
    sizes,
    target_units,
    time_limits,
    valid_plan,
)
from slurmplug.rules.time_limits import BeforeLimit, TimeLimits

log = logging.getLogger(__name__)


@dataclass
class Scheduler:
    """Runs cycles with these parts.

    Between two cycles `use` replaces the configuration and the policies; in each cycle, once the site is read,
    `in_force` says which configuration applies there.
    """

    port: ClusterPort
    intake: Intake
    forecaster: Forecaster
    policy: Policy
    ledger: Ledger
    config: Config
    fallback: Policy | None = None
    """decides in the cycles in which a learnt policy fails, is late, or meets a state unlike those it was trained on"""
    clock: Callable[[], float] = perf_counter
    """seconds, by which decisions are late"""
    in_force: Callable[[Site], Config] | None = None
    """the configuration for a cycle that read this site, where that depends on it; then `config` is what it was last"""
    applying: bool = False
    """whether commands have effects whose outcomes are not recorded yet; else an exception may end a cycle anywhere"""
    _unwritten: Changes | None = None
    _comparison: Comparison = field(default_factory=Comparison)
    """the last one of SiteFactors"""
    _events: EventLog = field(default_factory=EventLog)

    def use(self, config: Config, policy: Policy, fallback: Policy | None) -> None:
        """From the next cycle on, follow these: after a reload, or where another model is to decide."""
        self.config, self.policy, self.fallback = config, policy, fallback

    def run(self) -> CycleRecord | None:
        """One cycle; None if the cluster could not be read.

        Raises:
            LedgerError: nothing was applied, or the outcomes of what was applied are `unknown` until the next cycle.
        """
        with gc_paused():
            observed = self.observe()
            if observed is None:
                return None
            decided = self.decide(observed)
            if decided.observed is not observed:
                log.warning("%s", decided.error)
            return self.carry_out(decided)

    def observe(self) -> Observed | None:
        """The first half of a cycle: what the policy decides on; None if the cluster could not be read."""
        stages = StageTimes()
        number = self.ledger.next_cycle()
        self.intake.set_site_factors(self.ledger.site_factors_set_elsewhere(), elsewhere=True)
        self.intake.set_directive_changes(self.ledger.directive_changes())

        # 1. Read the cluster. If that fails, nothing else is done in this cycle.
        with stages.timed("read"):
            reading = self._read(number)
        if reading is None:
            return None
        if self.in_force is not None:
            self.config = self.in_force(reading.site)

        # 2. Absorb the reading into a snapshot, and into the changes that the ledger does not have yet.
        with stages.timed("absorb"):
            snapshot, changes = self.intake.absorb(reading, number)
            changes = self._unwritten = changes.after(self._unwritten)

        # 3. Forecast what the policy needs, from claims that are believed.
        with stages.timed("forecast"):
            snapshot, not_believed = claims.limit_claims(snapshot, self.config.guardrails)
            snapshot, held = target_units.hold_mismatched(snapshot)
            memory = self.ledger.recall(self.policy.name)
            forecasts = self.forecaster.forecast(snapshot, self.policy.needs)
        return Observed(number, reading, snapshot, changes, forecasts, memory, not_believed, held, stages, self.policy)

    def decide(self, observed: Observed) -> Decided:
        """The policy's plan; where it cannot be followed, the fallback's; then one that leaves the queue to Slurm."""
        # 4. Decide.
        plan, error = self._decide(observed)
        if error and self.fallback is not None:
            observed = self._for_fallback(observed, self.fallback)
            plan, of_fallback = self._decide(observed)
            error = "; ".join((error, of_fallback or f"{self.fallback.name} decided"))
        return Decided(observed, plan, error)

    def _decide(self, observed: Observed) -> tuple[Plan, str]:
        """The plan of the policy, which has to be trusted if it is learnt and there is a fallback; or none, and why."""
        snapshot, forecasts, memory, policy = observed.snapshot, observed.forecasts, observed.memory, observed.policy
        watched = policy.learnt and self.fallback is not None
        nothing = guardrails.left_to_slurm(snapshot, memory)
        with observed.stages.timed("decide"):
            try:
                if not watched:
                    return valid_plan.validate_plan(snapshot, policy.decide(snapshot, forecasts, memory)), ""
                limit, clock = self.config.interval, self.clock
                return trust.trusted_plan(policy, snapshot, forecasts, memory, limit=limit, clock=clock), ""
            except trust.NotTrusted as error:
                return nothing, f"policy {policy.name} is not followed: {error}"
            except (Exception, SystemExit) as error:  # a site's own policy does not end the daemon
                log.exception("policy %s failed; its plan is not used in this cycle", policy.name)
                return nothing, f"policy {policy.name} failed: {type(error).__name__}: {error}"

    def _for_fallback(self, observed: Observed, fallback: Policy) -> Observed:
        """The same question, put to the fallback: with the forecasts that it needs and its own memory."""
        with observed.stages.timed("forecast"):
            memory = self.ledger.recall(fallback.name)
            forecasts = self.forecaster.forecast(observed.snapshot, fallback.needs)
        return replace(observed, policy=fallback, forecasts=forecasts, memory=memory)

    def carry_out(self, decided: Decided) -> CycleRecord:
        """The second half of a cycle: what was decided is guarded, recorded and applied.

        Raises:
            LedgerError: as for `run`
        """
        observed, plan = decided.observed, decided.plan
        reading, stages = observed.reading, observed.stages
        snapshot, forecasts = observed.snapshot, observed.forecasts
        plan, passed = self._with_overdue_first(observed, plan)
        plan = replace(plan, notes={**observed.not_believed, **plan.notes, **observed.held})

        # 5. Guard: what of the plan is allowed.
        verdict, past = self._guard(observed, plan)

        # 6. Advance: the commands of placements, operations and SiteFactors.
        placed, verdict_of_operations = direct_placement.split(snapshot, verdict, reading.site)
        opened = self.ledger.open_operations()
        observation = self._observation(snapshot, reading, verdict_of_operations, opened)
        observation = replace(observation, sizes=past.sizes)
        moved, commands, impossible = operations.advance(observation, verdict_of_operations, opened, self._settings())
        verdict = replace(verdict, actions=_without(verdict.actions, impossible), vetoes=(*verdict.vetoes, *impossible))
        ranked = np.where(operations.to_be_ranked(snapshot, opened, moved), verdict.score, np.nan)
        written = sum(command.verb == "update" for command in commands)
        updates, postponed = self._site_factor_updates(snapshot, replace(verdict, score=ranked), reading.site, written)

        # 7. Record: all of it is in the ledger before any of its effects.
        record = CycleRecord(
            started=snapshot.now,
            policy=observed.policy.name,
            modes=dict(vars(self.config.mode)),
            snapshot=snapshot,
            forecasts=forecasts,
            memory=observed.memory,
            decided=decided.plan,
            made_from=observed.policy.made_from,
            plan=plan,
            verdict=verdict,
            operations=moved,
            commands=(*commands, *placed, *updates),
            changes=observed.changes,
            postponed=postponed,
            seconds=stages.seconds,
            error=decided.error,
            admissions=operations.admissions(moved, commands),
            precedence=passed,
        )
        self.ledger.begin(record)
        self._unwritten = None
        self.intake.set_admissions(record.admissions)

        # 8. Apply the commands, and record their outcomes.
        self.applying = True
        try:
            self._apply(record, stages, paused=past.paused)
        finally:
            self.applying = False
        return record

    def _guard(self, observed: Observed, plan: Plan) -> tuple[guardrails.Verdict, guardrails.Past]:
        """The allowed part of the plan, and the earlier cycles by which that was decided.

        Where Slurm starts the jobs, a placement changes a job's number of GPUs at most, and stops for idle GPUs and
        requeues before time limits are added.
        """
        snapshot, site, limits = observed.snapshot, observed.reading.site, self.config.guardrails
        before = time_limits.NEVER if site.places else self._before_limits()
        ending = before.rows(snapshot)
        jobs = [*(action.job for action in plan.actions), *(snapshot.jobs.keys[row] for row in ending)]
        past = self.ledger.past(self.port.now(), limits.first_seen, jobs)
        times = self._times(observed, plan, past, before, ending)
        if not site.places:
            plan = sizes.with_resizes(snapshot, time_limits.with_last_calls(plan, times), past, limits, times)
            acts = self.config.mode.of("stop") == "act"
            plan = idle_gpus.with_stops(plan, snapshot, past.told_idle, self.config.stop.idle_gpus, acts=acts)
        verdict = guardrails.check(
            snapshot,
            plan,
            past,
            self.config.mode,
            limits,
            placement=self.config.operations.placement,
            places=site.places,
            times=times,
        )
        return verdict, past

    def _apply(self, record: CycleRecord, stages: StageTimes, *, paused: bool) -> None:
        with stages.timed("apply"):
            outcomes = self.port.apply(record.commands) if record.commands else ()
        in_place = _site_factors_in_place(record.commands, outcomes)
        self.intake.set_site_factors(in_place)
        self.intake.set_changed_requests([each.job for each in record.commands if operations.changes_request(each)])
        self._comparison = self._comparison.after(record.commands, outcomes)
        self.ledger.finish(record.snapshot.cycle, outcomes, in_place, self.port.now(), stages.seconds)
        self._events.tell(record, outcomes, paused=paused)

    def _read(self, number: int) -> Reading | None:
        try:
            reading = self.port.read(self.intake.known, self.intake.alive)
        except ReadFailed as error:
            log.warning("cycle %d: %s; nothing is done in this cycle", number, error)
            self.ledger.record_failed_read(self.policy.name, str(error), self.port.now())
            return None
        return self._with_site_factors(reading)

    def _with_site_factors(self, reading: Reading) -> Reading:
        """The reading, with the SiteFactors in Slurm when these are to be compared with those that were written."""
        site, acts = reading.site, self.config.mode.of("rank") == "act"
        if site.places or not acts or not self._comparison.due(reading.now, site.booted, self.config.priority.compare):
            return reading
        try:
            site_factors = self.port.site_factors_in_slurm(site.booted)
        except ReadFailed as error:
            log.warning("the SiteFactors in Slurm cannot be compared, which the next cycle tries again: %s", error)
            return reading
        if self.ledger.paused():  # `slurmplug reset` pauses first, and what it sets to 0 was not set by others
            return reading
        self._comparison = Comparison(reading.now, site.booted)
        return replace(reading, site_factors=site_factors)

    def _before_limits(self) -> BeforeLimit:
        """When jobs are requeued before their time limits."""
        ahead = self.config.guardrails.requeue_before_limit
        acts = self.config.mode.of("preempt") == "act"
        return BeforeLimit(ahead + self.config.interval, self.config.stop.grace, acts) if ahead else time_limits.NEVER

    def _times(
        self, observed: Observed, plan: Plan, past: guardrails.Past, before: BeforeLimit, ending: Sequence[int]
    ) -> TimeLimits:
        """What decides on time limits; forecasts and the cluster's limits where the plan needs them."""
        snapshot, forecasts, places = observed.snapshot, observed.forecasts, observed.reading.site.places
        decides = any(map(time_limits.resizes, plan.actions))
        decides = decides or (not places and sizes.changes_any(snapshot, plan))
        if not observed.policy.needs >= time_limits.NEEDS and (decides or ending):
            forecasts = self.forecaster.forecast(snapshot, time_limits.NEEDS)
        site = self.config.guardrails
        walls = self._limits() if decides and not places and site.raise_time_limit > 1 else None
        requeued = Counter(each.job for each in past.requeues)
        return TimeLimits(snapshot, forecasts, site, walls, before, ending, requeued)

    def _limits(self) -> Limits | None:
        """The limits of the cluster; None where they could not be read."""
        try:
            return self.port.limits()
        except ReadFailed as error:
            log.warning("the limits of QOS, associations and partitions are not known: %s", error)
            return None

    def _with_overdue_first(self, observed: Observed, plan: Plan) -> tuple[Plan, Memory | None]:
        """The plan with those first who waited or were passed for too long, and what the next cycle has to know."""
        snapshot, forecasts, limits = observed.snapshot, observed.forecasts, self.config.guardrails
        bounded = not observed.reading.site.places and math.isfinite(limits.max_bypass)
        if not bounded or not (snapshot.jobs.pending & ~np.isnan(plan.score)).any():
            return precedence.put_first(snapshot, plan, limits, forecasts, None), None
        if not observed.policy.needs >= precedence.NEEDS:
            forecasts = self.forecaster.forecast(snapshot, precedence.NEEDS)
        found = precedence.waits(snapshot, forecasts, self.ledger.recall(precedence.MEMORY))
        return precedence.put_first(snapshot, plan, limits, forecasts, found), precedence.remembered(snapshot, found)

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
        """What the operations see; for a job of which Slurm does not report the request, no operation begins.

        The requests are read after the queue. Of a job that has started since, or was requeued, they are left out: its
        nodes, CPUs and tasks are now those of a run, or no longer, which none of its users changed.
        """
        jobs, queried = snapshot.jobs, operations.jobs_to_query(snapshot, verdict, opened)
        requests: Mapping[int, ResourceRequest] = {}
        limits = None
        if queried:
            try:
                found = self.port.resource_requests([key.job_id for key in queried])
            except ReadFailed as error:
                log.warning("what %d jobs requested is not known: %s", len(queried), error)
            else:
                pending = {key.job_id: bool(waits) for key, waits in zip(jobs.keys, jobs.pending, strict=True)}
                requests = {job: each for job, each in found.items() if each.pending == pending.get(job, each.pending)}
            limits = self._limits()
        return Observation(
            snapshot=snapshot,
            queue=reading.jobs,
            reservations=frozenset(each.name for each in reading.reservations),
            reserved_from=_reserved_from(reading),
            requests=requests,
            limits=limits,
        )

    def _settings(self) -> operations.OperationSettings:
        stop, moves = self.config.stop, self.config.operations
        return operations.OperationSettings(
            stop.grace, stop.cancel, moves.start_limit, moves.watch_limit, moves.placement
        )

    def _site_factor_updates(
        self, snapshot: Snapshot, verdict: guardrails.Verdict, site: Site, written: int
    ) -> tuple[Sequence[Command], int]:
        """The SiteFactors to write, and how many are postponed to the next cycle. `written`: other writes to jobs."""
        if verdict.frozen or site.places:
            return (), 0
        writes = site_factor.commands(snapshot, verdict.score)
        if "rank" in verdict.acting:
            writes = [*site_factor.take_back(snapshot), *writes]
        # The best first, whoever's: places are exchanged between users.
        most = max(0, self.config.guardrails.writes_per_cycle - written)
        return writes[:most], max(0, len(writes) - most)


def _reserved_from(reading: Reading) -> dict[str, float]:
    """By node, when the first reservation that has not ended begins there, in seconds since the epoch."""
    found: dict[str, float] = {}
    for each in reading.reservations:
        if each.end > reading.now:
            found.update({node: min(each.start, found.get(node, np.inf)) for node in each.nodes})
    return found


def _without(actions: Sequence[Action], impossible: Sequence[tuple[Action, Reason]]) -> tuple[Action, ...]:
    gone = {id(action) for action, _ in impossible}
    return tuple(action for action in actions if id(action) not in gone)


def _site_factors_in_place(commands: Sequence[Command], outcomes: Sequence[Outcome]) -> dict[JobKey, float]:
    """The SiteFactor that each written job now has, NaN where unknown; jobs whose write was refused are left out."""
    written = {command.id: command for command in commands if "SiteFactor" in command.fields}
    return {
        written[outcome.command].job: (
            float(written[outcome.command].fields["SiteFactor"]) if outcome.status == "done" else np.nan
        )
        for outcome in outcomes
        if outcome.command in written and outcome.status != "refused"
    }
