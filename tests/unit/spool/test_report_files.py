"""Reading report files that anybody may have put into the spool."""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurmplug.spool.report_files import CLOCK_DIFFERENCE, NewReports, ReadLimits, ReportReader
from slurmplug.spool.report_lines import MAX_LINE_BYTES, RunId, SpoolFault

RUN = RunId(5, 0)
ME = os.getuid()


def test_only_new_bytes_are_read(spool: Path, reports: Path) -> None:
    reader, file = ReportReader(spool), reports / "5.0.jsonl"
    file.write_bytes(b"one\n")
    assert reader.read({RUN: ME}).lines == {RUN: b"one\n"}
    assert reader.read({RUN: ME}).lines == {}
    with file.open("ab") as more:
        more.write(b"two\nthree\n")
    assert reader.read({RUN: ME}).lines == {RUN: b"two\nthree\n"}


def test_a_torn_line_waits_for_its_end(spool: Path, reports: Path) -> None:
    reader, file = ReportReader(spool), reports / "5.0.jsonl"
    file.write_bytes(b"one\ntw")
    assert reader.read({RUN: ME}).lines == {RUN: b"one\n"}
    with file.open("ab") as more:
        more.write(b"o\n")
    assert reader.read({RUN: ME}).lines == {RUN: b"two\n"}


def test_only_the_runs_that_are_wanted_are_read(spool: Path, reports: Path) -> None:
    for name in ("5.0.jsonl", "5.1.jsonl", "6.0.jsonl", "05.0.jsonl", "5.0.jsonl.gz", "notes.txt"):
        (reports / name).write_bytes(name.encode() + b"\n")
    assert ReportReader(spool).read({RUN: ME}).lines == {RUN: b"5.0.jsonl\n"}


def test_the_other_files_of_a_run_whose_name_was_taken_are_read_too(spool: Path, reports: Path) -> None:
    (reports / "5.0.jsonl").symlink_to("/etc/passwd")
    (reports / "5.0.0123abcd.jsonl").write_bytes(b"mine\n")
    new = ReportReader(spool).read({RUN: ME})
    assert new.lines == {RUN: b"mine\n"}
    assert new.faults == (SpoolFault(5, "link", "", 1),)


def test_a_file_of_another_owner_is_not_believed_and_told_once(spool: Path, reports: Path) -> None:
    (reports / "5.0.jsonl").write_bytes(b"one\n")
    reader = ReportReader(spool)
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
    new = ReportReader(spool).read({RUN: ME})
    assert (new.lines, new.faults) == ({}, (SpoolFault(5, "not a file", "", 1),))


def test_a_hard_link_to_another_users_file_is_out_by_its_owner(spool: Path, reports: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"secret\n")
    os.link(tmp_path / "theirs", reports / "5.0.jsonl")
    assert ReportReader(spool).read({RUN: ME + 1}).lines == {}


def test_a_truncated_file_is_read_from_its_start(spool: Path, reports: Path) -> None:
    reader, file = ReportReader(spool), reports / "5.0.jsonl"
    file.write_bytes(b"one\ntwo\n")
    reader.read({RUN: ME})
    file.write_bytes(b"new\n")
    new = reader.read({RUN: ME})
    assert (new.lines, new.faults) == ({RUN: b"new\n"}, (SpoolFault(5, "truncated", "", 1),))


def test_a_rotated_file_is_read_from_its_start(spool: Path, reports: Path) -> None:
    reader, file = ReportReader(spool), reports / "5.0.jsonl"
    file.write_bytes(b"one\n")
    reader.read({RUN: ME})
    file.rename(reports / "old")
    file.write_bytes(b"another, longer\n")
    new = reader.read({RUN: ME})
    assert (new.lines, new.faults) == ({RUN: b"another, longer\n"}, (SpoolFault(5, "rotated", "", 1),))


def test_a_file_that_vanished_and_came_back_is_read(spool: Path, reports: Path) -> None:
    reader, file = ReportReader(spool), reports / "5.0.jsonl"
    file.write_bytes(b"one\n")
    reader.read({RUN: ME})
    file.unlink()
    assert reader.read({RUN: ME}).lines == {}
    file.write_bytes(b"two\n")
    assert reader.read({RUN: ME}).lines == {RUN: b"two\n"}


def test_a_line_without_end_is_given_up_and_the_next_is_read(spool: Path, reports: Path) -> None:
    reader, file = ReportReader(spool), reports / "5.0.jsonl"
    file.write_bytes(b"x" * (MAX_LINE_BYTES + 1))
    assert reader.read({RUN: ME}).faults == (SpoolFault(5, "long line", "", 1),)
    with file.open("ab") as more:
        more.write(b"x" * MAX_LINE_BYTES * 2)
    assert reader.read({RUN: ME}).faults == ()
    with file.open("ab") as more:
        more.write(b"end of it\ngood\n")
    assert reader.read({RUN: ME}).lines == {RUN: b"good\n"}


def test_a_cycle_reads_a_bounded_piece_of_a_large_file_and_the_next_goes_on(spool: Path, reports: Path) -> None:
    reader = ReportReader(spool, ReadLimits(file_bytes_per_cycle=100))
    whole = b"".join(b"%04d\n" % n for n in range(100))
    (reports / "5.0.jsonl").write_bytes(whole)
    read = [reader.read({RUN: ME}).lines.get(RUN, b"") for _ in range(6)]
    assert max(map(len, read)) <= 100
    assert b"".join(read) == whole


def test_a_file_of_gigabytes_is_named_and_ignored(spool: Path, reports: Path) -> None:
    with (reports / "5.0.jsonl").open("wb") as file:
        file.truncate(8 << 30)
    new = ReportReader(spool).read({RUN: ME})
    assert new.lines == {}
    assert [fault.rule for fault in new.faults] == ["size"]


def test_writers_of_much_do_not_keep_the_others_from_their_turn(spool: Path, reports: Path) -> None:
    runs = [RunId(job, 0) for job in range(1, 5)]
    for run in runs:
        (reports / f"{run.job_id}.0.jsonl").write_bytes(b"line\n" * 1_000)
    reader = ReportReader(spool, ReadLimits(file_bytes_per_cycle=50, bytes_per_cycle=50))
    read = [set(reader.read(dict.fromkeys(runs, ME)).lines) for _ in runs]
    assert set().union(*read) == set(runs)


def test_a_run_with_very_many_files_is_read_from_a_few_and_told(spool: Path, reports: Path) -> None:
    for number in range(20):
        (reports / f"5.0.{number:x}.jsonl").write_bytes(b"line\n")
    new = ReportReader(spool).read({RUN: ME})
    assert new.lines == {RUN: b"line\n" * 8}
    assert new.faults == (SpoolFault(5, "files", "more than 8", 12),)


def test_files_that_others_squat_do_not_use_up_a_runs_files(spool: Path, reports: Path) -> None:
    for number in range(20):
        (reports / f"5.0.{number:x}.jsonl").symlink_to("/nowhere")
    (reports / "5.0.jsonl").write_bytes(b"mine\n")
    assert ReportReader(spool).read({RUN: ME}).lines == {RUN: b"mine\n"}


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
        (spool / "reports" / "5.0.jsonl").write_bytes(b"one\n")
        (spool / "reports" / "5.0.jsonl").chmod(0)
        with unprivileged():
            new = ReportReader(spool).read({RUN: ME})
    assert (new.lines, new.faults) == ({}, (SpoolFault(5, "unreadable", "Permission denied", 1),))


def test_a_spool_that_is_not_there_is_a_fault_and_no_error(tmp_path: Path) -> None:
    assert ReportReader(tmp_path).read({RUN: ME}).faults == (
        SpoolFault(0, "spool", "reports: No such file or directory", 1),
    )


def test_what_was_written_before_the_run_started_is_of_an_earlier_job(spool: Path, reports: Path) -> None:
    """Whatever is appended afterwards counts, as where the program does not look whose file it is."""
    reader, file = ReportReader(spool), reports / "5.0.jsonl"
    file.write_bytes(b"old\ntorn")
    os.utime(file, (1_000, 1_000))
    new = reader.read({RUN: ME}, {RUN: 2_000.0})
    assert (new.lines, new.faults) == ({}, (SpoolFault(5, "another job", "", 1),))
    assert reader.read({RUN: ME}, {RUN: 2_000.0}) == NewReports({}, ())
    with file.open("ab") as more:
        more.write(b"new\n")
    os.utime(file, (2_100, 2_100))
    assert reader.read({RUN: ME}, {RUN: 2_000.0}).lines == {RUN: b"new\n"}


def test_the_clock_of_the_file_server_may_be_a_little_behind(spool: Path, reports: Path) -> None:
    file = reports / "5.0.jsonl"
    file.write_bytes(b"one\n")
    os.utime(file, (2_000 - CLOCK_DIFFERENCE,) * 2)
    assert ReportReader(spool).read({RUN: ME}, {RUN: 2_000.0}).lines == {RUN: b"one\n"}


def test_files_of_an_earlier_job_leave_the_run_as_many_as_it_may_have(spool: Path, reports: Path) -> None:
    for number in range(3):
        (reports / f"5.0.{number}.jsonl").write_bytes(b"old\n")
        os.utime(reports / f"5.0.{number}.jsonl", (1_000, 1_000))
    (reports / "5.0.jsonl").write_bytes(b"new\n")
    reader = ReportReader(spool, ReadLimits(files_per_run=1))
    assert reader.read({RUN: ME}, {RUN: 2_000.0}).lines == {RUN: b"new\n"}
