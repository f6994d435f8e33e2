"""Removing the files of runs that ended."""

import os
from pathlib import Path

from slurmplug.spool.report_lines import RunId
from slurmplug.spool.requests import Requests
from slurmplug.spool.run_files import sweep


def test_sweeping_removes_what_belongs_to_no_run_that_is_kept(spool: Path, reports: Path) -> None:
    requests = Requests(spool)
    for run in (RunId(5, 0), RunId(6, 0), RunId(7, 0)):
        requests.issue(run, "stop")
        (reports / f"{run.job_id}.0.jsonl").write_bytes(b"")
    (reports / "README").write_bytes(b"")
    assert sweep(spool, {RunId(6, 0), RunId(7, 0)}, {RunId(7, 0)}, before=float("inf")) == ()
    assert sorted(os.listdir(reports)) == ["6.0.jsonl", "7.0.jsonl", "README"]
    assert os.listdir(spool / "requests") == ["7.0.stop"]


def test_sweeping_keeps_the_notices_of_runs_that_are_kept(spool: Path) -> None:
    for name in ("6.0.notice", "7.0.notice"):
        (spool / "requests" / name).touch()
    sweep(spool, {RunId(7, 0)}, set(), before=float("inf"))
    assert [each.name for each in (spool / "requests").iterdir()] == ["7.0.notice"]


def test_sweeping_keeps_reports_that_are_younger_than_the_retention(spool: Path, reports: Path) -> None:
    for name, written in (("5.0.jsonl", 100), ("6.0.jsonl", 300)):
        (reports / name).write_bytes(b"")
        os.utime(reports / name, (written, written))
    sweep(spool, set(), set(), before=200)
    assert os.listdir(reports) == ["6.0.jsonl"]


def test_sweeping_never_follows_a_link_and_tells_what_it_cannot_remove(
    spool: Path, reports: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    (reports / "5.0.jsonl").symlink_to(victim)
    (reports / "6.0.jsonl").mkdir()
    faults = sweep(spool, set(), set(), before=float("inf"))
    assert victim.exists()
    assert os.listdir(reports) == ["6.0.jsonl"]
    assert [(fault.job, fault.rule) for fault in faults] == [(6, "not removed")]
