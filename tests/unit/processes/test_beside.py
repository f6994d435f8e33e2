"""Questions that are answered beside the cycles."""

import threading

import pytest

from slurmplug.processes import beside
from slurmplug.processes.beside import Question


def test_an_answer_is_taken_once() -> None:
    question: Question[int] = Question("one")
    assert question.take() is None
    question.put(lambda: 7)
    assert (question.take(), question.take(), question.open) == (7, None, False)


def test_after_a_late_answer_the_next_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "WAIT", 0.01)
    question, go = Question[int]("late"), threading.Event()
    question.put(lambda: 7 if go.wait(60) else 0)
    assert question.take() is None
    monkeypatch.setattr(beside, "WAIT", 3600.0)
    question.put(lambda: 8 if go.wait(60) else 0)
    assert question.take() is None
    go.set()
    assert question._future is not None
    question._future.result(60)
    assert question.take() == 8
    question.put(lambda: 9)
    assert question.take() == 9


def test_an_answer_that_took_long_is_late_also_where_it_is_there_when_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(beside, "WAIT", 0.0)
    question, go = Question[int]("late"), threading.Event()
    question.put(lambda: 7 if go.wait(60) else 0)
    assert question.take() is None
    go.set()
    while question.take() is None:
        pass
    monkeypatch.setattr(beside, "WAIT", 3600.0)
    go.clear()
    question.put(lambda: 8 if go.wait(60) else 0)
    assert question.take() is None
    go.set()


def test_what_it_raised_is_raised_where_it_is_taken_and_another_can_be_put() -> None:
    question: Question[int] = Question("failing")
    question.put(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        question.take()
    question.put(lambda: 7)
    assert question.take() == 7
