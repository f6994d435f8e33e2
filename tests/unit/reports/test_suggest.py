"""suggest: what users could ask for instead, by real ledgers of jobs that ended."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from policies.snapshot import JobKey
from slurmplug.console import times
from slurmplug.forecasting.speeds.seen_speeds import PlacementShape, SeenSpeeds, Whose, kind_of
from slurmplug.learning import training
from slurmplug.ledger.selection import Selection
from slurmplug.reports import suggested_starts
from slurmplug.reports.interface import Suggestions, What
from slurmplug.reports.service import LedgerReports
from slurmplug.reports.viewer import Viewer
from tests.builders import NOW
from tests.fake_cluster import node_rows
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


class Array:
    """An array of ada's, as Slurm keeps it: its waiting elements are one job, of which those that start are split."""

    def __init__(self, site: Site, elements: int, **job: Any) -> None:
        self.site = site
        self.job = {"gpus": 2, "time_limit": DAY, "name": "sweep", "reason": "JobArrayTaskLimit", **job}
        self.id = site.cluster.submit(SCRIPT, elements=elements, array_id=0, **self.job)
        site.cluster.jobs[self.id]["array_id"] = self.id
        self._next, self._left = 0, elements

    def start(self) -> int:
        """Its next element starts: its job. The last one keeps the job that waited."""
        waiting, task = self.site.cluster.jobs[self.id], self._next
        self._next, self._left = self._next + 1, self._left - 1
        if not self._left:
            waiting |= {"array_task": task, "elements": 1}
            self.site.cluster.start(self.id)
            return self.id
        waiting["elements"] = self._left
        element = self.site.cluster.submit(SCRIPT, array_id=self.id, array_task=task, **self.job)
        self.site.cluster.start(element)
        return element

    def run(self, at_once: int, seconds: float, use: int = 0) -> None:
        """All its elements, so many at once, in cycles a minute apart; then a node has so many GPUs more in use."""
        running: list[int] = []
        while self._left or running:
            running += [self.start() for _ in range(min(at_once - len(running), self._left))]
            self.in_use(2 * len(running) + use)
            self.site.cycle(count=int(seconds / 60.0))
            for job in running:
                self.site.cluster.end(job)
            running = []
        self.in_use(0)
        self.site.cycle()

    def in_use(self, gpus: int) -> None:
        """So many GPUs of two nodes of four."""
        self.site.cluster.nodes = node_rows(2, gpus_used=[{"": min(gpus, 4)}, {"": max(gpus - 4, 0)}])


class TestArrayThrottles:
    def test_one_that_kept_elements_waiting_beside_idle_gpus_is_suggested_higher(self, site: Site) -> None:
        Array(site, 6).run(1, 600.0)
        [found] = suggested(site, "array throttle")
        assert (found["user"], found["kind"], found["gpus"], found["jobs"]) == ("ada", "sweep", 2, 6)
        assert (found["now"], found["better"]) == (1, 4)
        why = found["because"]
        assert why["more"] == pytest.approx(3.0)  # two nodes of four GPUs, of which it has two
        assert why["waited"] == pytest.approx(49 * 60.0)  # in 50 cycles
        assert why["sooner"] == pytest.approx(6 * 600.0 - 2 * 600.0)
        assert found["gpu_hours"] == pytest.approx(5 * 2 * 600.0 / HOUR)  # all but the first would have run meanwhile
        said = site.ask("suggest", *ALL)
        assert "sweep: while its last array waited for its throttle, for 00:49:00, there was room for 3 more" in said
        assert "with --array=...%4 it would have been done about 00:40:00 sooner." in said

    def test_of_few_gpus_that_idled_only_those_count(self, site: Site) -> None:
        Array(site, 6).run(1, 600.0, use=4)
        [found] = suggested(site, "array throttle")
        assert (found["now"], found["better"]) == (1, 2)
        assert found["because"]["sooner"] == pytest.approx(6 * 600.0 - 3 * 600.0)
        assert found["gpu_hours"] == pytest.approx(2 * 49 * 60.0 / HOUR)

    def test_one_beside_full_nodes_is_left(self, site: Site) -> None:
        Array(site, 4).run(1, 900.0, use=6)
        assert suggested(site, "array throttle") == []
        assert site.json("suggest", *ALL)["judged"]["array throttle"] == 1

    def test_nodes_that_another_job_waits_for_do_not_count(self, site: Site) -> None:
        site.cluster.submit(SCRIPT, gpus=8, nodes=2, reason="Resources", user="bob", uid=1002)
        Array(site, 4).run(1, 900.0)
        assert suggested(site, "array throttle") == []

    def test_nodes_of_another_partition_do_not_count(self, site: Site) -> None:
        Array(site, 4, partition="other").run(1, 900.0)
        assert suggested(site, "array throttle") == []

    def test_elements_that_wait_for_room_say_nothing_of_a_throttle(self, site: Site) -> None:
        Array(site, 4, reason="Resources").run(1, 900.0)
        assert suggested(site, "array throttle") == []
        assert site.json("suggest", *ALL)["judged"]["array throttle"] == 0

    def test_a_time_without_cycles_is_not_counted(self, site: Site) -> None:
        array = Array(site, 2)
        first = array.start()
        site.cycle(11)
        site.cycle(seconds=DAY)
        site.cycle()
        for job in (first, array.start()):
            site.cluster.end(job)
        site.cycle()
        [found] = suggested(site, "array throttle")
        assert found["because"]["waited"] == pytest.approx(11 * 60.0)

    def test_it_goes_with_its_user(self, site: Site) -> None:
        array = Array(site, 3)
        array.run(1, 300.0)
        assert site.ledger.value("SELECT count(*) FROM throttled_arrays") == 1
        for job in list(site.cluster.jobs):
            site.cluster.purge(job)
        site.cycle()
        site.ledger.thin(site.cluster.time)
        site.ledger.forget("ada")
        assert site.ledger.value("SELECT count(*) FROM throttled_arrays") == 0


class TestArraySplits:
    def history(self, site: Site, arrays: int = 5, **job: Any) -> None:
        """Arrays of which the last of six elements takes ten hours, and the others about one."""
        for _ in range(arrays):
            array = Array(site, 6, reason="Priority", **job)
            started = {array.start(): 10 * HOUR if task == 5 else HOUR - 60.0 * task for task in range(6)}
            site.cycle(seconds=1.0)
            for number, seconds in sorted(started.items(), key=lambda each: each[1]):
                site.cluster.time = site.cluster.jobs[number]["start"] + seconds
                site.cluster.end(number)
            site.cycle()

    def test_short_elements_are_told_apart_from_a_long_one(self, site: Site) -> None:
        self.history(site)
        [found] = suggested(site, "array split")
        assert (found["user"], found["kind"], found["gpus"], found["jobs"]) == ("ada", "sweep", 2, 25)
        assert found["elements"] == "0-4"
        assert (found["now"], found["better"]) == (DAY, 1.25 * HOUR)
        assert (found["because"]["longest"], found["because"]["longest_of_others"]) == (HOUR, 10 * HOUR)
        assert found["gpu_hours"] == pytest.approx(25 * 2 * (24 - 1.25))
        said = site.ask("suggest", *ALL)
        assert "sweep: submit the elements 0-4 apart, with --time=01:15:00; they took 01:00:00 at most, others" in said
        assert "is forecast to start" not in said

    def test_of_one_that_waits_now_both_starts_are_forecast(self, site: Site) -> None:
        self.history(site)
        site.cluster.nodes = node_rows(1, gpus_used={"": 2})
        runs = site.cluster.submit(SCRIPT, gpus=2, time_limit=6 * HOUR, user="bob", uid=1002)
        site.cluster.start(runs)
        site.cluster.submit(SCRIPT, gpus=4, time_limit=HOUR, user="bob", uid=1002, priority=2e6, reason="Resources")
        Array(site, 6, reason="Priority", array_tasks="0-5")
        site.cycle(seconds=400.0)
        [found] = suggested(site, "array split")
        why = found["because"]
        assert why["start_better"] == 0.0  # beside the first job, and done before the second one starts
        assert why["start"] > HOUR
        assert "Of those that wait now, the first is forecast to start in 00:00:00 so, and in " in site.ask(
            "suggest", *ALL
        )

    def test_the_queue_is_simulated_for_few_arrays_however_many_kinds_there_are(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(suggested_starts, "MOST_SIMULATED", 1)
        self.history(site, name="narrow", gpus=1)
        self.history(site, name="wide", gpus=4)
        for name, gpus in (("narrow", 1), ("wide", 4)):
            Array(site, 6, reason="Priority", array_tasks="0-5", name=name, gpus=gpus)
        site.cycle(seconds=400.0)
        found = suggested(site, "array split")
        assert [(each["kind"], "start" in each["because"]) for each in found] == [("wide", True), ("narrow", False)]

    def test_an_element_that_timed_out_once_is_not_short(self, site: Site) -> None:
        self.history(site)
        array = Array(site, 6, reason="Priority")
        for job in [array.start() for _ in range(6)]:
            site.cluster.time += 60.0
            site.cluster.end(job, "TIMEOUT" if job == array.id + 1 else "COMPLETED")
        site.cycle()
        [found] = suggested(site, "array split")
        assert found["elements"] == "1-4"

    def test_elements_that_take_about_as_long_are_left(self, site: Site) -> None:
        for _ in range(5):
            Array(site, 6, reason="Priority").run(6, HOUR)
        assert suggested(site, "array split") == []
        assert site.json("suggest", *ALL)["judged"]["array split"] == 1

    def test_a_limit_that_the_short_ones_need_is_left(self, site: Site) -> None:
        self.history(site, time_limit=2 * HOUR)
        assert suggested(site, "array split") == []

    def test_two_arrays_are_not_enough(self, site: Site) -> None:
        self.history(site, arrays=2)
        assert suggested(site, "array split") == []
        assert site.json("suggest", *ALL)["judged"]["array split"] == 0


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
    nothing: dict[What, int] = dict.fromkeys(get_args(What), 0)
    assert found == Suggestions(3, 0, nothing, [])
    assert "None of them had whole GPUs" in site.ask("suggest", *ALL)
