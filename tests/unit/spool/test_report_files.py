"""Reading report files that anybody may have put into the spool."""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurmplug.spool.json_lines import MAX_LINE_BYTES
from slurmplug.spool.report_files import CLOCK_DIFFERENCE, NewReports, ReadLimits
from slurmplug.spool.values import RunId, SpoolFault
from tests.reading import ReaderOnceAMinute

RUN = RunId(5, 0)
ME = os.getuid()


def lines(*each: str) -> bytes:
    return b"".join(b'{"iteration":"%s"}\n' % one.encode() for one in each)


def test_only_new_bytes_are_read(spool: Path, reports: Path) -> None:
    reader, file = ReaderOnceAMinute(spool), reports / "5.0.jsonl"
    file.write_bytes(lines("one"))
    assert reader.read({RUN: ME}).lines == {RUN: lines("one")}
    assert reader.read({RUN: ME}).lines == {}
    with file.open("ab") as more:
        more.write(lines("two", "three"))
    assert reader.read({RUN: ME}).lines == {RUN: lines("two", "three")}


def test_a_torn_line_waits_for_its_end(spool: Path, reports: Path) -> None:
    reader, file = ReaderOnceAMinute(spool), reports / "5.0.jsonl"
    file.write_bytes(lines("one") + b'{"iteration":"tw')
    assert reader.read({RUN: ME}).lines == {RUN: lines("one")}
    with file.open("ab") as more:
        more.write(b'o"}\n')
    assert reader.read({RUN: ME}).lines == {RUN: lines("two")}


def test_only_the_runs_that_are_wanted_are_read(spool: Path, reports: Path) -> None:
    for name in ("5.0.jsonl", "5.1.jsonl", "6.0.jsonl", "05.0.jsonl", "5.0.jsonl.gz", "notes.txt"):
        (reports / name).write_bytes(lines(name))
    assert ReaderOnceAMinute(spool).read({RUN: ME}).lines == {RUN: lines("5.0.jsonl")}


def test_the_other_files_of_a_run_whose_name_was_taken_are_read_too(spool: Path, reports: Path) -> None:
    (reports / "5.0.jsonl").symlink_to("/etc/passwd")
    (reports / "5.0.0123abcd.jsonl").write_bytes(lines("mine"))
    new = ReaderOnceAMinute(spool).read({RUN: ME})
    assert new.lines == {RUN: lines("mine")}
    assert new.faults == (SpoolFault(5, "link", "", 1),)


def test_a_file_of_another_owner_is_not_believed_and_told_once(spool: Path, reports: Path) -> None:
    (reports / "5.0.jsonl").write_bytes(lines("one"))
    reader = ReaderOnceAMinute(spool)
    new = reader.read({RUN: ME + 1})
    assert (new.lines, new.faults) == ({}, (SpoolFault(5, "owner", f"uid {ME}", 1),))
    assert reader.read({RUN: ME + 1}).faults == ()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    folder = os.getcwd()
    os.chdir(path.parent)  # a socket's address is short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(folder)


@pytest.mark.parametrize("make", [_fifo, _socket, Path.mkdir])
def test_what_is_no_file_is_told_and_never_waited_for(spool: Path, reports: Path, make: Callable[[Path], None]) -> None:
    make(reports / "5.0.jsonl")
    new = ReaderOnceAMinute(spool).read({RUN: ME})
    assert (new.lines, new.faults) == ({}, (SpoolFault(5, "not a file", "", 1),))


def test_a_hard_link_to_another_users_file_is_out_by_its_owner(spool: Path, reports: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(lines("secret"))
    os.link(tmp_path / "theirs", reports / "5.0.jsonl")
    assert ReaderOnceAMinute(spool).read({RUN: ME + 1}).lines == {}


def test_a_truncated_file_is_read_from_its_start(spool: Path, reports: Path) -> None:
    reader, file = ReaderOnceAMinute(spool), reports / "5.0.jsonl"
    file.write_bytes(lines("one", "two"))
    reader.read({RUN: ME})
    file.write_bytes(lines("new"))
    new = reader.read({RUN: ME})
    assert (new.lines, new.faults) == ({RUN: lines("new")}, (SpoolFault(5, "truncated", "", 1),))


def test_a_rotated_file_is_read_from_its_start(spool: Path, reports: Path) -> None:
    reader, file = ReaderOnceAMinute(spool), reports / "5.0.jsonl"
    file.write_bytes(lines("one"))
    reader.read({RUN: ME})
    file.rename(reports / "old")
    file.write_bytes(lines("another, longer"))
    new = reader.read({RUN: ME})
    assert (new.lines, new.faults) == ({RUN: lines("another, longer")}, (SpoolFault(5, "rotated", "", 1),))


def test_a_file_that_vanished_and_came_back_is_read(spool: Path, reports: Path) -> None:
    reader, file = ReaderOnceAMinute(spool), reports / "5.0.jsonl"
    file.write_bytes(lines("one"))
    reader.read({RUN: ME})
    file.unlink()
    assert reader.read({RUN: ME}).lines == {}
    file.write_bytes(lines("two"))
    assert reader.read({RUN: ME}).lines == {RUN: lines("two")}


def test_a_line_without_end_is_given_up_and_the_next_is_read(spool: Path, reports: Path) -> None:
    reader, file = ReaderOnceAMinute(spool), reports / "5.0.jsonl"
    file.write_bytes(b"x" * (MAX_LINE_BYTES + 1))
    assert reader.read({RUN: ME}).faults == (SpoolFault(5, "long line", "", 1),)
    with file.open("ab") as more:
        more.write(b"x" * MAX_LINE_BYTES * 2)
    assert reader.read({RUN: ME}).faults == ()
    with file.open("ab") as more:
        more.write(b"end of it\n" + lines("good"))
    assert reader.read({RUN: ME}).lines == {RUN: lines("good")}


def test_a_cycle_reads_a_bounded_piece_of_a_large_file_and_the_next_goes_on(spool: Path, reports: Path) -> None:
    reader = ReaderOnceAMinute(spool, ReadLimits(file_cost=5_000))
    whole = lines(*map(str, range(1_000)))
    (reports / "5.0.jsonl").write_bytes(whole)
    read = [reader.read({RUN: ME}).lines.get(RUN, b"") for _ in range(6)]
    assert max(map(len, read)) < len(whole) / 2
    assert b"".join(read) == whole


def test_a_file_of_gigabytes_is_named_and_ignored(spool: Path, reports: Path) -> None:
    with (reports / "5.0.jsonl").open("wb") as file:
        file.truncate(8 << 30)
    new = ReaderOnceAMinute(spool).read({RUN: ME})
    assert new.lines == {}
    assert [fault.rule for fault in new.faults] == ["size"]


def test_a_run_with_very_many_files_is_read_from_a_few_and_told(spool: Path, reports: Path) -> None:
    for number in range(20):
        (reports / f"5.0.{number:x}.jsonl").write_bytes(lines("line"))
    new = ReaderOnceAMinute(spool).read({RUN: ME})
    assert new.lines == {RUN: lines("line") * 8}
    assert new.faults == (SpoolFault(5, "files", "more than 8", 12),)


def test_files_that_others_squat_do_not_use_up_a_runs_files(spool: Path, reports: Path) -> None:
    for number in range(20):
        (reports / f"5.0.{number:x}.jsonl").symlink_to("/nowhere")
    (reports / "5.0.jsonl").write_bytes(lines("mine"))
    assert ReaderOnceAMinute(spool).read({RUN: ME}).lines == {RUN: lines("mine")}


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may read everything, so let somebody else read."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_behind_a_closed_umask_is_told() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder)
        spool.chmod(0o755)
        (spool / "reports").mkdir(mode=0o755)
        (spool / "reports" / "5.0.jsonl").write_bytes(lines("one"))
        (spool / "reports" / "5.0.jsonl").chmod(0)
        with unprivileged():
            new = ReaderOnceAMinute(spool).read({RUN: ME})
    assert (new.lines, new.faults) == ({}, (SpoolFault(5, "unreadable", "Permission denied", 1),))


def test_a_spool_that_is_not_there_is_a_fault_and_no_error(tmp_path: Path) -> None:
    assert ReaderOnceAMinute(tmp_path).read({RUN: ME}).faults == (
        SpoolFault(0, "spool", "reports: No such file or directory", 1),
    )


def test_what_was_written_before_the_run_started_is_of_an_earlier_job(spool: Path, reports: Path) -> None:
    """Whatever is appended afterwards counts, as where the program does not look whose file it is."""
    reader, file = ReaderOnceAMinute(spool), reports / "5.0.jsonl"
    file.write_bytes(lines("old") + b"torn")
    os.utime(file, (1_000, 1_000))
    new = reader.read({RUN: ME}, {RUN: 2_000.0})
    assert (new.lines, new.faults) == ({}, (SpoolFault(5, "another job", "", 1),))
    assert reader.read({RUN: ME}, {RUN: 2_000.0}) == NewReports({}, ())
    with file.open("ab") as more:
        more.write(lines("new"))
    os.utime(file, (2_100, 2_100))
    assert reader.read({RUN: ME}, {RUN: 2_000.0}).lines == {RUN: lines("new")}


def test_the_clock_of_the_file_server_may_be_a_little_behind(spool: Path, reports: Path) -> None:
    file = reports / "5.0.jsonl"
    file.write_bytes(lines("one"))
    os.utime(file, (2_000 - CLOCK_DIFFERENCE,) * 2)
    assert ReaderOnceAMinute(spool).read({RUN: ME}, {RUN: 2_000.0}).lines == {RUN: lines("one")}


def test_files_of_an_earlier_job_leave_the_run_as_many_as_it_may_have(spool: Path, reports: Path) -> None:
    for number in range(3):
        (reports / f"5.0.{number}.jsonl").write_bytes(lines("old"))
        os.utime(reports / f"5.0.{number}.jsonl", (1_000, 1_000))
    (reports / "5.0.jsonl").write_bytes(lines("new"))
    reader = ReaderOnceAMinute(spool, ReadLimits(files_per_run=1))
    assert reader.read({RUN: ME}, {RUN: 2_000.0}).lines == {RUN: lines("new")}


def test_what_the_ledger_has_is_passed_over_and_not_read_again(spool: Path, reports: Path) -> None:
    """Two hours of reports: of a daemon that restarts, the ledger has all but the last five minutes."""
    each = [b'{"time":%d,"iteration":%d}\n' % (1_000_000 + at, at) for at in range(7_200)]
    (reports / "5.0.jsonl").write_bytes(b"".join(each))
    read = ReaderOnceAMinute(spool).read({RUN: ME}, stored={RUN: 1_006_900.0}).lines[RUN]
    assert read == b"".join(each)[-len(read) :]
    assert 600 <= read.count(b"\n") < 800


def test_nothing_is_passed_over_in_a_file_without_times(spool: Path, reports: Path) -> None:
    whole = lines(*map(str, range(1_000)))
    (reports / "5.0.jsonl").write_bytes(whole)
    assert ReaderOnceAMinute(spool).read({RUN: ME}, stored={RUN: 1_000_000.0}).lines[RUN] == whole
