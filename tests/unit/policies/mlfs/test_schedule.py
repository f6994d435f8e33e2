"""MLF-H's migration, and who starts and gives way."""

from typing import Any

import numpy as np
import pytest

from policies.mlfs.migration import MigrationSettings, lowest_priority, select_migrations
from policies.mlfs.mlfs import MLFH, MLFHSettings
from policies.mlfs.placement import PlacementSettings, Servers
from policies.mlfs.schedule import FEW, ScheduleSettings, preemption_loss, schedule
from policies.plan import Action, OtherJob
from policies.snapshot import Jobs, Snapshot
from tests.builders import NOW, forecasts, jobs, nodes, on_networks, snapshot

HOUR = 3600.0
NOBODY = np.zeros(0, dtype=np.int64)


def runs(n: int, gpus: Any, **columns: Any) -> Jobs:
    """Jobs that run for an hour and can go on from a checkpoint."""
    given = {"state": "running", "started": NOW - HOUR, "restartable": True, "reason": "None", **columns}
    return jobs(n, gpus=gpus, **given)


def seen(of_jobs: Jobs, n: int = 2, on: Any = (), **columns: Any) -> Snapshot:
    runs_on = np.array(on, dtype=np.int64).reshape(-1, 3)
    if "network" in columns:
        of_jobs = on_networks(of_jobs, np.broadcast_to(columns.pop("network"), n), runs_on)
    used = np.zeros((n, 3))
    for row, node, gpus in runs_on.tolist():
        used[node] += of_jobs.demand[row] * (gpus / of_jobs.demand[row, 0])
    return snapshot(of_jobs, nodes(n, **{"used": used, **columns}), runs_on=runs_on)


def told(actions: tuple[Action, ...]) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(action.kind, action.job.job_id, action.nodes) for action in actions]


class TestWhoLeaves:
    def leaving(self, snapshot: Snapshot, score: Any, lowest: float = 0.1, **settings: Any) -> list[tuple[int, int]]:
        servers = Servers(snapshot, PlacementSettings(**settings))
        return select_migrations(servers, np.asarray(score, dtype=float), snapshot.jobs.restartable, lowest)

    def test_most_of_what_is_contended_and_least_of_all_else(self) -> None:
        # all bear on the network; the second as much as the third, with fewer GPUs
        of_jobs = runs(3, [1, 1, 2], traffic=[10, 40, 40])
        look = seen(of_jobs, on=[(0, 0, 1), (1, 0, 1), (2, 0, 2)], network=[0.95, 0.0])
        assert self.leaving(look, [1, 1, 1]) == [(1, 0)]

    def test_until_the_node_is_not_overloaded(self) -> None:
        of_jobs = runs(4, 1, traffic=10)
        look = seen(of_jobs, on=[(row, 0, 1) for row in range(4)], network=[1.0, 0.0])
        assert len(self.leaving(look, [1] * 4)) == 1
        assert len(self.leaving(look, [1] * 4, overload=0.6)) == 2

    def test_nobody_where_nobody_relieves_it(self) -> None:
        look = seen(runs(2, 1), on=[(0, 0, 1), (1, 0, 1)], network=[0.95, 0.0])
        assert self.leaving(look, [1, 1]) == []

    def test_one_that_talks_to_nobody_there(self) -> None:
        of_jobs = runs(3, 1, ml_job=[0, 0, 2], traffic=[10, 10, 10])
        look = seen(of_jobs, on=[(row, 0, 1) for row in range(3)], network=[0.95, 0.0])
        assert self.leaving(look, [1] * 3) == [(2, 0)]

    def test_one_of_the_lowest_priority_from_overloaded_gpus(self) -> None:
        of_jobs = runs(3, [1, 3, 1])
        look = seen(of_jobs, on=[(0, 0, 1), (1, 0, 3), (2, 0, 1)])
        assert self.leaving(look, [3, 2, 1])[0] == (2, 0)
        assert self.leaving(look, [3, 2, 1], lowest=1.0)[0] == (1, 0)

    def test_none_that_may_not_be_moved(self) -> None:
        of_jobs = runs(2, 1, traffic=[10, 1], restartable=[False, True])
        look = seen(of_jobs, on=[(0, 0, 1), (1, 0, 1)], network=[0.95, 0.0])
        assert self.leaving(look, [1, 1]) == [(1, 0)]

    @pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.5, 2), (1.0, 4)])
    def test_p_s_counts_from_the_lowest_and_at_least_one(self, share: float, count: int) -> None:
        assert lowest_priority(np.arange(4), np.array([4.0, 1.0, 3.0, 2.0]), share).tolist() == [1, 3, 2, 0][:count]


def decided(look: Snapshot, score: Any, remaining: Any = HOUR, **settings: Any) -> tuple[Action, ...]:
    n = len(look.jobs)
    left = np.broadcast_to(np.asarray(remaining, dtype=float), (n,))
    return schedule(look, np.asarray(score, dtype=float), left, NOBODY, ScheduleSettings(**settings))


class TestMigration:
    LOOK = seen(runs(2, 1, traffic=[10, 80]), on=[(0, 0, 1), (1, 0, 1)], network=[0.95, 0.0])

    def test_takes_a_job_from_an_overloaded_node_to_another(self) -> None:
        assert told(decided(self.LOOK, [2, 1])) == [("migrate", 2, ("n2",))]

    def test_can_be_switched_off(self) -> None:
        assert decided(self.LOOK, [2, 1], migrate=False) == ()

    def test_spares_a_job_that_has_just_begun(self) -> None:
        assert decided(self.LOOK, [2, 1], settle=2 * HOUR) == ()

    def test_sends_a_job_that_finds_no_place_back_to_the_queue_while_its_node_is_overloaded(self) -> None:
        alone = seen(self.LOOK.jobs, 1, on=[(0, 0, 1), (1, 0, 1)], network=0.95)
        assert told(decided(alone, [2, 1])) == [("preempt", 2, ())]
        assert decided(alone, [2, 1], preempt=False) == ()

    def crowded(self, there: float) -> tuple[Action, ...]:
        """The CPUs of the first node are contended for; of the second node's so many are in use."""
        of_jobs = runs(2, 2, demand=[2, 16, 0])
        return decided(seen(of_jobs, on=[(0, 0, 2), (1, 0, 2)], load=[[0, 36, 0], [0, there, 0]]), [2, 1])

    def test_takes_a_job_from_crowded_cpus_to_a_node_that_it_does_not_crowd(self) -> None:
        assert [(kind, nodes) for kind, _, nodes in told(self.crowded(12))] == [("migrate", ("n2",))]

    def test_leaves_a_job_on_crowded_cpus_that_would_crowd_every_other_node(self) -> None:
        assert self.crowded(16) == ()

    def test_leaves_a_job_that_overloads_any_network_by_itself(self) -> None:
        look = seen(runs(1, 8), 4, on=[(0, 0, 4), (0, 1, 4)], network=[0.95, 0.95, 0.0, 0.0])
        assert not [action for action in decided(look, [1]) if action.kind == "preempt"]


class TestReportsOfOthers:
    """What another's job reports of its network moves nobody but itself."""

    def look(self, reports: list[float], *, managed: bool = True, **columns: Any) -> Snapshot:
        """Ada's and eve's jobs on one node, and another node that is free; what each reports of the network."""
        given = {"user": ["ada", "eve"], "managed": [True, managed], "traffic": [10, 80], **columns}
        of_jobs = runs(2, [1, 1], network=reports, **given)
        return seen(of_jobs, on=[(0, 0, 1), (1, 0, 1)])

    def test_a_job_leaves_by_its_own_report_only(self) -> None:
        assert told(decided(self.look([0.1, 1.0]), [2, 1])) == [("migrate", 2, ("n2",))]
        assert told(decided(self.look([0.95, 0.1]), [2, 1])) == [("migrate", 1, ("n2",))]
        assert told(decided(self.look([np.nan, 1.0]), [1, 2])) == [("migrate", 2, ("n2",))]

    def test_an_unmanaged_job_moves_nobody(self) -> None:
        assert decided(self.look([np.nan, 1.0], restartable=[True, False]), [2, 1]) == ()
        assert decided(self.look([0.5, 1.0], managed=False, restartable=[True, False]), [2, 1]) == ()

    def test_a_report_protects_nobody_on_the_node_from_one_that_ranks_higher(self) -> None:
        of_jobs = jobs(
            2,
            gpus=4,
            state=["running", "pending"],
            started=[NOW - HOUR, np.nan],
            restartable=True,
            user=["eve", "ada"],
            network=[1.0, np.nan],
            traffic=[1e9, np.nan],
        )
        look = seen(of_jobs, 1, on=[(0, 0, 4)])
        assert told(decided(look, [1, 2], migrate=False)) == [("preempt", 1, ()), ("place", 2, ("n1",))]

    def test_no_report_sends_anothers_job_back_to_the_queue(self) -> None:
        alone = seen(self.look([np.nan, 1.0]).jobs, 1, on=[(0, 0, 1), (1, 0, 1)])
        assert told(decided(alone, [2, 1])) == [("preempt", 2, ())]


class TestStarts:
    def test_go_in_order_of_priority_while_there_is_room(self) -> None:
        look = seen(jobs(3, gpus=[2, 2, 2]), 1)
        assert [job for _, job, _ in told(decided(look, [1, 3, 2]))] == [2, 3]

    def test_pass_over_what_does_not_fit_unless_it_is_to_wait(self) -> None:
        look = seen(jobs(2, gpus=[8, 1]), 1)
        assert told(decided(look, [2, 1])) == [("place", 2, ("n1",))]
        assert decided(look, [2, 1], skip=False) == ()

    def test_come_together_or_not_at_all_for_an_ml_job(self) -> None:
        parts = jobs(3, gpus=[3, 2, 1], ml_job=[0, 0, 2])
        assert [job for _, job, _ in told(decided(seen(parts, 1), [3, 2, 1]))] == [3]
        assert {job for _, job, _ in told(decided(seen(parts, 2), [3, 2, 1]))} == {1, 2, 3}

    @pytest.mark.parametrize("columns", [{"held": True}, {"reason": "Dependency"}, {"awaits": True}])
    def test_leave_out_what_may_not_start(self, columns: Any) -> None:
        assert decided(seen(jobs(**columns)), [1]) == ()

    def test_leave_out_a_part_whose_other_parts_may_not_start(self) -> None:
        assert decided(seen(jobs(2, ml_job=0, reason=["Priority", "Dependency"])), [1, 1]) == ()
        assert decided(seen(jobs(2, ml_job=0, managed=[True, False])), [1, 1]) == ()

    def test_do_not_wait_for_a_later_step_of_their_ml_job(self) -> None:
        steps = jobs(3, ml_job=0, reason=["Priority", "Dependency", "Dependency"], parents=[(1, 0), (2, 1)])
        assert [job for _, job, _ in told(decided(seen(steps), [1, 1, 1]))] == [1]


def test_a_job_that_waits_for_admission_is_let_in() -> None:
    plan = MLFH().decide(seen(jobs(2, awaits=[True, False])), forecasts(2), {})
    assert [(action.kind, action.job.job_id) for action in plan.actions] == [("place", 2), ("release", 1)]


class TestPreemption:
    ON = ((0, 0, 4),)

    def look(self, **columns: Any) -> Snapshot:
        """One full node, and a job that waits for it."""
        given: dict[str, Any] = {
            "state": ["running", "pending"],
            "started": [NOW - HOUR, np.nan],
            "restartable": True,
            **columns,
        }
        return seen(jobs(2, gpus=4, **given), 1, on=self.ON)

    def test_lets_the_higher_priority_go_first(self) -> None:
        assert told(decided(self.look(), [1, 2])) == [("preempt", 1, ()), ("place", 2, ("n1",))]

    def test_says_for_whom(self) -> None:
        look = self.look()
        facts = decided(look, [1, 2])[0].reason.facts
        assert (facts["by"], facts["rank"]) == (OtherJob(look.jobs.keys[1], 2.0), 1.0)

    @pytest.mark.parametrize("score", [[2, 1], [1, 1]])
    def test_leaves_what_is_no_lower(self, score: list[float]) -> None:
        assert decided(self.look(), score) == ()

    @pytest.mark.parametrize(
        "columns",
        [
            {"restartable": False},
            {"managed": [False, True]},
            {"held": [True, False]},
            {"interactive": [True, False]},
        ],
    )
    def test_leaves_what_may_not_be_preempted(self, columns: Any) -> None:
        assert decided(self.look(**columns), [1, 2]) == ()

    def test_leaves_what_has_just_begun_where_it_is_to_settle(self) -> None:
        fresh = self.look(started=[NOW - 60.0, np.nan])
        assert decided(fresh, [1, 2], settle=300.0) == ()
        assert decided(fresh, [1, 2]) != ()

    def test_can_be_switched_off(self) -> None:
        assert decided(self.look(), [1, 2], preempt=False) == ()

    def test_leaves_a_job_that_is_nearly_done(self) -> None:
        assert decided(self.look(), [1, 2], remaining=100.0) == ()

    def test_leaves_a_job_that_would_lose_much(self) -> None:
        saved = {"iteration": [90, 0], "iteration_time": [60.0, np.nan], "resumed": [10, np.nan]}
        assert decided(self.look(**saved, checkpoint=[20, np.nan]), [1, 2]) == ()
        assert decided(self.look(**saved, checkpoint=[85, np.nan]), [1, 2]) != ()

    def test_takes_the_lowest_and_no_more_than_needed(self) -> None:
        of_jobs = jobs(5, gpus=[1, 1, 1, 1, 2], state=["running"] * 4 + ["pending"], started=NOW - HOUR,
                       restartable=True)  # fmt: skip
        look = seen(of_jobs, 1, on=[(row, 0, 1) for row in range(4)])
        assert told(decided(look, [4, 1, 3, 2, 5])) == [
            ("preempt", 4, ()),
            ("preempt", 2, ()),
            ("place", 5, ("n1",)),
        ]

    def test_lets_no_more_give_way_than_the_churn_allows_or_a_few(self) -> None:
        of_jobs = jobs(40, gpus=1, state=["running"] * 20 + ["pending"] * 20, started=NOW - HOUR, restartable=True)
        look = seen(of_jobs, 5, on=[(row, row // 4, 1) for row in range(20)])
        for churn, many in ((0.0, FEW), (0.5, 10), (1.0, 20)):
            kinds = [kind for kind, *_ in told(decided(look, [1] * 20 + [2] * 20, churn=churn))]
            assert kinds.count("preempt") == many

    def test_takes_an_ml_job_whole(self) -> None:
        of_jobs = jobs(3, gpus=[2, 2, 1], ml_job=[0, 0, 2], state=["running", "running", "pending"],
                       started=NOW - HOUR, restartable=True)  # fmt: skip
        look = seen(of_jobs, 1, on=[(0, 0, 2), (1, 0, 2)])
        assert {job for kind, job, _ in told(decided(look, [1, 1, 2])) if kind == "preempt"} == {1, 2}
        fixed = seen(runs_partly_fixed(), 1, on=[(0, 0, 2), (1, 0, 2)])
        assert decided(fixed, [1, 1, 2]) == ()


def runs_partly_fixed() -> Jobs:
    return jobs(3, gpus=[2, 2, 1], ml_job=[0, 0, 2], state=["running", "running", "pending"], started=NOW - HOUR,
                restartable=[True, False, True])  # fmt: skip


def test_a_preempted_job_loses_its_restart_and_what_it_saves_in_its_own_time_only() -> None:
    of_jobs = jobs(4, iteration=10, checkpoint=[4, np.nan, 10, 4], resumed=[1, 1, 1, 5], iteration_time=5.0)
    assert preemption_loss(of_jobs, 60.0).tolist() == [90.0, 60.0, 60.0, 60.0]


class TestHysteresis:
    def look(self, left: float) -> tuple[Snapshot, Any]:
        of_jobs = jobs(2, gpus=4, state=["running", "pending"], started=[NOW - HOUR, np.nan], restartable=True)
        # the total is the same for both, so that only what remains tells them apart
        return seen(of_jobs, 1, on=[(0, 0, 4)]), forecasts(2, remaining=[10 * HOUR, left], total=20 * HOUR)

    def test_keeps_a_job_that_is_only_a_little_lower(self) -> None:
        assert MLFH().decide(*self.look(9 * HOUR), {}).actions == ()
        assert told(MLFH().decide(*self.look(5 * HOUR), {}).actions) == [("preempt", 1, ()), ("place", 2, ("n1",))]

    def test_is_a_setting(self) -> None:
        look = self.look(9 * HOUR)
        assert MLFH(MLFHSettings(hysteresis=1.0)).decide(*look, {}).actions != ()


class TestAblations:
    OF_JOBS = jobs(2, urgency=[1, 10], deadline=[NOW + 2.1 * HOUR, np.nan])

    def order(self, remaining: Any, **settings: Any) -> list[int]:
        plan = MLFH(MLFHSettings(**settings)).decide(
            snapshot(self.OF_JOBS), forecasts(2, remaining=remaining, total=remaining), {}
        )
        return [int(row) for row in np.argsort(-plan.score)]

    def test_urgency(self) -> None:
        assert self.order([2 * HOUR, 2 * HOUR], gamma_d=0.0) == [1, 0]
        plan = MLFH(MLFHSettings(gamma_d=0.0, use_urgency=False)).decide(
            snapshot(self.OF_JOBS), forecasts(2, remaining=HOUR, total=HOUR), {}
        )
        assert plan.score[0] == plan.score[1]

    def test_deadline(self) -> None:
        assert self.order([2 * HOUR, 1.9 * HOUR], use_urgency=False) == [0, 1]
        assert self.order([2 * HOUR, 1.9 * HOUR], use_urgency=False, use_deadline=False) == [1, 0]


@pytest.mark.parametrize("wrong", [{"loss": -1.0}, {"restart": np.inf}, {"settle": -1.0}, {"churn": 2.0}])
def test_settings_that_make_no_sense_are_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ScheduleSettings(**wrong)


def test_a_share_of_the_lowest_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="lowest"):
        MigrationSettings(lowest=0.0)
