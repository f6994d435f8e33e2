"""slurmdbd is asked beside the cycles, in turns."""

import logging
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from slurmplug.cluster import accounting
from slurmplug.cluster.accounting import Accounting
from slurmplug.cluster.cli_client import CliClient
from slurmplug.cluster.limits import Limits
from slurmplug.cluster.port import Ending
from slurmplug.errors import ReadFailed
from slurmplug.processes import background


class Slurmdbd(CliClient):
    """Knows how every job but those above `lost` ended; hangs until `go` is set."""

    def __init__(self) -> None:
        super().__init__(None, Path("/nowhere"), 1.0)
        self.asked: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()
        self.fails = False
        self.lost = 10**9

    def endings(self, job_ids: Collection[int]) -> tuple[Ending, ...]:
        self.asked.append(sorted(job_ids))
        self.go.wait(60)
        if self.fails:
            raise ReadFailed("sacct exits 1")
        return tuple(Ending(job, "COMPLETED", 1.0, 2.0, 0) for job in job_ids if job < self.lost)

    def limits(self) -> Limits:
        self.go.wait(60)
        if self.fails:
            raise ReadFailed("sacctmgr exits 1")
        return Limits(partition_wall={"gpu": float(len(self.asked))})


@pytest.fixture
def slurmdbd(monkeypatch: pytest.MonkeyPatch) -> Slurmdbd:
    monkeypatch.setattr(accounting, "ENDINGS_PER_CALL", 2)
    return Slurmdbd()


def ids(endings: Collection[Ending]) -> set[int]:
    return {ending.job_id for ending in endings}


def test_every_vanished_job_has_its_turn_also_where_the_first_are_never_found(slurmdbd: Slurmdbd) -> None:
    slurmdbd.lost = 0
    asked = Accounting(slurmdbd)
    for _ in range(4):
        asked.endings(dict.fromkeys((1, 2, 3, 4, 5), 0))
    assert slurmdbd.asked == [[1, 2], [3, 4], [1, 5], [2, 3]]
    asked.endings({4: 0, 9: 0})
    assert slurmdbd.asked[-1] == [4, 9]


def test_one_users_many_vanished_jobs_delay_no_others(slurmdbd: Slurmdbd) -> None:
    vanished = dict.fromkeys(range(1, 1_001), 3000) | {2_000: 1001, 2_001: 1002}
    asked, found = Accounting(slurmdbd), set[int]()
    for _ in range(2):
        found |= ids(asked.endings(vanished))
    assert {2_000, 2_001} <= found


def test_a_slurmdbd_that_hangs_keeps_no_cycle(
    slurmdbd: Slurmdbd, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "WAIT", 0.01)
    slurmdbd.go.clear()
    asked = Accounting(slurmdbd)
    assert asked.endings({1: 0, 2: 0}) == asked.endings({1: 0, 2: 0, 3: 0}) == ()
    with pytest.raises(ReadFailed, match="slurmdbd has not answered yet"):
        asked.limits()
    assert slurmdbd.asked == [[1, 2]]
    slurmdbd.go.set()
    found: set[int] = set()
    while not found:
        found = ids(asked.endings({2: 0, 3: 0}))
    assert found == {2}  # 1 is listed again
    monkeypatch.setattr(background, "WAIT", 3600.0)
    slurmdbd.fails = True
    with caplog.at_level(logging.WARNING):
        while "sacct exits 1" not in caplog.text:
            assert asked.endings({3: 0}) == ()


def test_limits_that_were_read_count_for_a_while(slurmdbd: Slurmdbd, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Accounting(slurmdbd)
    first = asked.limits()
    slurmdbd.fails = True
    assert asked.limits() is first
    monkeypatch.setattr(accounting, "LIMITS_AGE", -1.0)
    with pytest.raises(ReadFailed, match="sacctmgr exits 1"):
        asked.limits()
    slurmdbd.go.clear()
    slurmdbd.fails = False
    monkeypatch.setattr(background, "WAIT", 0.0)
    assert asked.limits() is first
    monkeypatch.setattr(accounting, "LIMITS_LAST", -1.0)
    with pytest.raises(ReadFailed, match="not answered yet"):
        asked.limits()
    slurmdbd.go.set()
