"""The queue of a snapshot, simulated forward: who waits for whom, and for what."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.cluster.limits import JOBS, Assoc, AssocLimits, Limits, QosLimits, ResourceUse
from slurmplug.forecasting.starts.limit_sums import QueueLimits
from slurmplug.forecasting.starts.live_queue import LiveQueue, OneMore, waiting_in_order
from slurmplug.forecasting.starts.node_room import Parts
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

GPUS_OF_A_NODE = 4


def queue(of: Snapshot, seconds: float = 100.0) -> LiveQueue:
    """Of jobs that take so many seconds each."""
    left = np.maximum(seconds - np.nan_to_num(of.now - of.jobs.started), 0.0)
    return LiveQueue(of, forecasts(len(of.jobs), total=seconds, remaining=left), samples=3)


def one_more(gpus: float, *, limit: float = 200.0) -> OneMore:
    return OneMore(np.array([gpus, 1.0, 0.0]), limit, np.full(3, 100.0))


def starts_of(of: Snapshot, *requests: OneMore, place: int, where: Any = True) -> list[float]:
    """When each of these would start, in each of the samples."""
    on = np.array(np.broadcast_to(np.asarray(where), (len(of.nodes.names),)))
    found = queue(of).starts_of(requests, place, on)
    assert (found == found[:, :1]).all()
    return [float(start) for start in found[:, 0]]


def full(n: int, *, waiting: int = 0, **columns: Any) -> Snapshot:
    """n nodes on each of which a job runs that began 40 s ago, and jobs that wait."""
    count = n + waiting
    state = ["running"] * n + ["pending"] * waiting
    given = {"state": state, "gpus": GPUS_OF_A_NODE, "time_limit": 200.0, **columns}
    given["started"] = [NOW - 40.0] * n + [np.nan] * waiting
    given["priority"] = np.arange(count, 0, -1)
    on = np.array([(row, row, GPUS_OF_A_NODE) for row in range(n)])
    used = np.array([[GPUS_OF_A_NODE, 1.0, 0.0]] * n)
    return snapshot(jobs(count, **given), nodes(n, used=used), runs_on=on)


def test_jobs_wait_for_those_that_run_and_for_each_other() -> None:
    found = queue(full(1, waiting=2)).starts()
    np.testing.assert_array_equal(found, [[np.nan] * 3, [60.0] * 3, [160.0] * 3])


def test_one_more_job_starts_when_single_nodes_have_room_for_its_parts() -> None:
    of = full(3)
    used = of.nodes.used - [[1.0, 0.0, 0.0]]
    of = replace(
        of,
        nodes=replace(of.nodes, used=used),
        jobs=replace(of.jobs, demand=used.copy()),
        runs_on=np.array([(row, row, GPUS_OF_A_NODE - 1) for row in range(3)]),
    )
    three = np.array([3.0, 1.0, 0.0])
    on_one, on_three, whole = (
        replace(one_more(3), parts=Parts(count, True, needs))
        for count, needs in ((1, three), (3, three / 3), (3, np.array([4.0, 1.0, 0.0])))
    )
    assert starts_of(of, one_more(3), on_three, on_one, whole, place=0) == [0.0, 0.0, 60.0, 60.0]


def test_one_more_job_is_behind_those_of_its_user() -> None:
    of = full(1, waiting=3, user=["eve", "ada", "bob", "eve"])
    live = queue(of)
    assert [live.place_of(user, "gpu") for user in ("ada", "bob", "eve", "new")] == [1, 2, 3, 3]
    assert live.place_of("ada", "other") == 3
    assert starts_of(of, one_more(4), one_more(1), place=1) == [160.0, 160.0]


def test_a_shorter_time_limit_starts_beside_a_job_that_waits_for_more() -> None:
    """One node is free, and the first job waits for both, so that what ends within 160 s delays nobody."""
    of = full(2, waiting=1, gpus=[4, 4, 8])
    of = snapshot(of.jobs, nodes(2, used=np.array([[4.0, 1.0, 0.0], [0.0, 0.0, 0.0]])), runs_on=of.runs_on[:1])
    of.jobs.state[1] = "completing"
    assert starts_of(of, one_more(4, limit=161.0), one_more(4, limit=160.0), place=1) == [160.0, 0.0]


def test_jobs_of_other_nodes_are_not_waited_for() -> None:
    of = full(2, waiting=2, placement=[0, 0, 1, 1])
    of = snapshot(of.jobs, of.nodes, runs_on=of.runs_on, fits=np.array([[True, True], [True, False]]))
    assert starts_of(of, one_more(4), place=2, where=[True, False]) == [260.0]
    assert starts_of(of, one_more(4), place=2, where=[False, True]) == [60.0]


def test_a_partition_that_is_full_keeps_nobody_waiting_in_another() -> None:
    """In the first partition a job waits for two hours for both nodes; in the second two wait for their nodes."""
    of = full(4, waiting=3, gpus=[4, 4, 4, 4, 8, 8, 4], placement=[0, 0, 1, 1, 0, 1, 1])
    fits = np.array([[True, True, False, False], [False, False, True, True]])
    found = queue(snapshot(of.jobs, of.nodes, runs_on=of.runs_on, fits=fits)).starts()[4:]
    np.testing.assert_array_equal(found, [[60.0] * 3, [60.0] * 3, [160.0] * 3])


def test_what_runs_in_a_part_is_missing_in_the_whole() -> None:
    of = full(2, waiting=1, placement=[0, 0, 1])
    of = snapshot(of.jobs, of.nodes, runs_on=of.runs_on, fits=np.array([[True, True], [True, False]]))
    assert starts_of(of, one_more(8), place=1) == [160.0]


def test_a_node_that_is_down_holds_nobody() -> None:
    of = full(2)
    of.nodes.up[0] = False
    assert starts_of(of, one_more(4), one_more(8), place=0) == [60.0, np.inf]


@pytest.mark.parametrize("reason", ["Dependency", "QOSMaxJobsPerUserLimit", "BeginTime", "JobHeldUser"])
def test_who_does_not_wait_for_room_is_left_out(reason: str) -> None:
    of = full(1, waiting=2, reason=["None", reason, "Priority"])
    assert waiting_in_order(of.jobs).tolist() == [2]
    np.testing.assert_array_equal(queue(of).starts()[1:], [[np.nan] * 3, [60.0] * 3])


def test_an_array_waits_as_many_jobs_and_starts_with_its_first() -> None:
    of = full(1, waiting=2, elements=[1, 3, 1])
    assert waiting_in_order(of.jobs).tolist() == [1, 1, 1, 2]
    np.testing.assert_array_equal(queue(of).starts()[1:], [[60.0] * 3, [360.0] * 3])


def test_an_array_of_a_million_elements_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurmplug.forecasting.starts.live_queue.MOST_WAITING", 5)
    of = full(1, waiting=3, elements=[1, 2, 1_000_000, 1])
    assert waiting_in_order(of.jobs).tolist() == [1, 1, 2, 2, 2]


def test_a_run_time_ends_by_the_time_limit_and_one_that_is_not_known_is_spread_over_it() -> None:
    of = full(1, waiting=1)
    assert sorted(LiveQueue(of, Forecasts.unknown(2), samples=4).starts()[1]) == [20.0, 60.0, 100.0, 140.0]
    longer = forecasts(2, total=1e6, remaining=1e6)
    np.testing.assert_array_equal(LiveQueue(of, longer, samples=1).starts()[1], [160.0])


TWO_EACH = Limits(qos={"normal": QosLimits(user={"gres/gpu": 2.0})})


def beside_idle(*, waiting: int = 2, reason: Any = "QOSMaxGRESPerUser", **columns: Any) -> Snapshot:
    """Two jobs of one GPU on one of two nodes, and some more of one GPU that wait beside six idle ones."""
    state = ["running"] * 2 + ["pending"] * waiting
    reasons = ["None"] * 2 + list(np.broadcast_to(reason, waiting))
    started = [NOW - 40.0, NOW - 10.0] + [np.nan] * waiting
    count = len(state)
    given = {"state": state, "reason": reasons, "started": started, "time_limit": 200.0, "user": "ada", "qos": "normal"}
    given["priority"] = np.arange(count, 0, -1)
    on = np.array([(0, 0, 1), (1, 0, 1)])
    used = np.array([[2.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    return snapshot(jobs(count, **{**given, **columns}), nodes(2, used=used), runs_on=on)


def under(limits: Limits | None, of: Snapshot) -> LiveQueue:
    left = np.maximum(100.0 - np.nan_to_num(of.now - of.jobs.started), 0.0)
    return LiveQueue(of, forecasts(len(of.jobs), total=100.0, remaining=left), limits=limits, samples=1)


def starts_under(limits: Limits | None, of: Snapshot) -> list[float]:
    return [float(start) for start in under(limits, of).starts()[2:, 0]]


def test_a_job_above_a_limit_starts_when_one_that_counts_with_it_ends_beside_idle_gpus() -> None:
    assert starts_under(TWO_EACH, beside_idle()) == [60.0, 90.0]
    group = Limits(assocs={Assoc("lab", "", ""): AssocLimits(group={JOBS: 2.0})})
    of = beside_idle(account="lab", waiting=3, reason="AssocGrpJobsLimit")
    assert starts_under(group, of) == [60.0, 90.0, 160.0]


def test_who_has_reached_no_limit_starts_at_once_past_those_who_have() -> None:
    of = beside_idle(user=["ada", "ada", "ada", "bob"], reason=["QOSMaxGRESPerUser", "Priority"])
    assert starts_under(TWO_EACH, of) == [60.0, 0.0]


def test_without_limits_nothing_is_told_of_who_waits_for_one_nor_where_they_say_otherwise() -> None:
    assert np.isnan(starts_under(None, beside_idle())).all()
    assert np.isnan(starts_under(Limits(qos={"normal": QosLimits(user={"gres/gpu": 9.0})}), beside_idle())).all()
    assert np.isnan(starts_under(TWO_EACH, beside_idle(reason="QOSGrpBillingMinutes"))).all()


def test_what_runs_on_other_nodes_counts_in_a_limit_too() -> None:
    """The two that run are on nodes on which those that wait may not."""
    of = beside_idle(placement=[0, 0, 1, 1])
    apart = replace(of, fits=np.array([[True, False], [False, True]]))
    assert starts_under(TWO_EACH, apart) == [60.0, 90.0]


def test_a_job_that_has_ended_counts_no_more_in_a_limit() -> None:
    of = beside_idle(state=["completing", "running", "pending", "pending"], reason=["None", "QOSMaxGRESPerUser"])
    assert starts_under(TWO_EACH, of) == [0.0, 90.0]


def test_a_limit_of_a_type_of_gpu_counts_those_of_this_type() -> None:
    few = Limits(qos={"normal": QosLimits(user={"gres/gpu:a100": 2.0})})
    of = beside_idle(gpu_type=["a100", "a100", "a100", "h100"], reason=["QOSMaxGRESPerUser", "None"])
    typed = replace(of, nodes=replace(of.nodes, gpu_types=("a100", "h100")))
    assert starts_under(few, typed) == [60.0, 0.0]


def test_one_more_job_waits_for_the_limits_of_its_user() -> None:
    live = under(TWO_EACH, beside_idle(waiting=0))
    everywhere = np.ones(2, dtype=bool)

    def start(user: str, qos: str = "normal", gpus: float = 1) -> float:
        one = OneMore(np.array([gpus, 1.0, 0.0]), 200.0, np.full(1, 100.0))
        whose = ResourceUse(user, "lab", qos, "gpu", {})
        return float(live.starts_of([one], 0, everywhere, whose=whose)[0, 0])

    assert [start("ada"), start("bob"), start("ada", qos="other")] == [60.0, 0.0, 0.0]
    assert start("ada", gpus=2) == 90.0
    assert start("bob", gpus=3) == np.inf


def test_the_elements_of_an_array_reach_a_limit_together() -> None:
    """Two run, and may be four: two of three elements start at once, the third when one ends, and then the last job."""
    four = Limits(qos={"normal": QosLimits(user={"gres/gpu": 4.0})})
    assert starts_under(four, beside_idle(elements=[1, 1, 3, 1], reason="Priority")) == [0.0, 90.0]


def test_a_limit_that_all_jobs_together_do_not_reach_makes_no_job_another_kind() -> None:
    of = beside_idle(user=["ada", "bob", "ada", "eve"], reason="Priority")
    for most, kinds in ((2.0, 1), (1.0, 2)):
        found = QueueLimits(Limits(qos={"normal": QosLimits(user={"gres/gpu": most})}), of).sums()
        assert found is not None
        assert len(found[0].counts) == kinds


def test_a_job_that_gets_whole_nodes_waits_until_one_is_idle_beside_free_parts_of_many() -> None:
    """Each of two nodes has half of its CPUs free; a job of one CPU waits for the first node that is idle."""
    demand = [[1.0, 4.0, 0.0], [1.0, 4.0, 0.0], [0.0, 1.0, 0.0]]
    of = full(2, waiting=1, gpus=[1, 1, 0], demand=demand, partition=["gpu", "gpu", "whole"])
    of = replace(of, nodes=replace(of.nodes, used=np.array(demand[:2])))
    limits = Limits(whole_nodes=frozenset({"whole"}))
    np.testing.assert_array_equal(under(None, of).starts()[2], [0.0])
    np.testing.assert_array_equal(under(limits, of).starts()[2], [60.0])
    either = replace(of, jobs=replace(of.jobs, partition=np.array(["gpu", "gpu", "whole,gpu"])))
    np.testing.assert_array_equal(under(limits, either).starts()[2], [0.0])


def test_jobs_that_get_whole_nodes_share_none_with_each_other() -> None:
    of = full(7, waiting=3, gpus=[4] * 7 + [0] * 3, partition=["gpu"] * 7 + ["whole"] * 3)
    of = snapshot(of.jobs, nodes(2), runs_on=np.array([(row, 0, 0) for row in range(7)]))
    found = under(Limits(whole_nodes=frozenset({"whole"})), of).starts()[7:, 0]
    assert found.tolist() == [0.0, 60.0, 100.0], "one node is idle, and one when seven jobs have ended"
