"""The spool in a process of its own: the same as in this one, and one that hangs or ends stops nothing."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from slurmplug.errors import AlreadyRunning
from slurmplug.ledger.lock import only_one
from slurmplug.processes import child
from slurmplug.spool import process
from slurmplug.spool.process import UNANSWERED, SpoolProcess
from slurmplug.spool.report_files import NewReports
from slurmplug.spool.requests import Request
from slurmplug.spool.values import RunId, SpoolFault

RUN, ME = RunId(5, 0), {RunId(5, 0): os.getuid()}
LINE = b'{"iteration":1}\n'
SILENT = (SpoolFault(0, "spool", UNANSWERED, 1),)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PAUSE", 0.0)
    monkeypatch.setattr(process, "START_SECONDS", 60.0)


def begun(path: Path) -> SpoolProcess:
    one = SpoolProcess(path, only_one)
    try:
        one.begin()
    except AlreadyRunning:
        one.close()
        raise
    return one


@pytest.fixture
def asked(spool: Path) -> Iterator[SpoolProcess]:
    one = begun(spool)
    yield one
    one.close()


@pytest.fixture
def impatient(asked: SpoolProcess, monkeypatch: pytest.MonkeyPatch) -> SpoolProcess:
    monkeypatch.setattr(process, "ANSWER_SECONDS", 0.1)
    return asked


def until_answered(asked: SpoolProcess) -> NewReports:
    """What is read when it answers again."""
    new = asked.read(ME)
    while SILENT[0] in new.faults:
        time.sleep(0.01)
        new = asked.read(ME)
    return new


def hung(asked: SpoolProcess) -> None:
    """As with a file system that hangs: it reads on when that goes on."""
    os.kill(asked.pid, signal.SIGSTOP)


def test_reports_and_requests_are_as_in_this_process(asked: SpoolProcess, spool: Path, reports: Path) -> None:
    (reports / "5.0.jsonl").write_bytes(LINE)
    assert asked.read(ME).lines == {RUN: LINE}
    assert asked.read(ME) == NewReports({}, ())
    assert asked.write_requests([Request(RUN, "stop", "now"), Request(RUN, "checkpoint", None)]) == ["", ""]
    assert (spool / "requests/5.0.stop").read_text() == "now"
    assert asked.open_runs("stop") == [RUN]
    asked.write_requests([Request(RUN, "stop", None)])
    assert asked.open_runs("stop") == []
    asked.write_waiting({3, 2})
    assert asked.read_waiting() == {2, 3}
    asked.write_notices({RUN: "note"})
    assert asked.sweep([RUN], [RUN], time.time() + 9) == ((), True)
    assert [path.name for path in (spool / "requests").iterdir()] == ["5.0.notice"]


def test_its_errors_are_raised_here(asked: SpoolProcess, spool: Path) -> None:
    (spool / "requests").rmdir()
    with pytest.raises(FileNotFoundError, match="No such file"):
        asked.open_runs("stop")
    assert asked.write_requests([Request(RUN, "stop")]) == ["No such file or directory"]


def test_one_daemon_a_spool(asked: SpoolProcess, spool: Path) -> None:
    with pytest.raises(AlreadyRunning, match="another daemon"):
        begun(spool)
    asked.close()
    begun(spool).close()


def test_a_spool_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    asked = begun(tmp_path / "nowhere")
    assert [fault.rule for fault in asked.read(ME).faults] == ["spool"]
    asked.close()


def test_one_that_hangs_costs_one_wait_and_nothing_is_lost(
    impatient: SpoolProcess, reports: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    file = reports / "5.0.jsonl"
    file.write_bytes(LINE)
    hung(impatient)
    assert impatient.read(ME) == NewReports({}, SILENT)
    with pytest.raises(TimeoutError, match=UNANSWERED):
        impatient.write_requests([Request(RUN, "stop")])
    with pytest.raises(TimeoutError, match=UNANSWERED):
        impatient.write_waiting([])
    assert impatient.sweep([], [], 0.0) == (SILENT, True)
    assert caplog.text.count("progress is not known") == 1
    os.kill(impatient.pid, signal.SIGCONT)
    assert until_answered(impatient).lines == {RUN: LINE}
    assert "answers again" in caplog.text
    with file.open("ab") as more:
        more.write(LINE)
    assert until_answered(impatient).lines == {RUN: LINE}


def test_a_call_after_one_that_hung_does_not_wait(asked: SpoolProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    hung(asked)
    monkeypatch.setattr(process, "ANSWER_SECONDS", 0.1)
    asked.read(ME)
    monkeypatch.setattr(process, "ANSWER_SECONDS", 3_600.0)
    assert asked.read(ME).faults == SILENT


def test_a_slow_one_keeps_a_cycle_no_longer_with_many_calls_than_with_one(
    asked: SpoolProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "ANSWER_SECONDS", 2.0)
    for _ in range(2):
        until_answered(asked)
        asked.call(time.sleep, 1.2)
        with pytest.raises(TimeoutError):
            asked.call(time.sleep, 1.2)
        for _ in range(100):
            with pytest.raises(TimeoutError):
                asked.write_requests([Request(RUN, "stop")])


def test_one_that_ended_is_started_again_and_goes_on_where_it_was(
    asked: SpoolProcess, spool: Path, reports: Path
) -> None:
    file = reports / "5.0.jsonl"
    file.write_bytes(LINE + LINE[:4])
    assert asked.read(ME).lines == {RUN: LINE}
    first = asked.pid
    os.kill(first, signal.SIGKILL)
    with file.open("ab") as more:
        more.write(LINE[4:])
    assert until_answered(asked).lines == {RUN: LINE}
    assert asked.pid != first
    with pytest.raises(AlreadyRunning):
        begun(spool)


def test_one_that_hangs_for_long_is_replaced(
    impatient: SpoolProcess, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (reports / "5.0.jsonl").write_bytes(LINE)
    hung(impatient)
    first = impatient.pid
    impatient.read(ME)
    monkeypatch.setattr(process, "GIVE_UP", 0.0)
    monkeypatch.setattr(process, "ANSWER_SECONDS", 60.0)
    impatient.read(ME)
    assert until_answered(impatient).lines == {RUN: LINE}
    assert impatient.pid != first


def test_one_that_cannot_be_ended_is_not_replaced(impatient: SpoolProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that sleeps in the kernel: then there would be another one for each cycle."""
    hung(impatient)
    monkeypatch.setattr("subprocess.Popen.kill", lambda _: None)
    monkeypatch.setattr(process, "GIVE_UP", 0.0)
    first = impatient.pid
    for _ in range(3):
        assert impatient.read(ME).faults == SILENT
    assert impatient.pid == first
    monkeypatch.undo()


@pytest.fixture
def freezing(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which can be frozen; only root may, and not in every container."""
    image, place = tmp_path / "image", tmp_path / "place"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    made = [["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)]]
    if not all(shutil.which(each[0]) for each in [*made, ["fsfreeze"]]) or any(
        subprocess.run(each, capture_output=True, check=False).returncode for each in made
    ):
        pytest.skip("no file system can be mounted here")
    try:
        for name in ("reports", "requests"):
            (place / name).mkdir()
        yield place
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(place)], capture_output=True, check=False)
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_frozen_file_system_keeps_neither_the_daemon_nor_the_next_one(
    freezing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process sleeps in the kernel, where no signal ends it, and its lock is not a running daemon's."""
    (freezing / "reports/5.0.jsonl").write_bytes(LINE)
    first = begun(freezing)
    subprocess.run(["fsfreeze", "--freeze", str(freezing)], check=True)
    monkeypatch.setattr(process, "ANSWER_SECONDS", 0.1)
    with pytest.raises(TimeoutError):
        first.write_waiting([1])
    while Path(f"/proc/{first.pid}/wchan").read_text() == "0":
        time.sleep(0.01)
    first.close()
    assert Path(f"/proc/{first.pid}").exists(), "it was not killed"
    monkeypatch.setattr(process, "START_SECONDS", process.LOCK_SECONDS + 2)
    second = begun(freezing)
    assert second.read(ME) == NewReports({}, SILENT)
    subprocess.run(["fsfreeze", "--unfreeze", str(freezing)], check=True)
    assert until_answered(second).lines == {RUN: LINE}
    second.close()
    first.close()


def test_a_killed_process_that_ends_while_its_lock_is_looked_at_holds_it_no_more(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [True]

    @contextmanager
    def lock(_: Path) -> Iterator[None]:
        if held[0]:
            raise AlreadyRunning("another daemon holds it")
        yield

    def looked_at(_: Path) -> bool:
        held[0] = False
        return False

    monkeypatch.setattr(process, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(process, "_held_by_killed", looked_at)
    with ExitStack() as stack:
        process._hold(stack, lock, spool)


def test_a_daemon_that_is_to_stop_waits_for_a_moment_only(spool: Path) -> None:
    stopping: list[int] = []
    asked = SpoolProcess(spool, only_one, lambda: not stopping)
    asked.begin()
    hung(asked)
    stopping.append(signal.SIGTERM)
    assert asked.read(ME).faults == SILENT
    asked.close()


def test_reports_of_a_run_that_was_requeued_meanwhile_are_dropped(impatient: SpoolProcess, reports: Path) -> None:
    (reports / "5.0.jsonl").write_bytes(LINE)
    hung(impatient)
    impatient.read(ME)
    os.kill(impatient.pid, signal.SIGCONT)
    new = impatient.read({RunId(5, 1): os.getuid()})
    while new.faults:
        new = impatient.read({RunId(5, 1): os.getuid()})
    assert not new.lines


def test_runs_that_are_costly_to_take_in_leave_less_to_be_read(asked: SpoolProcess, reports: Path) -> None:
    runs = {RunId(job, 0): os.getuid() for job in range(1, 101)}
    for run in runs:
        (reports / f"{run.job_id}.0.jsonl").write_bytes(LINE)
    asked.merge_costs = dict.fromkeys(runs, 20_000.0)
    assert 10 < len(asked.read(runs).lines) < 20
