"""Which policy decides: the configured one, or a promoted model for as long as it does well.

Before each cycle a model whose jobs take longer than those before it is demoted, so that the configured policy decides
in that same cycle; after each cycle, one that too often could not be followed. What that rests on stays in the ledger.
"""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from policies.policy import Policy
from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle import outcomes
from slurmplug.cycle.agreement import Decision
from slurmplug.cycle.record import CycleRecord
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.daemon.policy_process import START_SECONDS, PolicyProcess
from slurmplug.daemon.shadow import Question, Shadow
from slurmplug.errors import ConfigError, DataError
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.ledger import model_outcomes, policy_models
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.model_outcomes import ModelCycle
from slurmplug.ledger.policy_models import Decided, KeptModel
from slurmplug.reports import model_view
from slurmplug.rules.guardrails import HOUR

BY = "slurmplug"
"""who demotes and promotes by rule"""

log = logging.getLogger(__name__)


class Promotion:
    """Puts a scheduler's policy in place before each cycle, and watches the model that acts."""

    def __init__(self, ledger: Ledger, scheduler: Scheduler, forecaster: Forecaster) -> None:
        """scheduler: with the configured policy and its fallback."""
        self._ledger, self._scheduler, self._forecaster = ledger, scheduler, forecaster
        self._acting: KeptModel | None = None
        self._compared = 0
        self._foreseen = set(model_outcomes.waits_of_live_jobs(ledger))
        self._shadow: Shadow | None = None
        self._own: PolicyProcess | None = None
        """of the configured policy, where it is learnt"""
        self._of_model: dict[str, PolicyProcess] = {}
        """of the model that acts or is to, by its digest"""
        self.configure(scheduler.config, scheduler.policy, scheduler.fallback)

    def configure(self, config: Config, policy: Policy, fallback: Policy | None) -> None:
        """Take the configuration, its policy, and what decides where that one may not; from the next cycle on."""
        self.close()
        self._configured, self._fallback = policy, fallback
        if policy.learnt:
            self._own = PolicyProcess(policy, config)
            self._own.settled(START_SECONDS)
        self._scheduler.use(config, self._own or policy, fallback)
        self._acting = None

    def close(self) -> None:
        """End the processes of the policies that decide and of the model in shadow."""
        for process in (self._own, *self._of_model.values(), self._shadow):
            if process is not None:
                process.close()
        self._own, self._of_model, self._shadow = None, {}, None

    def before_cycle(self, now: float) -> None:
        """Put in place what decides in this cycle.

        Raises:
            LedgerError
        """
        acting = policy_models.in_role(self._ledger, "acting")
        if acting and (figures := self._worse(acting, now)):
            self._demote(acting, "worse outcomes", figures, now)
            acting = None
        if (acting and acting.digest) != (self._acting and self._acting.digest):
            self._put_in_place(acting, now)

    def after_cycle(self, record: CycleRecord, now: float) -> None:
        """Keep what the acting model did in this cycle, and what is forecast of jobs that were ranked in it first.

        Raises:
            LedgerError
        """
        if (acting := self._acting) is not None:
            made = ModelCycle(record.snapshot.cycle, "acting", record.error)
            model_outcomes.keep_cycle(self._ledger, acting.digest, made)
            self._demote_if_seldom_followed(acting, now)
        shadow = policy_models.in_role(self._ledger, "shadow")
        self._ask_shadow(shadow, record, now)
        if acting or shadow:
            self._foresee(record, acting.digest if acting else self._configured.name)

    def _ask_shadow(self, shadow: KeptModel | None, record: CycleRecord, now: float) -> None:
        """Have the model in shadow decide on this cycle's snapshot, and keep what it decided on an earlier one."""
        if self._shadow is not None and (shadow is None or shadow.digest != self._shadow.digest):
            self._shadow.close()
            self._shadow = None
        if shadow is None:
            return
        if self._shadow is None:
            if (policy := self._policy_of(shadow, now)) is None:
                return
            data = policy_models.content(self._ledger, shadow.digest)
            self._shadow = Shadow(self._scheduler.config, shadow.digest, data, policy.needs)
        snapshot, forecasts = record.snapshot, record.forecasts
        if not self._shadow.needs <= self._scheduler.policy.needs:
            forecasts = self._forecaster.forecast(snapshot, self._shadow.needs | self._scheduler.policy.needs)
        question = Question(snapshot.cycle, snapshot, forecasts, Decision.of(record.plan), record.precedence)
        answer = self._shadow.exchange(question)
        if answer is not None:
            model_outcomes.keep_cycle(self._ledger, shadow.digest, answer)
            if self._acting is None and (evidence := self._allowed(shadow)):
                decided = Decided(BY, now, "by the site's rule", evidence)
                policy_models.set_role(self._ledger, shadow, "acting", decided)
                log.info("model %s is promoted: %s", shadow.name, model_view.reason(decided))

    def _allowed(self, shadow: KeptModel) -> Mapping[str, float] | None:
        """The figures by which the site's rule lets the model in shadow act; None where it does not."""
        rule = self._scheduler.config.promotion
        cycles = model_outcomes.cycles_without_error(self._ledger, shadow.digest)
        if rule.gain is None or cycles < rule.shadow_cycles:
            return None
        made = policy_models.evaluations(self._ledger, shadow.digest)
        highest = [each.figures["jct_mean"]["high"] for each in made if each.against == self._configured.name]
        if not highest or None in highest or max(highest) > -rule.gain:
            return None
        return {"gain": -max(highest), "cycles": cycles}

    def _put_in_place(self, acting: KeptModel | None, now: float) -> None:
        """The model's policy, once its process can decide; until then and without a model, the configured one."""
        process = self._process_of(acting, now)
        begins = process if process is not None and process.settled() else None
        if process is not None and begins is None and self._acting is None:
            return
        self._acting = acting if begins else None
        policy = begins or self._own or self._configured
        config, fallback = self._scheduler.config, self._fallback
        if begins:
            fallback = policy_registry.fallback(config, begins, self._configured)
        self._scheduler.use(config, policy, fallback)
        self._compared = 0
        self._foreseen = set(model_outcomes.waits_of_live_jobs(self._ledger))
        self._forecaster.get_ready(policy.needs)
        decides = acting.name if acting and begins else f"policy {self._configured.name}"
        log.info("from this cycle on %s decides", decides)

    def _process_of(self, acting: KeptModel | None, now: float) -> PolicyProcess | None:
        """The process of the acting model, started if there is none; processes of other models are ended."""
        for digest in self._of_model.keys() - {acting.digest if acting else ""}:
            self._of_model.pop(digest).close()
        if acting is None:
            return None
        if acting.digest not in self._of_model and (policy := self._policy_of(acting, now)) is not None:
            data = policy_models.content(self._ledger, acting.digest)
            self._of_model[acting.digest] = PolicyProcess(policy, self._scheduler.config, data)
        return self._of_model.get(acting.digest)

    def _policy_of(self, model: KeptModel, now: float) -> Policy | None:
        """What decides by a model; None, and a candidate again, where nothing can any more."""
        try:
            parsed = model_files.parse(policy_models.content(self._ledger, model.digest), model.name)
            return policy_registry.promoted(self._scheduler.config, parsed, self._configured)
        except (ConfigError, DataError) as error:
            self._demote(model, f"it cannot decide: {error}", {}, now)
            return None

    def _worse(self, acting: KeptModel, now: float) -> Mapping[str, float] | None:
        """The figures by which jobs take longer by this model than before it; looked for when another job has ended."""
        ended = model_outcomes.ended_jobs(self._ledger, acting.digest)
        if ended <= self._compared:
            return None
        self._compared = ended
        of_model = model_outcomes.outcomes(self._ledger, acting.digest, now)
        return outcomes.worse(of_model, model_outcomes.outcomes(self._ledger, self._configured.name, now))

    def _demote_if_seldom_followed(self, acting: KeptModel, now: float) -> None:
        errors = model_outcomes.errors_since(self._ledger, acting.digest, now - HOUR)
        if len(errors) >= self._scheduler.config.promotion.fallbacks:
            self._demote(acting, "not followed", {"cycles": len(errors), "last_error": errors[-1]}, now)

    def _demote(self, model: KeptModel, reason: str, evidence: Mapping[str, Any], now: float) -> None:
        decided = Decided(BY, now, reason, evidence)
        policy_models.set_role(self._ledger, model, "candidate", decided)
        log.error("model %s is demoted: %s", model.name, model_view.reason(decided))

    def _foresee(self, record: CycleRecord, ranked_by: str) -> None:
        """Keep the forecast of the time to the end of each job that was ranked in this cycle for the first time."""
        if record.verdict.frozen or "rank" not in record.verdict.acting:
            return
        expected = outcomes.expected_seconds(record.snapshot, record.forecasts)
        keys = record.snapshot.jobs.keys
        new = {keys[row]: float(expected[row]) for row in np.flatnonzero(~np.isnan(expected)).tolist()}
        new = {job: seconds for job, seconds in new.items() if job not in self._foreseen}
        if new:
            model_outcomes.keep_waits(self._ledger, ranked_by, new, record.snapshot.now)
        self._foreseen = (self._foreseen | new.keys()) & set(keys)
