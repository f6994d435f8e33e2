"""Users take turns in the spool: what one writes costs another neither lines nor time."""

import itertools
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurmplug.spool import report_files
from slurmplug.spool.report_files import LINE_COST, ReadLimits, ReportReader
from slurmplug.spool.values import RunId
from tests.reading import ReaderOnceAMinute

HONEST, OTHERS = 2_000, 3_000
"""uids; another's from `OTHERS` on"""
LINE = b'{"time":1800000000.125,"iteration":7,"loss":0.25,"accuracy":0.5}\n'

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


def write(reports: Path, name: str, uid: int, data: bytes) -> None:
    with (reports / name).open("ab") as file:
        file.write(data)
        os.fchown(file.fileno(), uid, uid)


def grow(reports: Path, owners: Mapping[RunId, int], data: bytes) -> None:
    for run, uid in owners.items():
        write(reports, f"{run.job_id}.0.jsonl", uid, data)


def test_an_honest_line_is_read_within_two_cycles_beside_640_files_that_grow(spool: Path, reports: Path) -> None:
    others = {RunId(job, 0): OTHERS + job % 8 for job in range(1, 641)}
    honest = RunId(641, 0)
    reader, read = ReaderOnceAMinute(spool), Counter[int]()
    for cycle in range(12):
        for run, uid in others.items():  # by a hole, which is as many bytes to read
            write(reports, f"{run.job_id}.0.jsonl", uid, b"")
            os.truncate(reports / f"{run.job_id}.0.jsonl", (cycle + 1) << 20)
        if cycle % 2 == 0:
            write(reports, "641.0.jsonl", HONEST, LINE)
        found = reader.read({**others, honest: HONEST}).lines.get(honest, b"")
        read[cycle // 2] += found.count(b"\n")
    assert read == Counter(dict.fromkeys(range(6), 1))


@pytest.mark.parametrize("seconds", [1.0, 10.0, 60.0])
def test_what_is_read_of_a_user_costs_no_more_than_a_share_of_the_time_between_two_cycles(
    spool: Path, reports: Path, seconds: float
) -> None:
    """Whatever it costs to take in a line of its runs, as the whole of that is counted."""
    limits, merge_cost, cycles = ReadLimits(), 2_000.0, 5
    runs = {RunId(job, 0): OTHERS for job in range(1, 1_001)}
    now, cost = 0.0, 0.0
    reader = ReportReader(spool, clock=lambda: now)
    for cycle in range(cycles):
        grow(reports, runs, LINE * 5)
        now = cycle * seconds
        lines = reader.read(runs, merge_costs=dict.fromkeys(runs, merge_cost)).lines
        if cycle:  # the first one has what a minute allows
            cost += sum(merge_cost + LINE_COST * each.count(b"\n") for each in lines.values())
    assert cost <= cycles * seconds * limits.user_share * 1e6


def test_who_truncates_a_file_again_and_again_has_it_read_as_long_as_it_is_readable(spool: Path, reports: Path) -> None:
    run, reader, junk = RunId(1, 0), ReaderOnceAMinute(spool), b'{"loss":1}\n' * 300
    rules = Counter[str]()
    for size in range(8):
        (reports / "1.0.jsonl").write_bytes(junk[: -11 * size] if size else junk)
        rules.update({fault.rule: fault.count for fault in reader.read({run: os.getuid()}).faults})
    assert rules["no iteration"] < 1_300
    assert rules["left"] == 1


def test_every_file_of_who_writes_much_has_its_turn(spool: Path, reports: Path) -> None:
    runs = {RunId(job, 0): OTHERS for job in range(1, 641)}
    reader, read = ReaderOnceAMinute(spool), Counter[RunId]()
    for _ in range(8):
        grow(reports, runs, LINE * 100)
        read.update(reader.read(runs).lines.keys())
    assert set(read) == set(runs)


def test_junk_is_left_after_a_thousand_lines_and_said_so(spool: Path, reports: Path) -> None:
    junk = {RunId(job, 0): OTHERS + job for job in range(1, 9)}
    for number, (run, uid) in enumerate(junk.items()):
        write(reports, f"{run.job_id}.0.jsonl", uid, (b'"\n', b"{\n")[number % 2] * 500_000)
    honest = RunId(9, 0)
    write(reports, "9.0.jsonl", HONEST, LINE)
    reader = ReaderOnceAMinute(spool)
    cycles = [reader.read({**junk, honest: HONEST}) for _ in range(3)]
    assert cycles[0].lines == {honest: LINE}
    assert not {**cycles[1].lines, **cycles[2].lines}
    faults = [fault for cycle in cycles for fault in cycle.faults]
    unreadable = Counter[int]()
    for fault in faults:
        unreadable[fault.job] += fault.count if fault.rule == "unreadable line" else 0
    assert set(unreadable) == {run.job_id for run in junk}
    assert max(unreadable.values()) < 4_000
    left = {fault.job: fault.detail for fault in faults if fault.rule == "left"}
    assert left == {run.job_id: "1000 unreadable lines" for run in junk}


def test_a_file_that_was_left_is_read_again_when_it_is_replaced(spool: Path, reports: Path) -> None:
    run, reader = RunId(1, 0), ReaderOnceAMinute(spool)
    write(reports, "1.0.jsonl", HONEST, b"{\n" * 1_000)
    reader.read({run: HONEST})
    write(reports, "1.0.jsonl", HONEST, LINE)
    assert not reader.read({run: HONEST}).lines
    (reports / "1.0.jsonl").rename(reports / "aside")
    write(reports, "1.0.jsonl", HONEST, LINE)
    assert reader.read({run: HONEST}).lines == {run: LINE}


def test_one_user_alone_is_bounded_by_lines_and_bytes(spool: Path, reports: Path) -> None:
    runs = {RunId(job, 0): OTHERS for job in range(1, 65)}
    grow(reports, runs, LINE * 10_000)
    read = b"".join(ReaderOnceAMinute(spool).read(runs).lines.values())
    assert 5_000 < read.count(b"\n") < 30_000
    assert len(read) < 2 << 20


def test_many_files_named_as_a_victims_cost_it_nothing(spool: Path, reports: Path) -> None:
    """They are looked at once, and from then on in the turns of their owner."""
    for number in range(5_000):
        os.mknod(reports / f"1.0.{number:x}.jsonl")
        os.chown(reports / f"1.0.{number:x}.jsonl", OTHERS, OTHERS)
    victim, reader = RunId(1, 0), ReaderOnceAMinute(spool)
    for number in range(3):
        write(reports, "1.0.fffffff.jsonl", HONEST, LINE)
        new = reader.read({victim: HONEST})
        assert new.lines == {victim: LINE}
        assert [(fault.rule, fault.count) for fault in new.faults] == ([("owner", 5_000)] if number == 0 else [])


def test_a_folder_that_takes_long_to_list_delays_new_files_alone(
    spool: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_files, "LIST_NAMES", 100)
    seconds = itertools.count(step=0.1)
    reader = ReportReader(spool, clock=lambda: next(seconds))
    known, new = RunId(1, 0), RunId(2, 0)
    write(reports, "1.0.jsonl", HONEST, LINE)
    assert reader.read({known: HONEST}).lines == {known: LINE}
    for number in range(2_000):
        (reports / f"junk{number}").touch()
    write(reports, "2.0.jsonl", HONEST, LINE)
    found = []
    for _ in range(10):
        write(reports, "1.0.jsonl", HONEST, LINE)
        lines = reader.read({known: HONEST, new: HONEST}).lines
        assert lines[known] == LINE
        found += [new] if new in lines else []
    assert found == [new]


def test_names_of_one_run_delay_no_other_runs_new_file(
    spool: Path, reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        write(reports, f"1.0.{number:x}.jsonl", OTHERS, b"")
    write(reports, "2.0.jsonl", HONEST, LINE)
    order: list[str] = []
    stat = os.stat

    def noted(name: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        order.append(name)
        return stat(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "stat", noted)
    ReportReader(spool).read({RunId(1, 0): HONEST, RunId(2, 0): HONEST})
    assert "2.0.jsonl" in order[:2]


def test_a_slow_file_system_ends_a_cycle_and_the_next_goes_on(spool: Path, reports: Path) -> None:
    runs = {RunId(job, 0): OTHERS + job for job in range(1, 41)}
    grow(reports, runs, LINE)
    seconds = iter(range(10_000))
    reader = ReportReader(spool, clock=lambda: next(seconds) * 0.1)
    read = Counter[RunId]()
    for _ in range(6):
        read.update(reader.read(runs).lines.keys())
    assert read == Counter(dict.fromkeys(runs, 1))


def test_a_reader_goes_on_where_another_ended(spool: Path, reports: Path) -> None:
    run = RunId(1, 0)
    write(reports, "1.0.jsonl", HONEST, LINE + LINE[:9])
    files = ReaderOnceAMinute(spool).read({run: HONEST}).files
    write(reports, "1.0.jsonl", HONEST, LINE[9:])
    assert ReaderOnceAMinute(spool, files=files).read({run: HONEST}).lines == {run: LINE}
