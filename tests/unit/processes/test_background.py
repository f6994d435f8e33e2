"""Questions that are answered beside the cycles."""

import threading

import pytest

from slurmplug.processes import background
from slurmplug.processes.background import BackgroundCall


def test_an_answer_is_taken_once() -> None:
    call: BackgroundCall[int] = BackgroundCall("one")
    assert call.poll() is None
    call.start(lambda: 7)
    assert (call.poll(), call.poll(), call.pending) == (7, None, False)


def test_after_a_late_answer_the_next_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "WAIT", 0.01)
    call, go = BackgroundCall[int]("late"), threading.Event()
    call.start(lambda: 7 if go.wait(60) else 0)
    assert call.poll() is None
    monkeypatch.setattr(background, "WAIT", 3600.0)
    call.start(lambda: 8 if go.wait(60) else 0)
    assert call.poll() is None
    go.set()
    assert call._future is not None
    call._future.result(60)
    assert call.poll() == 8
    call.start(lambda: 9)
    assert call.poll() == 9


def test_an_answer_that_took_long_is_late_also_where_it_is_there_when_it_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "WAIT", 0.0)
    call, go = BackgroundCall[int]("late"), threading.Event()
    call.start(lambda: 7 if go.wait(60) else 0)
    assert call.poll() is None
    go.set()
    while call.poll() is None:
        pass
    monkeypatch.setattr(background, "WAIT", 3600.0)
    go.clear()
    call.start(lambda: 8 if go.wait(60) else 0)
    assert call.poll() is None
    go.set()


def test_what_it_raised_is_raised_where_it_is_taken_and_another_can_be_put() -> None:
    call: BackgroundCall[int] = BackgroundCall("failing")
    call.start(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        call.poll()
    call.start(lambda: 7)
    assert call.poll() == 7
