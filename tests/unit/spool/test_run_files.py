"""Removing the files of runs that ended."""

import itertools
import os
import time
from pathlib import Path

import pytest

from slurmplug.spool.requests import Requests
from slurmplug.spool.run_files import SWEEP_NAMES, SWEEP_SECONDS, Sweeper
from slurmplug.spool.values import RunId


def test_sweeping_removes_what_belongs_to_no_run_that_is_kept(spool: Path, reports: Path) -> None:
    requests = Requests(spool)
    for run in (RunId(5, 0), RunId(6, 0), RunId(7, 0)):
        requests.issue(run, "stop")
        (reports / f"{run.job_id}.0.jsonl").write_bytes(b"")
    (reports / "README").write_bytes(b"")
    assert Sweeper(spool).sweep({RunId(6, 0), RunId(7, 0)}, {RunId(7, 0)}, before=float("inf")) == ((), True)
    assert sorted(os.listdir(reports)) == ["6.0.jsonl", "7.0.jsonl", "README"]
    assert os.listdir(spool / "requests") == ["7.0.stop"]


def test_sweeping_keeps_the_notices_of_runs_that_are_kept(spool: Path) -> None:
    for name in ("6.0.notice", "7.0.notice"):
        (spool / "requests" / name).touch()
    Sweeper(spool).sweep({RunId(7, 0)}, set(), before=float("inf"))
    assert [each.name for each in (spool / "requests").iterdir()] == ["7.0.notice"]


def test_sweeping_keeps_reports_that_were_changed_since_whatever_time_their_user_has_set(
    spool: Path, reports: Path
) -> None:
    now = time.time()
    for name, written in (("5.0.jsonl", 100), ("6.0.jsonl", now + 1e6)):
        (reports / name).write_bytes(b"")
        os.utime(reports / name, (written, written))
    Sweeper(spool).sweep(set(), set(), before=now - 3600)
    assert sorted(os.listdir(reports)) == ["5.0.jsonl", "6.0.jsonl"]
    Sweeper(spool).sweep(set(), set(), before=now + 3600)
    assert os.listdir(reports) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_sweeping_removes_what_users_put_there_under_any_name(spool: Path, reports: Path) -> None:
    for name in ("junk", "README"):
        (reports / name).touch()
    os.chown(reports / "junk", 3_000, 3_000)
    Sweeper(spool).sweep(set(), set(), before=float("inf"))
    assert os.listdir(reports) == ["README"]


def test_very_many_files_are_swept_in_pieces(spool: Path, reports: Path) -> None:
    for number in range(5 * SWEEP_NAMES):
        (reports / f"{number + 1}.0.jsonl").touch()
    seconds = itertools.count(step=0.4 * SWEEP_SECONDS)
    sweeper = Sweeper(spool, lambda: next(seconds))
    left = [5 * SWEEP_NAMES]
    while not sweeper.sweep(set(), set(), before=float("inf")).finished:
        left.append(len(os.listdir(reports)))
    assert len(left) > 2
    assert left == sorted(left, reverse=True)
    assert os.listdir(reports) == []


def test_sweeping_never_follows_a_link_and_tells_what_it_cannot_remove(
    spool: Path, reports: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"")
    (reports / "5.0.jsonl").symlink_to(victim)
    (reports / "6.0.jsonl").mkdir()
    faults = Sweeper(spool).sweep(set(), set(), before=float("inf")).faults
    assert victim.exists()
    assert os.listdir(reports) == ["6.0.jsonl"]
    assert [(fault.job, fault.rule) for fault in faults] == [(6, "not removed")]
