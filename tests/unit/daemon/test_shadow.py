"""A model in shadow decides beside the acting policy, in a process of its own, and has no effect."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from policies.model import Model
from policies.plan import NOTHING_REMEMBERED
from policies.policy import Policy
from slurmplug.config import model_files, policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle.agreement import Decision
from slurmplug.daemon.shadow import Question, Shadow, decide
from slurmplug.ledger.model_outcomes import ModelCycle
from tests.builders import forecasts, jobs, nodes, snapshot
from tests.learnt_models import install_scripted, like_shipped, poisoned, scripted

KNOWS_ALL = like_shipped("knows all", seen_limit=np.array([1e30], dtype=np.float32))
WAITING = snapshot(jobs(3, reason="Resources", gpus=2), nodes(1))
FORECASTS = forecasts(3, total=[300.0, 200.0, 100.0], remaining=[300.0, 200.0, 100.0])
QUESTION = Question(7, WAITING, FORECASTS, Decision(np.array([1.0, 2.0, 3.0]), frozenset()))
CONFIG = Config()


def by(model: Model) -> Policy:
    return policy_registry.promoted(CONFIG, model, policy_registry.policy(CONFIG))


def test_what_it_would_have_decided_is_compared_with_what_was() -> None:
    answer, memory = decide(by(KNOWS_ALL), CONFIG, QUESTION, NOTHING_REMEMBERED)
    assert (answer.cycle, answer.role, answer.error) == (7, "shadow", "")
    assert -1.0 <= answer.ranks <= 1.0
    assert answer.gain <= 0.0, "nothing ends jobs sooner than the shortest first"
    assert "slot" in memory


def test_who_was_passed_too_often_is_first_for_it_too() -> None:
    """The third is the shortest, and the model puts it first; the first has waited for an hour, passed by others."""
    waited = snapshot(jobs(3, reason="Resources", gpus=2, waited=[7200.0, 0.0, 0.0]), nodes(1))
    names = np.array([key[1:] for key in waited.jobs.keys])
    counted = {"now": np.array([waited.now]), "job": names, "had": np.zeros(3), "waited": waited.jobs.waited}
    acting = Decision(np.array([3.0, 1.0, 2.0]), frozenset())
    question = Question(7, waited, FORECASTS, acting, counted)
    answer, _ = decide(by(KNOWS_ALL), CONFIG, question, NOTHING_REMEMBERED)
    unbounded, _ = decide(by(KNOWS_ALL), CONFIG, question._replace(precedence=None), NOTHING_REMEMBERED)
    assert answer.ranks > unbounded.ranks


def test_a_state_that_it_does_not_know_is_an_error() -> None:
    unknowing = like_shipped("knows none", seen_limit=np.array([1e-30], dtype=np.float32))
    answer, _ = decide(by(unknowing), CONFIG, QUESTION, NOTHING_REMEMBERED)
    assert "unlike those it was trained on" in answer.error
    assert np.isnan(answer.ranks)


def test_a_poisoned_model_is_an_error() -> None:
    with np.errstate(all="ignore"):
        answer, _ = decide(by(poisoned()), CONFIG, QUESTION, NOTHING_REMEMBERED)
    assert answer.error == "FloatingPointError: the network's answer is not finite numbers"


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_scripted(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def shadows() -> Iterator[list[Shadow]]:
    begun: list[Shadow] = []
    yield begun
    for each in begun:
        each.close()


def begin(shadows: list[Shadow], seconds: float, interval: float) -> Shadow:
    data = model_files.encode(scripted(seconds=seconds))
    shadow = Shadow(Config(interval=interval), "digest", data, frozenset({"total", "remaining"}))
    shadows.append(shadow)
    return shadow


def next_answer(shadow: Shadow, question: Question = QUESTION) -> ModelCycle:
    until = time.monotonic() + 120.0
    while time.monotonic() < until:
        if (answer := shadow.exchange(question)) is not None:
            return answer
        time.sleep(0.05)
    raise AssertionError("it does not answer")


def test_its_process_answers_one_question_after_another(slow: None, shadows: list[Shadow]) -> None:
    shadow = begin(shadows, 0.0, 60.0)
    first = next_answer(shadow)
    assert (first.cycle, first.error) == (7, "")
    assert next_answer(shadow, QUESTION._replace(cycle=8)).error == ""


def test_one_that_takes_too_long_is_ended_and_another_begins(slow: None, shadows: list[Shadow]) -> None:
    shadow = begin(shadows, 600.0, 1.0)
    first = shadow._child
    assert "longer than 1 s to decide" in next_answer(shadow).error
    assert not first.running
    assert shadow._child.running


def test_one_that_dies_is_an_error_and_another_begins(slow: None, shadows: list[Shadow]) -> None:
    shadow = begin(shadows, 600.0, 60.0)
    while shadow._open is None:
        assert shadow.exchange(QUESTION) is None
        time.sleep(0.05)
    os.kill(shadow._child.pid, signal.SIGKILL)
    assert next_answer(shadow).error == "the process in which it decided has ended"
    assert shadow._child.running


def test_no_cycle_waits_for_it(slow: None, shadows: list[Shadow]) -> None:
    shadow = begin(shadows, 600.0, 60.0)
    while shadow._open is None:
        shadow.exchange(QUESTION)
        time.sleep(0.05)
    for _ in range(3):
        assert shadow.exchange(QUESTION) is None
