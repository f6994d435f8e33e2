"""A stop, step by step: asked, given its grace, signalled where declared, cancelled last; judged by what is seen."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import Curves, Snapshot
from slurmplug.cluster.port import Command
from slurmplug.config.schema import Guardrails, Modes
from slurmplug.operations import (
    CANCEL_LIMIT,
    MAX_TRIES,
    CommandStatus,
    Observation,
    Operation,
    OperationOutcome,
    OperationSettings,
    advance,
)
from slurmplug.rules.grace import grace_seconds
from slurmplug.rules.guardrails import Past, check
from tests.builders import NOW, jobs, nodes, snapshot
from tests.fake_cluster import job_row, job_rows

GRACE = 60.0
SETTINGS = OperationSettings(grace=300.0, cancel=True)


class Story:
    """One job and its operation, cycle after cycle; `status` is what comes of each command."""

    def __init__(self, **columns: Any) -> None:
        self.columns = {"state": "running", "grace": GRACE, **columns}
        self.settings = SETTINGS
        self.modes = Modes(default="act")
        self.past = Past(NOW)
        self.now = NOW
        self.cycle = 0
        self.operation: Operation | None = None
        self.said: list[Command] = []

    def look(
        self,
        after: float = 10.0,
        *,
        stop: bool = False,
        status: CommandStatus = "done",
        gone: bool = False,
        **columns: Any,
    ) -> str:
        """The verb of the command of the next cycle, or nothing; `status` is what then comes of it."""
        self.now += after
        self.cycle += 1
        self.columns |= columns
        seen = snapshot(jobs(0 if gone else 1, **self.columns), nodes(1), cycle=self.cycle, now=self.now)
        return self.step(seen, stop, status)

    def step(self, seen: Snapshot, stop: bool, status: CommandStatus) -> str:
        actions = (Action("stop", seen.jobs.keys[0], Reason("target", {"achieved": 0.9})),) if stop else ()
        plan = Plan(np.zeros(len(seen.jobs)), actions=actions)
        verdict = check(seen, plan, replace(self.past, now=self.now), self.modes, Guardrails())
        opened = [self.operation] if self.operation and self.operation.step != "ended" else []
        moved, commands, _ = advance(Observation(seen), verdict, opened, self.settings)
        assert len(moved) <= 1
        assert len(commands) <= 1
        if moved:
            [self.operation] = moved
        for command in commands:
            assert command.operation == (self.operation and self.operation.id)
            if self.operation and self.operation.step != "ended":
                self.operation = replace(self.operation, last_status=status)
        self.said += commands
        return commands[0].verb if commands else ""

    @property
    def result(self) -> str:
        assert self.operation
        assert self.operation.step == "ended"
        return self.operation.result


def test_a_job_that_stops_when_it_is_asked_is_only_asked() -> None:
    story = Story()
    assert story.look(stop=True) == "ask"
    assert story.look(stop=True) == ""
    assert story.look(state="completing") == ""
    assert story.look(gone=True) == "withdraw"
    assert story.result == "stopped"
    told, withdrawn = [dict(command.fields) for command in story.said]
    assert json.loads(told.pop("content")) == {
        "version": 1, "reason": "other", "status": 0, "quantity": "accuracy", "value": 0.9
    }  # fmt: skip
    assert told == withdrawn == {"what": "stop", "restart": "0"}


def test_a_job_that_does_not_stop_is_cancelled_after_its_grace() -> None:
    story = Story()
    story.look(stop=True)
    assert story.look(GRACE - 0.1) == ""
    assert story.look(0.1) == "cancel"
    assert story.look() == ""
    assert story.look(gone=True) == "withdraw"
    assert story.result == "cancelled"


def test_a_clock_that_is_set_back_begins_the_grace_anew_and_does_not_add_what_it_was_set_back_by() -> None:
    story = Story()
    story.look(stop=True)
    assert story.look(-7200.0) == ""
    assert story.look(GRACE - 0.1) == ""
    assert story.look(0.1) == "cancel"


def test_a_job_that_declared_a_signal_is_signalled_between_and_given_its_grace_again() -> None:
    story = Story(signal="USR1", signal_to="batch")
    story.look(stop=True)
    assert story.look(GRACE) == "signal"
    assert story.said[-1].fields == {"signal": "USR1", "to": "batch"}
    assert story.look(GRACE - 1) == ""
    assert story.look(1.0) == "cancel"


def test_a_job_that_declared_no_grace_has_the_sites() -> None:
    story = Story(grace=np.nan)
    story.look(stop=True)
    assert story.look(299.0) == ""
    assert story.look(1.0) == "cancel"


def test_a_job_that_seldom_reports_has_twice_the_time_between_its_reports() -> None:
    story = Story(grace=np.nan, iteration_time=500.0)
    story.look(stop=True)
    assert story.look(999.0) == ""
    assert story.look(1.0) == "cancel"


def test_what_is_between_reports_may_be_many_iterations() -> None:
    curves = Curves(np.array([10.0, 15.0]), np.array([0.5, 0.6]), np.array([0, 2]))
    reporting = replace(jobs(1, grace=np.nan, iteration_time=100.0), accuracies=curves)
    assert grace_seconds(snapshot(reporting, nodes(1)), 0, SETTINGS.grace) == 1000.0


def test_what_a_job_reports_gives_it_no_longer_grace_than_it_could_declare() -> None:
    curves = Curves(np.array([1.0, 2.0, 3.0, 1e12]), np.array([0.1, 0.2, 0.3, 0.4]), np.array([0, 4]))
    reporting = replace(jobs(1, grace=np.nan, iteration_time=100.0), accuracies=curves)
    assert grace_seconds(snapshot(reporting, nodes(1)), 0, SETTINGS.grace) == 86_400.0


def test_a_grace_that_was_declared_holds_however_seldom_a_job_reports() -> None:
    story = Story(iteration_time=1e4)
    story.look(stop=True)
    assert story.look(GRACE) == "cancel"


def test_where_cancelling_is_off_a_job_that_does_not_stop_goes_on_and_the_request_is_taken_back() -> None:
    story = Story()
    story.settings = replace(SETTINGS, cancel=False)
    story.look(stop=True)
    assert story.look(GRACE) == "withdraw"
    assert story.look() == ""
    assert story.operation is not None
    assert story.operation.outcome is OperationOutcome.IGNORED
    assert story.result.startswith("ignored: the job did not stop within its grace period")


def test_grace_begins_when_the_request_came_through() -> None:
    story = Story()
    assert story.look(stop=True, status="unknown") == "ask"
    assert story.look(GRACE + 1, status="refused") == "ask"
    assert story.look(GRACE + 1, status="done") == "ask"
    assert story.look(GRACE - 1) == ""
    assert story.look(1.0) == "cancel"


@pytest.mark.parametrize("status", ["refused", "unknown"])
@pytest.mark.parametrize("step", ["ask", "cancel"])
def test_a_command_that_never_succeeds_is_given_up(status: CommandStatus, step: str) -> None:
    story = Story()
    story.look(stop=True, status=status if step == "ask" else "done")
    if step == "cancel":
        assert story.look(GRACE, status=status) == "cancel"
    for _ in range(MAX_TRIES - 1):
        assert story.look(status=status) == step
    assert story.look() == "withdraw"
    assert story.look() == ""
    assert story.result == "gave up: Slurm or the spool refused"


def test_a_job_that_outlives_its_cancellation_is_given_up() -> None:
    story = Story()
    story.look(stop=True)
    story.look(GRACE)
    assert story.look(CANCEL_LIMIT - 1) == ""
    assert story.look(1.0) == "withdraw"
    assert story.look() == ""
    assert story.result == "gave up: the job still ran after scancel"


def test_a_job_that_completes_is_waited_for_however_long() -> None:
    story = Story()
    story.look(stop=True)
    assert story.look(1e6, state="completing") == ""


def test_a_suspended_job_cannot_save_so_its_grace_begins_anew() -> None:
    story = Story()
    story.look(stop=True)
    for _ in range(3):
        assert story.look(GRACE, state="suspended") == ""
    assert story.look(GRACE - 1, state="running") == ""
    assert story.look(1.0) == "cancel"


@pytest.mark.parametrize("seen", [{"restarts": 1}, {"state": "pending", "restarts": 1}, {"state": "pending"}])
def test_a_job_that_was_requeued_is_let_go_and_its_old_request_taken_back(seen: dict[str, Any]) -> None:
    story = Story()
    story.look(stop=True)
    assert story.look(**seen) == "withdraw"
    assert story.result == "requeued meanwhile"
    assert story.said[-1].fields["restart"] == "0"


def test_a_job_that_ended_although_it_could_not_be_asked_was_not_stopped() -> None:
    story = Story()
    story.look(stop=True, status="refused")
    story.look(gone=True)
    assert story.result == "ended by itself"


def test_a_job_that_is_gone_when_its_cancellation_was_not_answered_was_cancelled() -> None:
    story = Story()
    story.look(stop=True)
    story.look(GRACE, status="unknown")
    story.look(gone=True)
    assert story.result == "cancelled"


LET_GO: dict[str, Any] = {
    "another mode": lambda story: setattr(story, "modes", Modes(default="act", stop="advise")),
    "a pause": lambda story: setattr(story, "past", Past(NOW, paused=True)),
    "given back": lambda story: setattr(story, "past", Past(NOW, given_back=frozenset({1}))),
    "held": lambda story: story.columns.update(held=True),
    "unmanaged": lambda story: story.columns.update(managed=False),
}


@pytest.mark.parametrize("why", LET_GO)
@pytest.mark.parametrize("signal", ["", "USR1"])
def test_a_job_that_may_no_longer_be_stopped_is_let_go(why: str, signal: str) -> None:
    story = Story(signal=signal, signal_to="batch")
    story.look(stop=True)
    if signal:
        assert story.look(GRACE) == "signal"
    LET_GO[why](story)
    assert story.look(GRACE) == "withdraw"
    assert story.look() == ""
    assert story.result == "withdrawn"


@pytest.mark.parametrize("status", ["unknown", "refused", ""])
def test_a_job_that_is_let_go_is_told_until_it_knows_and_not_asked_meanwhile(status: CommandStatus) -> None:
    story = Story()
    story.look(stop=True)
    story.past = Past(NOW, paused=True)
    for _ in range(2 * MAX_TRIES):
        assert story.look(status=status) == "withdraw"
    story.past = Past(NOW)
    assert story.look(stop=True) == "withdraw"
    assert story.look(stop=True) == ""
    assert story.result == "withdrawn"
    assert story.look(stop=True) == "ask"


@pytest.mark.parametrize("seen", [{"gone": True}, {"restarts": 1}])
def test_a_run_that_is_over_needs_no_longer_be_let_go(seen: dict[str, Any]) -> None:
    story = Story()
    story.look(stop=True)
    story.past = Past(NOW, paused=True)
    story.look(status="unknown")
    assert story.look(**seen) == ""
    assert story.result == "withdrawn"


@pytest.mark.parametrize("why", LET_GO)
@pytest.mark.parametrize(("status", "said"), [("unknown", ""), ("", ""), ("refused", "withdraw"), ("done", "")])
def test_a_job_that_may_no_longer_be_stopped_is_not_cancelled_once_more(
    why: str, status: CommandStatus, said: str
) -> None:
    story = Story()
    story.look(stop=True)
    assert story.look(GRACE, status=status) == "cancel"
    LET_GO[why](story)
    assert story.look() == said


def test_a_job_whose_cancellation_was_in_doubt_in_a_pause_is_cancelled_after_it() -> None:
    story = Story()
    story.look(stop=True)
    story.look(GRACE, status="unknown")
    story.past = Past(NOW, paused=True)
    assert story.look(1e4) == ""
    story.past = Past(NOW)
    assert story.look() == "cancel"


def test_a_frozen_cycle_says_nothing_and_changes_nothing() -> None:
    seen = snapshot(jobs(2, state="running"), nodes(1))
    plan = Plan(np.zeros(2), actions=(Action("stop", seen.jobs.keys[0], Reason("target")),))
    verdict = check(seen, plan, Past(NOW + 1e6), Modes(default="act"), Guardrails())
    assert advance(Observation(seen), verdict, [], SETTINGS) == ((), (), ())


def test_a_job_that_is_being_stopped_is_not_asked_to_twice() -> None:
    seen = snapshot(jobs(2, state="running"), nodes(1))
    actions = [Action("stop", seen.jobs.keys[row], Reason("target")) for row in (0, 0, 1)]
    verdict = check(seen, Plan(np.zeros(2), actions=tuple(actions)), Past(NOW), Modes(default="act"), Guardrails())
    operations, commands, _ = advance(Observation(seen), verdict, [], SETTINGS)
    assert [operation.job for operation in operations] == list(seen.jobs.keys)
    assert len({command.id for command in commands}) == 2
    listed = [replace(operation, last_status="done") for operation in operations]
    assert advance(Observation(seen), verdict, listed, SETTINGS) == ((), (), ())


def test_commands_and_operations_have_names_of_their_own() -> None:
    story = Story(signal="USR1", signal_to="full")
    story.look(stop=True, status="unknown")
    for status in ("done", "unknown", "done", "refused", "done"):
        story.look(GRACE, status=status)
    story.look(gone=True)
    names = [command.id for command in story.said]
    assert len(set(names)) == len(names)
    assert [command.verb for command in story.said] == [
        "ask",
        "ask",
        "signal",
        "signal",
        "cancel",
        "cancel",
        "withdraw",
    ]


def test_a_component_of_a_heterogeneous_job_is_stopped_by_its_leader_and_once() -> None:
    seen = snapshot(jobs(3, state="running"), nodes(1))
    rows = [job_row(number, het_id=1 if number < 3 else 0, state="RUNNING") for number in (1, 2, 3)]
    actions = tuple(Action("stop", key, Reason("target")) for key in reversed(seen.jobs.keys))
    verdict = check(seen, Plan(np.zeros(3), actions=actions), Past(NOW), Modes(default="act"), Guardrails())
    operations, commands, _ = advance(Observation(seen, queue=job_rows(rows)), verdict, [], SETTINGS)
    assert sorted(operation.job.job_id for operation in operations) == [1, 3]
    assert sorted(command.job.job_id for command in commands) == [1, 3]
