"""A learnt policy that decides in a process of its own, so that no decision of it holds up the daemon.

The process gets each snapshot over a pipe, and is ended when it has not answered in time: nothing less ends a call into
compiled code, or a policy that catches every exception. Another process is started, and meanwhile the fallback decides.
"""

import logging
import pickle
import time
from typing import Any

from policies.plan import Memory, Plan
from policies.policy import LearntPolicy, Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle import trust
from slurmplug.cycle.trust import NotTrusted
from slurmplug.processes.child import Channel, Child

START_SECONDS = 15.0
"""in which the first process can usually decide; longer it is not waited for"""
LONGEST = 120.0
"""Seconds that a decision may take, however long the interval of cycles: less than systemd's watchdog waits."""

log = logging.getLogger(__name__)


class PolicyProcess(LearntPolicy):
    """Decides as `policy` does, which the process makes anew from the configuration and the model.

    Whether it knows the state is checked in the process, with the decision (`trust.plan_of_known`).
    """

    def __init__(self, policy: Policy, config: Config, data: bytes | None = None) -> None:
        """data: of the file of the promoted model; None for the configured policy. Raises OSError."""
        self.name, self.needs, self.settings = policy.name, policy.needs, policy.settings
        self.made_from = policy.made_from
        self._arguments = (config, data)
        self._limit = min(config.interval, LONGEST)
        self._child = Child(f"policy {policy.name}", decide_each, *self._arguments)
        self._ready, self._began = False, time.monotonic()

    @property
    def pid(self) -> int:
        """The process' id."""
        return self._child.pid

    def settled(self, seconds: float = 0.0) -> bool:
        """Whether it can decide, or cannot be expected to any more: it has ended, or took long to start. Waits for so
        many seconds at most."""
        if not self._ready and self._child.running:
            try:
                self._wait_until_ready(seconds)
            except NotTrusted:
                return not self._child.running or time.monotonic() - self._began > START_SECONDS
        return True

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """The policy's plan.

        Raises:
            NotTrusted: it failed, does not know the state, or did not decide in time, and its process was ended
            OSError: no process can be started
        """
        until = time.monotonic() + self._limit
        if not self._child.running:
            if not self._child.start_again(*self._arguments):
                raise NotTrusted("its process has just ended")
            self._ready = False
        if not self._ready:
            self._wait_until_ready(until - time.monotonic())
        try:
            self._child.channel.send((snapshot, forecasts, dict(memory)))
            error, plan = self._child.channel.receive(max(0.0, until - time.monotonic()))
        except TimeoutError:
            self.close()
            raise NotTrusted(f"it had not decided after {self._limit:.3g} s, and its process was ended") from None
        except ConnectionError:
            self.close()
            raise NotTrusted("the process in which it decided has ended") from None
        if error:
            raise NotTrusted(error)
        return Plan(*plan)

    def close(self) -> None:
        """End the process, without waiting for it."""
        self._child.kill()

    def _wait_until_ready(self, seconds: float) -> None:
        try:
            self._child.channel.receive(max(0.0, seconds))
        except TimeoutError:
            raise NotTrusted("its process is not ready yet") from None
        except ConnectionError:
            self.close()
            raise NotTrusted("its process has ended") from None
        self._ready = True


def decide_each(channel: Channel, config: Config, data: bytes | None) -> None:
    """The process: answers each question with an error or with the fields of a plan. The first answer says that it is
    ready."""
    policy = policy_registry.policy(config)
    if data is not None:
        policy = policy_registry.promoted(config, model_files.parse(data, "promoted"), policy)
    channel.send(None)
    while True:
        answer = _answer(policy, *channel.receive())
        try:
            channel.send(answer)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            channel.send((f"its plan cannot be read: {error}", None))


def _answer(policy: Policy, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> tuple[str, Any]:
    try:
        plan = trust.plan_of_known(policy, snapshot, forecasts, memory)
        return "", (plan.score, dict(plan.terms), plan.actions, dict(plan.memory), dict(plan.notes))
    except NotTrusted as error:
        return str(error), None
    except (Exception, SystemExit) as error:  # whatever it is, it is an answer about the policy
        log.exception("policy %s failed", policy.name)
        return f"it failed: {type(error).__name__}: {error}", None
