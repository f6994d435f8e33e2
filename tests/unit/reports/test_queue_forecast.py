"""`queue`, `why` and `status` on the forecast of the queue: when jobs start and end, and for how long that is told."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.baselines.fifo import FIFO
from policies.snapshot import JobKey
from slurmplug.console.times import format_time
from slurmplug.forecasting.starts.queue_forecast import QueueForecast
from slurmplug.ledger import queue_forecasts
from slurmplug.reports import daemon_status, status
from tests.builders import CLUSTER, NOW
from tests.ledgers import Site

DEADLINE = b"#!/bin/sh\n#PLUG --deadline=2h\ntrain\n"
FULL: dict[str, Any] = {"gpus": 4, "cpus": 4, "time_limit": 3600.0}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A job that runs and one that waits, with a deadline in two hours."""
    with Site(tmp_path) as one:
        one.cluster.start(one.cluster.submit(user="eve", **FULL))
        one.cluster.submit(DEADLINE, **FULL)
        one.cycle()
        yield one


def forecast(
    site: Site,
    *,
    wait: float = 600.0,
    spread: float = 300.0,
    in_time: float = 0.9,
    outcomes: int = 40,
    deadline: float = NOW + 7200.0,
) -> float:
    """Keep a forecast by which the second job starts so many seconds from now and runs for a thousand, and the first
    ends when that starts. Returns now."""
    now = site.cluster.time
    start, nothing = now + wait + np.array([0.0, -spread, spread]), np.full(3, np.nan)
    end = start + 1000.0
    if not outcomes:
        start[1:], end[1:] = np.nan, np.nan
    made = QueueForecast(
        at=now,
        outcomes=outcomes,
        keys=tuple(JobKey(CLUSTER, job, int(NOW)) for job in (1, 2)),
        waits=np.array([False, True]),
        single=np.array([False, True]),
        start=np.stack([nothing, start]),
        end=np.stack([np.full(3, now + wait), end]),
        deadline=np.array([np.nan, deadline]),
        in_time=np.array([np.nan, in_time]),
    )
    queue_forecasts.keep(site.ledger, made)
    return now


def row(site: Site, job: str = "2") -> dict[str, Any]:
    [found] = [each for each in site.json("queue")["jobs"] if each["jobid"] == job]
    return dict(found)


def test_the_queue_shows_when_jobs_start_and_end(site: Site) -> None:
    now = forecast(site)
    found = row(site)
    names = ("starttime", "startlow", "starthigh", "endtime", "endlow", "endhigh", "forecastat")
    expected = (600.0, 300.0, 900.0, 1600.0, 1300.0, 1900.0, 0.0)
    assert [found[name] - now for name in names] == list(expected)
    assert found["expected"] is None, "by Slurm"
    start, end = format_time(now + 600.0), format_time(now + 1600.0)
    for arguments in ((), ("--start",), ("-o", "%i %S %e"), ("-O", "JobID,StartTime,EndTime")):
        [line] = [each for each in site.ask("queue", *arguments, "-t", "PD", "-n").splitlines() if each.strip()]
        assert start in line
        assert end in line
    assert "END_TIME" in site.ask("queue", "--start").splitlines()[0]
    assert site.ask("queue", "-O", "StartLow:25,EndHigh:25", "-t", "PD", "-n").split() == [
        format_time(now + 300.0),
        format_time(now + 1900.0),
    ]


def test_of_a_job_that_runs_the_start_is_known_and_the_end_is_what_is_left_by_the_last_cycle(site: Site) -> None:
    now = forecast(site)
    found = row(site, "1")
    assert found["starttime"] < now
    assert found["endtime"] == now + found["remaining"]
    assert (found["endlow"], found["startlow"], found["forecastat"]) == (None, None, None)


def test_where_the_policy_needs_no_run_times_the_forecast_tells_the_end_of_those_that_run(tmp_path: Path) -> None:
    with Site(tmp_path, FIFO()) as site:
        site.cluster.start(site.cluster.submit(b"#!/bin/sh\ntrain\n", user="eve", **FULL))
        site.cluster.submit(b"#!/bin/sh\ntrain\n", **FULL)
        site.cycle()
        assert row(site, "1")["endtime"] is None
        now = forecast(site)
        assert row(site, "1")["endtime"] == now + 600.0
        assert f"By the queue 00:00:00 before, it ends {format_time(now + 600.0)}" in site.ask("why", "1")


def test_before_the_first_forecast_slurm_tells_the_start(site: Site) -> None:
    site.cluster.jobs[2]["expected"] = site.cluster.time + 5000.0
    site.cycle()
    found = row(site)
    assert found["starttime"] == found["expected"] == site.cluster.time - 60.0 + 5000.0
    assert found["endtime"] == found["starttime"] + found["remaining"]
    assert found["forecastat"] is None
    forecast(site)
    assert row(site)["starttime"] == site.cluster.time + 600.0


def test_a_forecast_is_told_for_a_quarter_of_an_hour(site: Site) -> None:
    now = forecast(site, wait=7200.0)
    site.cycle(seconds=queue_forecasts.OLDEST)
    assert row(site)["starttime"] == now + 7200.0
    assert "By the queue 00:15:00 before, it starts" in site.ask("why", "2")
    site.cycle(seconds=1.0)
    assert row(site)["starttime"] is None
    assert row(site)["forecastat"] is None
    assert "By the queue" not in site.ask("why", "2")


def test_nothing_is_expected_before_the_last_cycle(site: Site) -> None:
    forecast(site, wait=10.0, spread=10.0)
    site.cycle(seconds=100.0)
    assert row(site)["starttime"] == row(site)["starthigh"] == site.cluster.time


def test_of_a_job_that_has_started_since_nothing_is_told_that_was_forecast_before(site: Site) -> None:
    forecast(site)
    site.cluster.start(2)
    site.cycle(seconds=60.0)
    found = row(site)
    assert found["starttime"] == found["start"]
    assert found["endtime"] == site.cluster.time + found["remaining"]


def test_why_says_when_it_starts_and_ends_and_whether_its_deadline_can_be_met(site: Site) -> None:
    now = forecast(site)
    site.cycle(seconds=120.0)
    times = [format_time(now + at) for at in (600.0, 300.0, 900.0, 1600.0, 1300.0, 1900.0)]
    deadline = format_time(NOW + 7200.0)
    assert (
        "By the queue 00:02:00 before, it starts {} (80 %: {} to {}) and ends {} (80 %: {} to {}): its deadline, "
        "{}, can be met, but may be missed (in 90% of the cases simulated)."
    ).format(*times, deadline) in site.ask("why", "2").replace("\n  ", " ")
    assert site.ask("why", "2").count("deadline, ") == 1


def test_without_enough_starts_that_came_true_there_is_no_interval(site: Site) -> None:
    now = forecast(site, outcomes=0)
    assert row(site)["startlow"] is None
    text = site.ask("why", "2")
    assert f"it starts {format_time(now + 600.0)} and ends {format_time(now + 1600.0)}: its deadline" in text
    assert "too few such forecasts have come true for an interval" in text


def test_a_job_that_never_fits_starts_later_than_all(site: Site) -> None:
    forecast(site, wait=np.inf, spread=0.0, in_time=0.0)
    found = row(site)
    assert (found["starttime"], found["endtime"], found["forecastat"]) == (None, None, None)
    assert "it starts later than all that was simulated: its deadline" in site.ask("why", "2")
    assert found["chance"] == "cannot be met"


@pytest.mark.parametrize(
    ("share", "chance"),
    [
        (1.0, "can be met"),
        (0.95, "can be met"),
        (0.5, "may be missed"),
        (0.06, "will be missed"),
        (0.0, "cannot be met"),
    ],
)
def test_the_mark_of_a_deadline_is_by_the_share_that_meets_it(site: Site, share: float, chance: str) -> None:
    forecast(site, in_time=share)
    assert row(site)["chance"] == chance


def test_of_a_deadline_that_was_changed_since_the_run_time_tells(site: Site) -> None:
    now = forecast(site, in_time=0.0, deadline=NOW + 100.0)
    assert row(site)["chance"] != "cannot be met"
    assert row(site)["starttime"] == now + 600.0
    text = site.ask("why", "2")
    assert "it starts" in text
    assert "If it started now" in text


def test_a_deadline_that_has_passed_is_told_to_have(site: Site) -> None:
    forecast(site)
    site.cluster.time = NOW + 7300.0
    site.cycle(seconds=0.0)
    forecast(site)
    assert row(site)["chance"] == "passed"
    assert "Its deadline, " in site.ask("why", "2")


def test_status_says_how_starts_and_ends_came(site: Site) -> None:
    def told() -> list[str]:
        return list(status._forecast_lines(daemon_status._forecasts(site.ledger, site.cluster.time)))

    assert told() == ["forecasts   the queue is not forecast yet"]
    now = forecast(site)
    last = f"forecasts   of the queue of {format_time(now)}"
    assert told() == [last]
    site.cluster.end(1)
    site.cluster.time += 660.0
    site.cluster.start(2)
    site.cycle(seconds=0.0)
    of_start = "            1 start came true in 30 days: mean error 00:01:00; 100% of 1 interval held (goal 80%)"
    assert told() == [last, of_start]
    site.cluster.time += 2000.0
    site.cluster.end(2)
    site.cycle(seconds=0.0)
    of_end = "            1 end came true in 30 days: mean error 00:17:40; 0% of 1 interval held (goal 80%)"
    assert told() == [last, of_start, of_end]
    assert last in site.ask("status", code=1)


def test_status_says_nothing_of_intervals_where_there_were_none(site: Site) -> None:
    now = forecast(site, outcomes=0)
    site.cluster.time += 660.0
    site.cluster.start(2)
    site.cycle(seconds=0.0)
    found = daemon_status._forecasts(site.ledger, site.cluster.time)
    assert found["start"] == {"came": 1, "error": 60.0, "with_interval": 0, "held": 0}
    assert list(status._forecast_lines(found)) == [
        f"forecasts   of the queue of {format_time(now)}",
        "            1 start came true in 30 days: mean error 00:01:00",
    ]
