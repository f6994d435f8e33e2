"""savings: what stops saved or would have saved, and whether they would have been wrong."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.plan import Action, Plan, Reason
from policies.snapshot import Snapshot
from slurmplug.console import times
from slurmplug.ledger.run_queries import Report
from slurmplug.reports.savings import remaining_seconds, share
from tests.ledgers import Planned, Site

OBSERVES: Mapping[str, Any] = {"mode": {"default": "observe"}}
OPTSTOP = b"#!/bin/sh\n#PLUG --stop=optstop --max-iterations=20\ntrain\n"


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, **OBSERVES) as site:
        yield site


def rising(first: int, last: int) -> dict[int, float]:
    return {iteration: 0.8 + iteration / 50 for iteration in range(first, last + 1)}


def stops_at(cause: str, iteration: float, **facts: float | str) -> Planned:
    """A policy that would stop every running job for that cause, from that iteration on, of which it then tells."""

    def plan(snapshot: Snapshot) -> Plan:
        jobs = snapshot.jobs
        rows = np.flatnonzero(jobs.running & (jobs.iteration >= iteration))
        told = [{"cause": cause, "iteration": float(jobs.iteration[row]), **facts} for row in rows]
        stops = (Action("stop", jobs.keys[row], Reason("optstop", each)) for row, each in zip(rows, told, strict=True))
        return Plan(np.full(len(jobs), np.nan), actions=tuple(stops))

    return Planned(plan)


def prevented(
    folder: Path, policy: Planned, before: Mapping[int, float], after: Mapping[int, float], **ends: Any
) -> Any:
    """The total of what was prevented: a job reports some values, would be stopped, and goes on."""
    with Site(folder, policy, **OBSERVES) as site:
        job = site.cluster.submit(OPTSTOP)
        site.cluster.start(job)
        site.train(job, before)
        site.cycle()
        site.train(job, after)
        site.cycle()
        if ends:
            site.cluster.end(job, **ends)
            site.cycle()
        return site.json("savings")["prevented"]["total"]


def judged(total: Mapping[str, Any]) -> str:
    return next(name for name in ("wrong", "right", "open") if total[name])


class TestStopped:
    def test_a_stop_saved_the_iterations_left_at_the_pace_of_the_job(self, tmp_path: Path) -> None:
        with Site(tmp_path) as site:
            job = site.cluster.submit(gpus=4)
            site.cluster.start(job)
            site.train(job, rising(1, 6))
            site.cycle()
            site.cluster.end(job)
            site.cycle()
            found = site.json("savings")
            assert found["prevented"] == {"total": None, "rows": []}
            [row] = found["done"]["rows"]
            assert (row["rule"], row["stops"], row["without_estimate"]) == ("target", 1, 0)
            assert row["gpu_hours"] == pytest.approx(dict.fromkeys(("value", "low", "high"), 84 * 4 / 3600))
            assert "Stopped. GPU hours that the jobs would have used" in site.ask("savings")

    def test_it_saved_no_more_than_the_time_limit_left(self, tmp_path: Path) -> None:
        with Site(tmp_path) as site:
            job = site.cluster.submit(gpus=4, time_limit=100.0)
            site.cluster.start(job)
            site.train(job, rising(1, 6))
            site.cycle()
            site.cluster.end(job)
            site.cycle()
            assert site.json("savings")["done"]["total"]["gpu_hours"]["high"] == pytest.approx(4 * (100 - 66) / 3600)

    def test_a_job_that_ran_on_although_it_was_asked_saved_nothing(self, tmp_path: Path) -> None:
        with Site(tmp_path) as site:
            job = site.cluster.submit()
            site.cluster.start(job)
            site.train(job, rising(1, 6))
            site.cycle()
            site.cluster.end(job, "FAILED", 1)
            site.cycle()
            assert site.ask("savings") == "No job was stopped, and none would have been.\n"


class TestWouldHaveBeenStopped:
    def test_it_would_have_saved_what_the_job_then_used(self, observed: Site) -> None:
        job = observed.cluster.submit(gpus=2)
        observed.cluster.start(job)
        observed.train(job, rising(1, 6))
        observed.cycle()
        observed.cycle(count=3)
        total = observed.json("savings")["prevented"]["total"]
        assert total["gpu_hours"]["value"] == pytest.approx(2 * 180 / 3600)
        observed.cluster.end(job)
        observed.cycle()
        assert observed.json("savings")["prevented"]["total"] == total

    def test_the_job_is_judged_by_the_first_time_that_it_would_have_been_stopped(self, tmp_path: Path) -> None:
        policy = stops_at("maximum", 5, epsilon=0.01)
        flat, better = dict.fromkeys(range(1, 6), 0.8), {6: 0.9, 7: 0.9}
        total = prevented(tmp_path, policy, flat, better, state="COMPLETED")
        assert judged(total) == "wrong"

    @pytest.mark.parametrize(
        ("policy", "then", "ends", "expected"),
        [
            (stops_at("reached", 5), 0.5, {"state": "COMPLETED"}, "right"),
            (stops_at("maximum", 5, epsilon=0.01), 0.805, {"state": "COMPLETED"}, "right"),
            (stops_at("maximum", 5, epsilon=0.01), 0.81, {"state": "COMPLETED"}, "wrong"),
            (stops_at("maximum", 5, epsilon=0.01), 0.805, {}, "open"),
            (stops_at("maximum", 5, epsilon=0.01), 0.805, {"state": "TIMEOUT"}, "open"),
            (stops_at("maximum", 5, epsilon=0.01), 0.9, {}, "wrong"),
            (stops_at("misses", 5, target=0.9), 0.899, {"state": "COMPLETED"}, "right"),
            (stops_at("misses", 5, target=0.9), 0.9, {"state": "COMPLETED"}, "wrong"),
        ],
    )
    def test_whether_it_would_have_been_wrong(
        self, tmp_path: Path, policy: Planned, then: float, ends: dict[str, Any], expected: str
    ) -> None:
        flat = dict.fromkeys(range(1, 6), 0.8)
        assert judged(prevented(tmp_path, policy, flat, {6: then}, **ends)) == expected

    @pytest.mark.parametrize(("loss", "expected"), [(0.4, "wrong"), (0.6, "right")])
    def test_a_training_that_recovered_had_not_diverged(self, tmp_path: Path, loss: float, expected: str) -> None:
        with Site(tmp_path, stops_at("diverged", 5), **OBSERVES) as site:
            job = site.cluster.submit(OPTSTOP)
            site.cluster.start(job)
            site.train(job, {1: 0.5, 2: 0.5, 3: 9.0, 4: 9.0, 5: 9.0}, "loss")
            site.cycle()
            site.train(job, {6: loss}, "loss")
            site.cluster.end(job)
            site.cycle()
            assert judged(site.json("savings")["prevented"]["total"]) == expected

    def test_a_job_that_did_all_its_iterations_is_known(self, tmp_path: Path) -> None:
        policy, flat = stops_at("maximum", 5), dict.fromkeys(range(1, 6), 0.8)
        assert judged(prevented(tmp_path, policy, flat, dict.fromkeys(range(6, 21), 0.8), state="FAILED")) == "right"

    def test_a_program_that_counts_from_0_is_judged_by_the_same_report(self, tmp_path: Path) -> None:
        policy, flat = stops_at("maximum", 5), dict.fromkeys(range(5), 0.8)
        assert judged(prevented(tmp_path, policy, flat, {5: 0.9}, state="COMPLETED")) == "wrong"

    def test_a_stop_by_a_rule_of_the_sites_own_policy_is_not_judged(self, tmp_path: Path) -> None:
        def plan(snapshot: Snapshot) -> Plan:
            stop = Action("stop", snapshot.jobs.keys[0], Reason("full moon", {"phase": 1.0}))
            return Plan(np.full(len(snapshot.jobs), np.nan), actions=(stop,))

        total = prevented(tmp_path, Planned(plan), {1: 0.5}, {2: 0.6}, state="COMPLETED")
        assert judged(total) == "open"
        assert total["wrong_share"] == {"value": None, "low": None, "high": None}


class TestSums:
    def test_a_line_for_each_user_and_rule_and_one_for_all(self, observed: Site) -> None:
        for user in ("ada", "bob", "bob"):
            job = observed.cluster.submit(user=user, account=f"of-{user}")
            observed.cluster.start(job)
            observed.train(job, rising(1, 6))
        observed.cycle()
        for job in (1, 2, 3):
            observed.cluster.end(job)
        observed.cycle()
        lines = [line.split() for line in observed.ask("savings", "--by", "account", "--by", "rule").splitlines()]
        assert lines[1] == "ACCOUNT RULE STOPS GPUHOURS RIGHT WRONG NOTKNOWN WRONG% LOW HIGH".split()
        assert [line[:3] for line in lines[2:4]] == [["of-ada", "target", "1"], ["of-bob", "target", "2"]]
        assert lines[4] == "total 3 0.0 3 0 0 0% 0% 47%".split()

    def test_a_week_is_that_of_the_stop_and_a_time_selects_stops(self, observed: Site) -> None:
        job = observed.cluster.submit()
        observed.cluster.start(job)
        observed.train(job, rising(1, 6))
        at = observed.cycle().started
        observed.cycle()
        [row] = observed.json("savings", "--by", "week")["prevented"]["rows"]
        assert row["week"][5] == "W"
        after, until = times.format_time(at + 1), times.format_time(at - 1)
        assert observed.json("savings", "-S", after)["prevented"]["rows"] == []
        assert observed.json("savings", "-E", until)["prevented"]["rows"] == []


class TestIntervals:
    def test_further_iterations_take_as_long_as_predicted_nine_times_of_ten(self) -> None:
        rng, inside = np.random.default_rng(0), 0
        for _ in range(500):
            steps = rng.gamma(4.0, 5.0, 60)
            at = np.cumsum(steps)
            reports = [Report(float(i + 1), float(at[i]), {}, 0) for i in range(12)]
            found = remaining_seconds(reports, 60)
            assert found is not None
            inside += found.low <= at[-1] - at[11] <= found.high
        assert 0.87 <= inside / 500 <= 0.93

    def test_a_pace_is_that_of_the_last_run(self) -> None:
        slow = [Report(float(i), 100.0 * i, {}, 0) for i in range(1, 5)]
        fast = [Report(float(i), 10_000.0 + i, {}, 1) for i in range(5, 10)]
        assert remaining_seconds(slow + fast, 19) == (10.0, 10.0, 10.0)

    def test_too_few_reports_give_no_pace(self) -> None:
        assert remaining_seconds([Report(float(i), float(i), {}, 0) for i in range(3)], 19) is None
        assert remaining_seconds([], 19) is None

    def test_a_share_has_wilsons_interval(self) -> None:
        assert share(0, 10) == pytest.approx((0.0, 0.0, 0.2129), abs=1e-4)
        assert share(5, 10) == pytest.approx((0.5, 0.2693, 0.7307), abs=1e-4)
