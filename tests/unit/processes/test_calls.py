"""Functions called in another process: what they return and raise, and one that hangs stops nothing."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.errors import LedgerError
from slurmplug.processes import child
from slurmplug.processes.calls import Calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    monkeypatch.setattr(child, "PAUSE", 0.0)
    one = Calls("test")
    yield one
    one.close()


def refuse() -> None:
    raise LedgerError("not this one")


def test_what_a_function_returns_and_raises_comes_here(calls: Calls) -> None:
    assert calls.call(os.getpid, seconds=60) == calls.pid
    with pytest.raises(FileNotFoundError):
        calls.call(os.stat, "/nowhere", seconds=60)
    with pytest.raises(LedgerError, match="not this one"):
        calls.call(refuse, seconds=60)


def test_one_that_hangs_in_a_file_is_replaced_by_another(calls: Calls, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    first = calls.call(os.getpid, seconds=60)
    with pytest.raises(TimeoutError):
        calls.call(Path.read_bytes, pipe, seconds=0.1)
    assert calls.call(os.getpid, seconds=60) not in (first, os.getpid())


def test_one_that_cannot_be_ended_is_not_replaced_and_costs_no_wait(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.call(os.getpid, seconds=60)
    os.kill(calls.pid, signal.SIGSTOP)
    monkeypatch.setattr("subprocess.Popen.kill", lambda _: None)
    for seconds in (0.1, 3_600, 3_600):
        with pytest.raises(TimeoutError):
            calls.call(os.getpid, seconds=seconds)
    monkeypatch.undo()
    os.kill(calls.pid, signal.SIGCONT)


def test_an_answer_is_waited_for_in_turns_and_a_late_one_is_not_another_calls(calls: Calls, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    calls.call(os.getpid, seconds=60)
    calls.begin(Path.read_text, pipe)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            calls.take(0.0)
    calls.begin(os.getpid)
    pipe.write_text("late")
    assert calls.take(60) == calls.pid


def test_in_a_hurry_nothing_is_waited_for(calls: Calls) -> None:
    calls.call(os.getpid, seconds=60)
    calls.hurry(0.0)
    with pytest.raises(TimeoutError):
        calls.call(time.sleep, 3_600, seconds=3_600)
