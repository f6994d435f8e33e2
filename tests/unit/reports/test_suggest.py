"""suggest: what users could ask for instead, by real ledgers of jobs that ended."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey
from slurmplug.console import times
from slurmplug.forecasting.seen_speeds import PlacementShape, SeenSpeeds, Whose, kind_of
from slurmplug.learning import training
from slurmplug.ledger.selection import Selection
from slurmplug.reports.interface import Suggestions
from slurmplug.reports.service import LedgerReports
from slurmplug.reports.viewer import Viewer
from tests.builders import NOW
from tests.ledgers import Site

HOUR = 3_600.0
DAY = 24 * HOUR
ALL = "-a", "-S", "uts1600000000"
SCRIPT = b"#!/bin/sh\n#PLUG --max-iterations=90\ntrain\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


def ran(site: Site, seconds: float, *, state: str = "COMPLETED", use: float | None = None, **job: Any) -> int:
    """A job that ran so many seconds, and reported the use of its GPUs as often as is needed."""
    number = site.cluster.submit(SCRIPT, **{"gpus": 4, "time_limit": DAY, "name": "bert", **job})
    site.cluster.start(number)
    site.cycle(seconds=1.0)
    if use is not None:
        for _ in range(12):
            site.cluster.say(number, load={"gpu": use})
    site.cluster.time += seconds - 1.0
    site.cluster.end(number, state)
    site.cycle(seconds=0.0)
    return number


def trained(site: Site, seconds_each: float, *, gpus: int, **job: Any) -> None:
    """A job whose iterations take so long."""
    number = site.cluster.submit(SCRIPT, gpus=gpus, name="bert", **job)
    site.cluster.start(number)
    for iteration in range(1, 7):
        site.cluster.time += seconds_each
        site.cluster.say(number, iteration=iteration, loss=1.0 / iteration)
    site.cycle(seconds=1.0)
    site.cluster.end(number)
    site.cycle(seconds=0.0)


def resized(site: Site, seconds: Mapping[int, float]) -> None:
    """The speed forecasts have learnt of ada's jobs that ran on these GPUs, four on a node, an iteration so long."""
    seen = SeenSpeeds()
    for number in range(5):
        for gpus, step in seconds.items():
            job = JobKey("testing", 1000 + number, 1)
            seen.add(Whose(kind_of("", "ada", "bert"), "ada"), PlacementShape(gpus, -(-gpus // 4)), job, step)
    site.ledger.save_model("speed", SeenSpeeds.version, seen.state(), site.cluster.time)


def learnt(site: Site) -> None:
    """The predictors are trained, as the daemon does."""
    site.scheduler.forecaster.use(*training.train(site.ledger, "stack", site.cluster.time))  # type: ignore[attr-defined]


def suggested(site: Site, what: str) -> list[dict[str, Any]]:
    return [each for each in site.json("suggest", *ALL)["suggestions"] if each["what"] == what]


class TestTimeLimits:
    def history(self, site: Site, **last: Any) -> None:
        for seconds in np.linspace(0.9 * HOUR, 1.1 * HOUR, 20):
            ran(site, float(seconds))
        learnt(site)
        ran(site, HOUR, **last)

    def test_one_that_is_far_too_long_is_suggested_shorter(self, site: Site) -> None:
        self.history(site)
        [found] = suggested(site, "time limit")
        assert (found["user"], found["kind"], found["gpus"], found["jobs"]) == ("ada", "bert", 4, 21)
        assert found["now"] == DAY
        why = found["because"]
        assert why["longest"] == pytest.approx(1.1 * HOUR)
        needed = 1.2 * max(why["longest"], why["forecast_high"])
        assert needed <= found["better"] < needed + 900
        assert found["gpu_hours"] == pytest.approx(21 * 4 * (DAY - found["better"]) / HOUR)
        said = site.ask("suggest", *ALL)
        _, header, row = (line.split() for line in said.splitlines()[:3])
        shown = dict(zip(header, row, strict=True))
        assert shown["TIMELIMIT"] == "1-00:00:00"
        assert shown["BETTER"] == times.format_duration(found["better"])
        assert shown["GPUHOURS"] == f"{found['gpu_hours']:.0f}"
        assert "Time limits: too little history" not in said

    def test_one_that_fits_is_left(self, site: Site) -> None:
        self.history(site, time_limit=2 * HOUR)
        assert suggested(site, "time limit") == []
        assert site.json("suggest", *ALL)["judged"]["time limit"] == 1

    def test_none_is_suggested_that_a_job_exceeded_however_it_ended(self, site: Site) -> None:
        ran(site, 11 * HOUR, state="FAILED")
        self.history(site)
        assert suggested(site, "time limit") == []

    def test_none_is_suggested_where_a_job_ran_into_its_limit(self, site: Site) -> None:
        ran(site, HOUR, state="TIMEOUT", time_limit=HOUR)
        self.history(site)
        assert suggested(site, "time limit") == []

    def test_too_little_history_is_said(self, site: Site) -> None:
        for _ in range(19):
            ran(site, HOUR)
        learnt(site)
        said = site.ask("suggest", *ALL)
        assert "Nothing to suggest of 19 jobs that ended." in said
        assert "Time limits: too little history of 1 of 1 kind of jobs" in said

    def test_without_a_forecast_none_is_suggested(self, site: Site) -> None:
        for _ in range(21):
            ran(site, HOUR)
        assert suggested(site, "time limit") == []


class TestUseOfGPUs:
    def test_gpus_that_are_hardly_in_use_are_suggested_against(self, site: Site) -> None:
        for _ in range(3):
            ran(site, HOUR, use=0.1)
        [found] = suggested(site, "GPUs in use")
        assert (found["now"], found["better"], found["jobs"]) == (4, 1, 3)
        assert found["because"]["share"] == pytest.approx(0.1)
        assert found["gpu_hours"] == pytest.approx(3 * 4 * 0.9)
        said = site.ask("suggest", *ALL)
        assert (
            "bert: its 4 GPUs did something in 10% of the time in which that was measured; ask for 1 GPU, or " in said
        )

    def test_of_one_gpu_no_smaller_number_is_suggested(self, site: Site) -> None:
        for _ in range(3):
            ran(site, HOUR, use=0.1, gpus=1)
        [found] = suggested(site, "GPUs in use")
        assert found["better"] is None
        assert "; find out what the training waits for" in site.ask("suggest", *ALL)

    def test_gpus_in_use_are_left(self, site: Site) -> None:
        for _ in range(3):
            ran(site, HOUR, use=0.9)
        assert suggested(site, "GPUs in use") == []
        assert site.json("suggest", *ALL)["judged"]["GPUs in use"] == 1

    def test_two_jobs_are_not_enough(self, site: Site) -> None:
        for _ in range(2):
            ran(site, HOUR, use=0.1)
        assert suggested(site, "GPUs in use") == []
        assert "Use of GPUs: not known of 1 of 1 kind of jobs" in site.ask("suggest", *ALL)

    def test_the_use_is_kept_over_a_new_start(self, tmp_path: Path) -> None:
        with Site(tmp_path) as first:
            job = first.cluster.submit(SCRIPT, gpus=4, name="bert")
            first.cluster.start(job)
            first.cluster.say(job, load={"gpu": 0.25})
            first.cycle()
            again = first.ledger.live_records()
            assert [tuple(record.points.gpu_use) for record in again] == [(0.25, 1, NOW)]


class TestSizes:
    def test_a_size_on_which_an_iteration_takes_much_more_gpu_time_is_suggested_against(self, site: Site) -> None:
        for noise in (0.9, 1.0, 1.1):
            trained(site, 80.0 * noise, gpus=1)
            trained(site, 50.0 * noise, gpus=8)
        [found] = suggested(site, "size")
        assert (found["now"], found["better"], found["jobs"]) == (8, 1, 3)
        why = found["because"]
        assert why["gpu_time"] == pytest.approx(5.0)
        assert 1.1 < why["gpu_time_low"] < 5.0 < why["gpu_time_high"]
        assert why["times_as_long"] == pytest.approx(1.6)
        used = 8 * sum(6 * 50.0 * noise + 1.0 for noise in (0.9, 1.0, 1.1)) / HOUR
        assert found["gpu_hours"] == pytest.approx(used * 0.8)
        assert (
            "bert: on 1 GPU in place of 8, an iteration took 1.6 times as long; on 8 GPUs it takes 5 times"
            in site.ask("suggest", *ALL)
        )

    def test_one_that_scales_is_left(self, site: Site) -> None:
        for noise in (0.9, 1.0, 1.1):
            trained(site, 80.0 * noise, gpus=1)
            trained(site, 10.5 * noise, gpus=8)
        assert suggested(site, "size") == []
        assert site.json("suggest", *ALL)["judged"]["size"] == 2

    def test_one_on_which_jobs_would_take_much_longer_is_not_suggested(self, site: Site) -> None:
        for noise in (0.9, 1.0, 1.1):
            trained(site, 80.0 * noise, gpus=1)
            trained(site, 20.0 * noise, gpus=8)
        assert suggested(site, "size") == []

    def test_on_one_number_of_gpus_alone_the_speed_forecast_decides(self, site: Site) -> None:
        for _ in range(3):
            trained(site, 50.0, gpus=8, nodes=2)
        assert suggested(site, "size") == []
        resized(site, {1: 80.0, 8: 50.0})
        [found] = suggested(site, "size")
        why = found["because"]
        assert found["now"] == 8
        assert 1 <= found["better"] < 8
        assert 1.1 < why["gpu_time_low"] < why["gpu_time"] < why["gpu_time_high"]
        assert why["times_as_long"] == pytest.approx(8 / found["better"] / why["gpu_time"])
        assert why["times_as_long"] <= 2.0
        assert "an iteration is forecast to take" in site.ask("suggest", *ALL)

    def test_a_forecast_says_nothing_beyond_the_sizes_that_were_seen(self, site: Site) -> None:
        for _ in range(3):
            trained(site, 50.0, gpus=8, nodes=2)
        resized(site, {1: 80.0, 4: 50.0})
        assert suggested(site, "size") == []

    def test_by_a_forecast_one_that_scales_is_left(self, site: Site) -> None:
        for _ in range(3):
            trained(site, 10.0, gpus=8, nodes=2)
        resized(site, {1: 80.0, 8: 10.0})
        assert suggested(site, "size") == []
        assert site.json("suggest", *ALL)["judged"]["size"] == 1

    def test_jobs_that_vary_too_much_say_nothing(self, site: Site) -> None:
        for noise in (0.1, 1.0, 10.0):
            trained(site, 100.0 * noise, gpus=1)
            trained(site, 50.0 / noise, gpus=8)
        assert suggested(site, "size") == []

    def test_other_users_jobs_are_not_compared_with(self, site: Site) -> None:
        for noise in (0.9, 1.0, 1.1):
            trained(site, 100.0 * noise, gpus=1, user="ada", uid=1001)
            trained(site, 50.0 * noise, gpus=8, user="bob", uid=1002)
        assert suggested(site, "size") == []
        assert "Numbers of GPUs: nothing to compare" in site.ask("suggest", *ALL)


class TestWhose:
    @pytest.fixture
    def two(self, site: Site) -> Site:
        for _ in range(3):
            ran(site, HOUR, use=0.1, gpus=2, user="ada", uid=1001, name="ada-net")
            ran(site, 2 * HOUR, use=0.1, gpus=8, user="bob", uid=1002, name="bob-net")
        return site

    def test_the_most_gained_comes_first(self, two: Site) -> None:
        hours = [each["gpu_hours"] for each in two.json("suggest", *ALL)["suggestions"]]
        assert len(hours) == 2
        assert hours == sorted(hours, reverse=True)

    def test_a_user_is_chosen(self, two: Site) -> None:
        found = two.json("suggest", "-u", "1001", "-S", "uts1600000000")
        assert {each["user"] for each in found["suggestions"]} == {"ada"}
        assert found["jobs"] == 3
        assert "Invalid user id: nobody-of-that-name" in two.ask("suggest", "-u", "nobody-of-that-name", code=1)

    @pytest.mark.parametrize("which", [Selection(), Selection(users=("bob",)), Selection(users=("ada", "bob"))])
    def test_nobody_is_told_of_anothers_jobs(self, two: Site, which: Selection) -> None:
        found = reports(two, Viewer(1001, sees_all=False)).suggestions(which)
        assert {each.user for each in found.suggestions} <= {"ada"}
        assert found.jobs == (0 if which.users == ("bob",) else 3)
        assert len(reports(two, Viewer(1001, sees_all=True)).suggestions(Selection()).suggestions) == 2

    def test_jobs_before_the_time_are_left_out(self, two: Site) -> None:
        assert two.json("suggest", "-a", "-S", "now-1hour")["jobs"] == 0
        assert two.ask("suggest", "-a", "-S", "now-1hour").endswith("There is no history yet.\n")


def reports(site: Site, viewer: Viewer) -> LedgerReports:
    return LedgerReports(site.ledger, site.path, site.scheduler.config, viewer)


def test_jobs_without_whole_gpus_are_not_judged(site: Site) -> None:
    for _ in range(3):
        ran(site, HOUR, gpus=0)
    found = reports(site, Viewer(0, sees_all=True)).suggestions(Selection())
    assert found == Suggestions(3, 0, {"time limit": 0, "GPUs in use": 0, "size": 0}, [])
    assert "None of them had whole GPUs" in site.ask("suggest", *ALL)
