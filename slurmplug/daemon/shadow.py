"""A model in shadow: it decides on what the acting policy decided on, in a process of its own.

The process gets a snapshot after the cycle's effects, and answers by the end of a later cycle. No cycle waits for it: a
process that takes longer than the interval of cycles is ended, and another one begins.
"""

import logging
import os
import time
from typing import NamedTuple

from policies.plan import NOTHING_REMEMBERED, Memory
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts, Need
from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle import trust
from slurmplug.cycle.agreement import Decision, agreement
from slurmplug.cycle.trust import NotTrusted
from slurmplug.ledger.model_outcomes import ModelCycle
from slurmplug.processes.child import Channel, Child
from slurmplug.rules import precedence

START_SECONDS = 120.0
"""in which the process has to be ready"""
NICENESS = 10

log = logging.getLogger(__name__)


class Question(NamedTuple):
    """What a cycle decided on, and what was decided."""

    cycle: int
    snapshot: Snapshot
    forecasts: Forecasts
    acting: Decision
    precedence: Memory | None = None
    """what the cycle counted of who was passed; None where it did not"""


class Shadow:
    """The process of one model."""

    def __init__(self, config: Config, digest: str, data: bytes, needs: frozenset[Need]) -> None:
        """data: the model's file. needs: the forecasts that its policy is given."""
        self.digest, self.needs = digest, needs
        self._config, self._data = config, data
        self._open: int | None = None
        self._start()

    def exchange(self, question: Question) -> ModelCycle | None:
        """Take the answer to an earlier question, if there is one, and put this one, unless that is still open."""
        answer = self._answer()
        if self._ready and self._open is None:
            try:
                self._child.channel.send(question)
                self._child.channel.flush(self._config.interval)
                self._open, self._since = question.cycle, time.monotonic()
            except OSError:
                self._again()
        return answer

    def close(self) -> None:
        """End the process, without waiting for it."""
        self._child.kill()

    def _start(self) -> None:
        self._child = Child("shadow", decide_on_each, self._config, self._data)
        self._ready, self._open, self._since = False, None, time.monotonic()

    def _again(self) -> None:
        self.close()
        self._start()

    def _answer(self) -> ModelCycle | None:
        cycle, taken = self._open, time.monotonic() - self._since
        try:
            answer: ModelCycle | None = self._child.channel.receive(0.0)
        except TimeoutError:
            limit = self._config.interval if self._ready else START_SECONDS
            if (cycle is None and self._ready) or taken <= limit:
                return None
            self._again()
            return _failed(cycle, f"it took longer than {limit:g} s to decide") if cycle is not None else None
        except ConnectionError:
            self._again()
            return _failed(cycle, "the process in which it decided has ended") if cycle is not None else None
        self._ready, self._open = True, None
        return answer


def decide_on_each(channel: Channel, config: Config, data: bytes) -> None:
    """The process: answers each question with a ModelCycle; the first answer, None, says that it is ready."""
    os.nice(NICENESS)
    memory = NOTHING_REMEMBERED
    policy = policy_registry.promoted(config, model_files.parse(data, "in shadow"), policy_registry.policy(config))
    channel.send(None)
    while True:
        question: Question = channel.receive()
        answer, memory = decide(policy, config, question, memory)
        channel.send(answer)


def decide(policy: Policy, config: Config, question: Question, memory: Memory) -> tuple[ModelCycle, Memory]:
    """What the model would have decided, beside what was; and its memory for the next question."""
    cycle, snapshot, forecasts, acting, counted = question
    try:
        plan = trust.trusted_plan(policy, snapshot, forecasts, memory, limit=config.interval, clock=time.perf_counter)
    except NotTrusted as error:
        return _failed(cycle, str(error)), memory
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it is, it is an answer about the model
        return _failed(cycle, f"{type(error).__name__}: {error}"), memory
    found = None if counted is None else precedence.waits(snapshot, forecasts, counted)
    plan = precedence.put_first(snapshot, plan, config.guardrails, forecasts, found)
    of_both = agreement(snapshot, forecasts, acting, Decision.of(plan))
    return ModelCycle(cycle, "shadow", "", of_both.ranks, of_both.changes, of_both.gain), plan.memory


def _failed(cycle: int, error: str) -> ModelCycle:
    return ModelCycle(cycle, "shadow", error)
