"""The forecast of the queue beside the cycles: when it is made, what it leaves in the ledger, and when it fails."""

import logging
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurmplug.cluster.limits import Limits, QosLimits
from slurmplug.daemon import queue_forecasting
from slurmplug.daemon.queue_forecasting import QueueForecasting
from slurmplug.errors import LedgerError, ReadFailed
from slurmplug.ledger import kept_limits, queue_forecasts
from slurmplug.ledger.budgets import INPUTS_EVERY, INPUTS_OF_CHANGES_EVERY
from tests.fake_cluster import node_rows
from tests.ledgers import Site

FULL: dict[str, Any] = {"gpus": 4, "cpus": 4, "time_limit": 3600.0}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Two full nodes and a job that waits."""
    with Site(tmp_path) as one:
        one.cluster.nodes = node_rows(gpus_used={"": 4}, cpus_used=4)
        for node in ("n1", "n2"):
            one.cluster.start(one.cluster.submit(user="eve", **FULL), node)
        one.cluster.submit(**FULL)
        yield one


@pytest.fixture
def forecasting(site: Site) -> Iterator[QueueForecasting]:
    one = QueueForecasting(site.ledger, site.path, site.cluster.limits)
    yield one
    one.close()


def ended(forecasting: QueueForecasting) -> None:
    """What the daemon does after its cycles, until the forecast that was begun has ended."""
    until = time.monotonic() + 120
    while forecasting._child is not None:
        assert time.monotonic() < until
        time.sleep(0.05)
        forecasting.after_cycle()


def made_at(site: Site) -> float | None:
    kept = queue_forecasts.last(site.ledger)
    return None if kept is None else kept.at


def fails(*_: object) -> None:
    raise ValueError("no forecast")


def full(*_: object) -> None:
    raise LedgerError("the disk is full")


def test_the_first_queue_is_forecast_and_of_the_next_one_at_least_five_minutes_later(
    site: Site, forecasting: QueueForecasting
) -> None:
    forecasting.after_cycle()
    assert forecasting._child is None, "no queue is kept yet"
    site.cycle()
    first = site.cluster.time
    forecasting.after_cycle()
    ended(forecasting)
    assert made_at(site) == first
    kept = queue_forecasts.last(site.ledger)
    assert kept is not None
    outlook = kept.of(3)
    assert outlook is not None
    assert outlook.start is not None
    assert first < outlook.start < first + 3600.0
    site.cluster.start(3, "n2")
    site.cycle(seconds=INPUTS_EVERY - 1.0)
    assert site.ledger.kept.at == site.cluster.time, "its queue is kept"
    forecasting.after_cycle()
    assert forecasting._child is None, "too early"
    site.cycle(seconds=INPUTS_EVERY)
    forecasting.after_cycle()
    ended(forecasting)
    assert made_at(site) == site.cluster.time


def test_a_job_that_came_since_and_waits_is_forecast_after_a_minute(site: Site, forecasting: QueueForecasting) -> None:
    site.cycle()
    forecasting.after_cycle()
    ended(forecasting)
    new = site.cluster.submit(**FULL)
    site.cycle(seconds=INPUTS_OF_CHANGES_EVERY)
    forecasting.after_cycle()
    ended(forecasting)
    assert made_at(site) == site.cluster.time
    kept = queue_forecasts.last(site.ledger)
    assert kept is not None
    assert kept.of(new) is not None
    site.cluster.start(new, "n1")
    site.cycle(seconds=INPUTS_OF_CHANGES_EVERY)
    forecasting.after_cycle()
    assert forecasting._child is None, "no other job came"


def test_new_jobs_are_forecast_less_often_where_that_takes_long(
    site: Site, forecasting: QueueForecasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_forecasting, "SHARE", 1e-9)
    site.cycle()
    forecasting.after_cycle()
    ended(forecasting)
    site.cluster.submit(**FULL)
    site.cycle(seconds=INPUTS_EVERY - 1.0)
    forecasting.after_cycle()
    assert forecasting._child is None
    site.cluster.submit(**FULL)
    site.cycle(seconds=INPUTS_OF_CHANGES_EVERY)
    forecasting.after_cycle()
    ended(forecasting)
    assert made_at(site) == site.cluster.time


def test_one_is_made_after_a_clock_that_was_ahead(site: Site, forecasting: QueueForecasting) -> None:
    for offset in (30 * 86_400.0, -30 * 86_400.0):
        site.cluster.time += offset
        site.cycle()
        forecasting.after_cycle()
        ended(forecasting)
        assert made_at(site) == site.cluster.time


def test_one_that_fails_is_told_and_the_next_one_is_made(
    site: Site, forecasting: QueueForecasting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.cycle()
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(queue_forecasting, "forecast", fails)
        forecasting.after_cycle()
        ended(forecasting)
    assert "the forecast of the queue failed; the next one is made in 300 s" in caplog.text
    assert made_at(site) is None
    site.cycle(seconds=INPUTS_EVERY)
    forecasting.after_cycle()
    ended(forecasting)
    assert made_at(site) == site.cluster.time


def test_it_writes_nothing_to_the_ledger_itself(site: Site, forecasting: QueueForecasting) -> None:
    site.cycle()
    forecasting.after_cycle()
    assert forecasting._child is not None
    select.select([forecasting._child.channel], [], [], 120)
    assert made_at(site) is None
    ended(forecasting)
    assert made_at(site) is not None


def test_what_cannot_be_kept_is_kept_later(
    site: Site, forecasting: QueueForecasting, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.cycle()
    forecasting.after_cycle()
    with monkeypatch.context() as patched:
        patched.setattr(queue_forecasts, "keep", full)
        with pytest.raises(LedgerError):
            ended(forecasting)
    ended(forecasting)
    assert made_at(site) == site.cluster.time


def test_after_the_inputs_were_forgotten_there_is_nothing_to_forecast_which_is_no_failure(
    site: Site, forecasting: QueueForecasting, caplog: pytest.LogCaptureFixture
) -> None:
    site.cycle()
    site.ledger.db.execute("UPDATE cycles SET inputs = NULL")
    with caplog.at_level(logging.ERROR):
        forecasting.after_cycle()
        ended(forecasting)
    assert caplog.text == ""
    assert made_at(site) is None


LIMITS = Limits(qos={"normal": QosLimits(user={"gres/gpu": 4.0})}, default_account={"ada": "lab"})


def test_the_limits_are_kept_and_a_job_that_waits_for_one_is_forecast(
    site: Site, forecasting: QueueForecasting
) -> None:
    """Eve has half the GPUs, and Ada, whose first job waits for room, may have as many."""
    site.cluster.limited = LIMITS
    second = site.cluster.submit(**FULL)
    site.cluster.jobs[second]["reason"] = "QOSMaxGRESPerUser"
    site.cluster.start(3, "n2")
    site.cycle()
    forecasting.after_cycle()
    ended(forecasting)
    assert kept_limits.last(site.ledger) == LIMITS
    kept = queue_forecasts.last(site.ledger)
    assert kept is not None
    outlook = kept.of(second)
    assert outlook is not None
    assert outlook.start is not None
    assert outlook.start > site.cluster.time


def test_limits_that_slurmdbd_does_not_tell_are_waited_for_and_then_those_of_before_hold(
    site: Site, forecasting: QueueForecasting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept_limits.keep(site.ledger, LIMITS, site.cluster.time)
    monkeypatch.setattr(forecasting, "_limits", unknown)
    site.cycle()
    forecasting.after_cycle()
    assert forecasting._child is None, "they are waited for"
    monkeypatch.setattr(queue_forecasting, "LIMITS_WITHIN", 0.0)
    with caplog.at_level(logging.WARNING):
        forecasting.after_cycle()
    ended(forecasting)
    assert "limits that were read before, if any: slurmdbd has not answered yet" in caplog.text
    assert made_at(site) == site.cluster.time
    assert kept_limits.last(site.ledger) == LIMITS


def unknown() -> Limits:
    raise ReadFailed("slurmdbd has not answered yet")
