"""Requests to jobs in the spool."""

import os
import stat
from pathlib import Path

from slurmplug.spool.requests import Requests, write_notices
from slurmplug.spool.run_files import Sweeper
from slurmplug.spool.values import RunId

RUN = RunId(5, 0)


def test_a_request_is_made_and_withdrawn_and_both_may_be_repeated(spool: Path) -> None:
    requests = Requests(spool)
    for _ in range(2):
        requests.issue(RUN, "stop")
        assert requests.open_runs("stop") == [RUN]
        assert requests.open_runs("checkpoint") == []
    for _ in range(2):
        requests.withdraw(RUN, "stop")
        assert requests.open_runs("stop") == []


def test_a_job_sees_the_whole_request_or_none_and_can_read_it_whatever_the_umask(spool: Path) -> None:
    folder = spool / "requests"
    (folder / "5.0.stop.new").write_bytes(b"of a daemon that was killed")
    before = os.umask(0o077)
    try:
        Requests(spool).issue(RUN, "stop", '{"version": 1}')
    finally:
        os.umask(before)
    assert [path.name for path in folder.iterdir()] == ["5.0.stop"]
    assert (folder / "5.0.stop").read_text() == '{"version": 1}'
    assert stat.S_IMODE((folder / "5.0.stop").stat().st_mode) == 0o644


def test_a_job_can_read_its_notice_whatever_the_umask(spool: Path) -> None:
    before = os.umask(0o027)  # of the installed service
    try:
        write_notices(spool, {RUN: "Its target is 0.92."})
    finally:
        os.umask(before)
    assert stat.S_IMODE((spool / "requests" / "5.0.notice").stat().st_mode) == 0o644


def test_a_request_that_was_not_finished_is_none_and_is_swept(spool: Path) -> None:
    unfinished = spool / "requests" / "5.0.stop.new"
    unfinished.write_bytes(b"")
    assert Requests(spool).open_runs("stop") == []
    assert Sweeper(spool).sweep({RUN}, {RUN}, before=float("inf")).faults == ()
    assert unfinished.exists()
    Sweeper(spool).sweep(set(), set(), before=float("inf"))
    assert not unfinished.exists()


def test_the_runs_with_an_open_request_are_listed_by_its_kind(spool: Path) -> None:
    requests = Requests(spool)
    requests.issue(RUN, "stop")
    requests.issue(RunId(6, 2), "checkpoint")
    (spool / "requests" / "notes.stop").write_bytes(b"")
    assert requests.open_runs("stop") == [RUN]
    assert requests.open_runs("checkpoint") == [RunId(6, 2)]
