"""Functions called in another process: what they return and raise, and one that hangs stops nothing."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.errors import LedgerError
from slurmplug.processes import child
from slurmplug.processes.worker import Worker


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(child, "PAUSE", 0.0)
    one = Worker("test")
    yield one
    one.close()


def refuse() -> None:
    raise LedgerError("not this one")


def test_what_a_function_returns_and_raises_comes_here(worker: Worker) -> None:
    assert worker.call(os.getpid, seconds=60) == worker.pid
    with pytest.raises(FileNotFoundError):
        worker.call(os.stat, "/nowhere", seconds=60)
    with pytest.raises(LedgerError, match="not this one"):
        worker.call(refuse, seconds=60)


def test_one_that_hangs_in_a_file_is_replaced_by_another(worker: Worker, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    first = worker.call(os.getpid, seconds=60)
    with pytest.raises(TimeoutError):
        worker.call(Path.read_bytes, pipe, seconds=0.1)
    assert worker.call(os.getpid, seconds=60) not in (first, os.getpid())


def test_one_that_cannot_be_ended_is_not_replaced_and_costs_no_wait(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.call(os.getpid, seconds=60)
    os.kill(worker.pid, signal.SIGSTOP)
    monkeypatch.setattr("subprocess.Popen.kill", lambda _: None)
    for seconds in (0.1, 3_600, 3_600):
        with pytest.raises(TimeoutError):
            worker.call(os.getpid, seconds=seconds)
    monkeypatch.undo()
    os.kill(worker.pid, signal.SIGCONT)


def test_an_answer_is_waited_for_in_turns_and_a_late_one_is_not_another_calls(worker: Worker, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    worker.call(os.getpid, seconds=60)
    worker.begin(Path.read_text, pipe)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            worker.result(0.0)
    worker.begin(os.getpid)
    pipe.write_text("late")
    assert worker.result(60) == worker.pid


def test_in_a_hurry_nothing_is_waited_for(worker: Worker) -> None:
    worker.call(os.getpid, seconds=60)
    worker.finish_within(0.0)
    with pytest.raises(TimeoutError):
        worker.call(time.sleep, 3_600, seconds=3_600)
