"""The fields of the queue that are made a column at a time are those of whole jobs."""

from collections.abc import Iterator
from typing import Any

import pytest

from slurmplug.daemon.queue_forecasting import of_last_queue
from slurmplug.ledger import queue_forecasts
from slurmplug.ledger.selection import Selection
from slurmplug.reports import queue_columns
from slurmplug.reports.queue import queue_table
from slurmplug.reports.queue_fields import FIELDS
from tests.ledgers import Site

KINDS = (
    b"", b"#PLUG --urgency=2 --deadline=2h\n", b"#PLUG --manage=off\n", b"#PLUG --urgency=9 --stop=optstop\n",
    b"#PLUG --target=accuracy>=0.9 --max-iterations=60 --deadline=1h\n", b"#PLUG --target=loss<=0.3\n",
    b"#PLUG --urgency=x\n",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as site:
        for number in range(40):
            job = site.cluster.submit(
                b"#!/bin/sh\n" + KINDS[number % len(KINDS)],
                user=f"user{number % 3}",
                priority=float(number % 7),
                comment="plug: --type=a" if number % 11 == 0 else "",
            )
            if number % 4 == 0:
                site.cluster.start(job)
        site.cluster.submit(reason="JobHeldUser", priority=0.0)
        site.cycle()
        for job in list(site.cluster.jobs)[:24:4]:
            site.train(job, {1: 0.1, 20: 0.4, 30: 0.5 + job / 100}, loss=0.7)
        site.cycle(2)
        site.ledger.give_back([4, 8, 9])
        made = of_last_queue(site.ledger)
        assert made is not None
        queue_forecasts.keep(site.ledger, made)
        yield site


def table(site: Site, names: tuple[str, ...], **selected: Any) -> list[list[Any]]:
    return queue_table(site.ledger, Selection(live=True, **selected), [(name, FIELDS[name]) for name in names])


@pytest.mark.parametrize("selected", [{}, {"users": ("user1",)}, {"states": ("RUNNING",)}, {"users": ("nobody",)}])
def test_each_field_is_that_of_whole_jobs(
    site: Site, monkeypatch: pytest.MonkeyPatch, selected: dict[str, tuple[str, ...]]
) -> None:
    names = tuple(FIELDS)
    each_alone = [table(site, (name,), **selected)[0] for name in names]
    monkeypatch.setattr("slurmplug.reports.queue.reads", lambda *_: None)
    assert dict(zip(names, each_alone, strict=True)) == dict(zip(names, table(site, names, **selected), strict=True))


MADE_HERE = (
    "position", "doing", "rank", "priority", "label", "deadline", "chance", "elapsed", "starttime", "endtime",
    "remaining", "remaininglow", "finalrange", "judged", "progress", "reasonlist", "jobid", "timeleft", "forecastat",
    "type", "target", "urgency",
)  # fmt: skip


@pytest.mark.parametrize("name", MADE_HERE)
def test_the_ledger_of_this_test_has_values_of_the_field(site: Site, name: str) -> None:
    assert queue_columns.reads((name,), FIELDS) is not None
    assert any(table(site, (name,))[0])


def test_fields_together_are_those_alone(site: Site) -> None:
    names = tuple(name for name in FIELDS if queue_columns.reads((name,), FIELDS) is not None)
    assert table(site, names) == [table(site, (name,))[0] for name in names]


def test_a_report_is_of_one_state_of_the_ledger(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = []
    original = queue_columns.QueueColumns.values

    def noted(columns: queue_columns.QueueColumns, name: str) -> list[Any]:
        inside.append(site.ledger.db.in_transaction)
        return original(columns, name)

    monkeypatch.setattr(queue_columns.QueueColumns, "values", noted)
    table(site, ("jobid", "judged"))
    assert inside == [True, True]
    assert not site.ledger.db.in_transaction
