"""Which scripts are read, and when one that cannot be read is tried again."""

import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from slurmplug.cluster import scripts
from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.port import Submission
from slurmplug.cluster.scripts import FIRST_RETRY, LAST_RETRY, MOST_FAILURES, SHARE, NewScripts, ScriptReader
from slurmplug.errors import ReadFailed
from slurmplug.processes import background
from tests.builders import NOW
from tests.fake_cluster import job_row, job_rows


class Scripts(CliClient):
    """A client with the scripts of all jobs, but for those that fail; it notes which were asked for."""

    def __init__(self) -> None:
        super().__init__(None, Path("/nowhere"), 1.0)
        self.failing: set[int] = set()
        self.asked: Counter[int] = Counter()
        self.order: list[int] = []
        self.clock = 0.0
        """each script takes a second of it"""
        self.go = threading.Event()
        self.go.set()

    def script(self, job_id: int) -> bytes:
        self.go.wait(60)
        self.asked[job_id] += 1
        self.order.append(job_id)
        self.clock += 1.0
        if job_id in self.failing:
            raise ReadFailed("slurmctld did not answer")
        return b"script of %d" % job_id


@pytest.fixture
def client() -> Scripts:
    return Scripts()


@pytest.fixture
def reader(client: Scripts) -> ScriptReader:
    return ScriptReader(client, NOW)


@pytest.fixture
def timed(client: Scripts, monkeypatch: pytest.MonkeyPatch) -> ScriptReader:
    monkeypatch.setattr(background, "WAIT", 3600.0)
    return ScriptReader(client, NOW, lambda: client.clock)


def read(
    reader: ScriptReader, *rows: dict[str, Any], known: Collection[Submission] = (), at: float = NOW
) -> NewScripts:
    return reader.read(job_rows(rows), known, at)


def test_a_script_is_read_once_for_each_submission(reader: ScriptReader, client: Scripts) -> None:
    known, interactive = (1, int(NOW)), job_row(3, batch=False)
    found = read(reader, job_row(1), job_row(2), interactive, known={known})
    assert found.scripts == {2: b"script of 2"}
    assert read(reader, job_row(1, submit=NOW + 9.0, restarts=1), known={known}).scripts == {1: b"script of 1"}
    assert client.asked == {1: 1, 2: 1}


def test_a_part_has_the_script_of_its_whole_if_that_was_submitted_with_it(
    reader: ScriptReader, client: Scripts
) -> None:
    whole = (7, int(NOW))
    element = job_row(8, array_id=7, array_task=1)
    assert read(reader, element, known={whole}).scripts == {}
    assert read(reader, element | {"submit": NOW + 60.0}, known={whole}).scripts == {8: b"script of 8"}
    component = job_row(9, het_id=7)
    assert read(reader, job_row(7, het_id=7), component).scripts == dict.fromkeys((7, 9), b"script of 7")
    assert client.asked == {7: 1, 8: 1}


def test_scripts_of_jobs_that_ended_before_the_daemon_began_are_not_read(reader: ScriptReader) -> None:
    over = job_row(1, state="COMPLETED", end=NOW - 1.0)
    since = job_row(2, state="COMPLETED", end=NOW + 1.0)
    beyond_its_limit = job_row(3, state="RUNNING", end=NOW - 1.0)
    assert set(read(reader, over, since, beyond_its_limit).scripts) == {2, 3}


def test_a_script_that_cannot_be_read_is_tried_again_at_growing_intervals(
    reader: ScriptReader, client: Scripts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAIT", 60.0)
    monkeypatch.setattr(scripts, "SHARE", 1e9)  # there is time for both, however fast the readings follow
    client.failing = {1}
    now, pause = NOW, FIRST_RETRY
    while pause < LAST_RETRY or client.asked[1] < 14:
        tried = client.asked[1]
        found = read(reader, job_row(1), job_row(2), at=now)
        assert (found.scripts, client.asked[1]) == ({2: b"script of 2"}, tried + 1)
        assert [(fault.job, fault.rule, fault.count) for fault in found.faults] == [(1, "script", 1)]
        assert read(reader, job_row(1), at=now + pause - 0.1).faults == ()
        now, pause = now + pause, min(2 * pause, LAST_RETRY)
    assert "the script of job 1 cannot be read: slurmctld did not answer; tried again in 5 s" in caplog.text
    client.failing = set()
    assert read(reader, job_row(1), at=now).scripts == {1: b"script of 1"}


def test_a_few_failures_end_a_reading_and_the_next_begins_with_what_was_never_tried(
    client: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAIT", 3600.0)
    clock = [0.0]
    reader = ScriptReader(client, NOW, lambda: clock[0])
    client.failing = set(range(1, 6))
    rows = [job_row(job_id) for job_id in range(1, 9)]
    assert read(reader, *rows).scripts == {}
    assert client.asked.total() == MOST_FAILURES
    clock[0] += FIRST_RETRY
    assert set(read(reader, *rows, at=NOW + FIRST_RETRY).scripts) == {6, 7, 8}


def test_scripts_are_read_in_a_share_of_the_time(timed: ScriptReader, client: Scripts) -> None:
    rows = [job_row(job_id) for job_id in range(1, 100)]
    assert set(read(timed, *rows).scripts) == {1, 2}
    known = {(1, int(NOW)), (2, int(NOW))}
    client.clock += 1.0 / SHARE
    assert set(read(timed, *rows, known=known).scripts) == {3, 4}
    client.clock += 1000.0 / SHARE
    known |= {(3, int(NOW)), (4, int(NOW))}
    assert set(read(timed, *rows, known=known).scripts) == {5, 6, 7}


def test_users_take_turns_however_many_jobs_one_submits(timed: ScriptReader, client: Scripts) -> None:
    many = [job_row(job_id, uid=3000) for job_id in range(1, 1_001)]
    others = [job_row(2_000 + uid, uid=uid) for uid in range(2)]
    read(timed, *many, *others)
    assert client.order == [1, 2_000]
    client.clock += 1.0 / SHARE
    read(timed, *many, *others, known={(1, int(NOW)), (2_000, int(NOW))})
    assert client.order[2:] == [2, 2_001]


def test_a_slurmctld_that_is_slow_keeps_no_cycle_and_its_answers_come_with_a_later_one(
    reader: ScriptReader, client: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAIT", 0.01)
    client.go.clear()
    assert read(reader, job_row(1)).scripts == read(reader, job_row(1), job_row(2)).scripts == {}
    client.go.set()
    found: dict[int, bytes] = {}
    while len(found) < 2:
        found |= read(reader, job_row(1), job_row(2)).scripts
    assert found == {1: b"script of 1", 2: b"script of 2"}


def test_a_script_that_was_read_late_is_not_of_a_later_job_with_the_id(
    reader: ScriptReader, client: Scripts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "WAIT", 0.0)
    client.go.clear()
    assert read(reader, job_row(1)).scripts == {}
    client.go.set()
    while client.asked[1] < 2:
        late = read(reader, job_row(1, submit=NOW + 60.0))
        assert late.scripts == {} or client.asked[1] == 2


def test_a_job_that_is_gone_is_not_tried_again(reader: ScriptReader, client: Scripts) -> None:
    client.failing = {1}
    read(reader, job_row(1))
    read(reader)
    client.failing = set()
    assert read(reader, job_row(1)).scripts == {1: b"script of 1"}
