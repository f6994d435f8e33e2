"""A ledger that stays open shows every change, also where other files took its place."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.errors import LedgerError
from slurmplug.ledger.kept_open import KeptOpen
from slurmplug.reports import live_order
from slurmplug.reports.live_order import LiveQueue, kept_queue
from tests.ledgers import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        for urgency in (1, 9, 5):
            site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=%d\ntrain\n" % urgency)
        site.cycle()
        yield site


@pytest.fixture
def kept() -> Iterator[KeptOpen]:
    opened = KeptOpen()
    yield opened
    opened.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[LiveQueue]:
    """The orders of the queue that were made."""
    found: list[LiveQueue] = []
    make = live_order.live_queue

    def noted(*given: object) -> LiveQueue:
        found.append(make(*given))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(live_order, "live_queue", noted)
    return found


def ranked(kept: KeptOpen, site: Site) -> list[int]:
    with kept(site.path) as ledger, ledger.one_state():
        queue = kept_queue(ledger)
        return [row for row, rank in zip(queue.rows, queue.ranks, strict=True) if rank is not None]


def test_the_order_is_made_once_as_long_as_nothing_changes(site: Site, kept: KeptOpen, made: list[LiveQueue]) -> None:
    assert [ranked(kept, site) for _ in range(3)] == [[2, 3, 1]] * 3
    assert len(made) == 1


def test_a_change_between_two_cycles_is_seen(site: Site, kept: KeptOpen) -> None:
    assert ranked(kept, site) == [2, 3, 1]
    site.ledger.give_back([3])
    assert ranked(kept, site) == [2, 1]
    site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=10\ntrain\n")
    site.cycle()
    assert len(ranked(kept, site)) == 3


def test_another_file_in_its_place_is_opened(site: Site, kept: KeptOpen, tmp_path: Path) -> None:
    assert ranked(kept, site) == [2, 3, 1]
    site.ledger.backup(tmp_path / "copy.db")
    site.ledger.give_back([3])
    os.replace(tmp_path / "copy.db", site.path)
    for ending in ("-wal", "-shm"):
        site.path.with_name(site.path.name + ending).unlink()
    assert ranked(kept, site) == [2, 3, 1]


def test_a_log_that_was_removed_is_not_read_on(site: Site, kept: KeptOpen) -> None:
    assert ranked(kept, site) == [2, 3, 1]
    for ending in ("-wal", "-shm"):
        path = site.path.with_name(site.path.name + ending)
        shutil.copy(path, f"{path}.old")
        path.unlink()
    site.cluster.submit(b"#!/bin/sh\n#PLUG --urgency=10\ntrain\n")
    site.cycle()
    assert len(ranked(kept, site)) == 4


def test_after_an_error_it_is_opened_anew(site: Site, kept: KeptOpen) -> None:
    with pytest.raises(LedgerError), kept(site.path) as before:
        before.query("SELECT nothing FROM nowhere")
    with kept(site.path) as after:
        assert after is not before
    with kept(site.path) as again:
        assert again is after
