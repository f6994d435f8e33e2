"""MLF-H with elastic jobs: who has more GPUs than it asked for, and who fewer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.marginal_gain.speeds import concave_hull, relative_speed
from policies.mlfs.growth import GrowthSettings, weights
from policies.mlfs.mlfs import MLFH, MLFS, MLFHSettings, MLFSSettings
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

HOUR = 3600.0
GPUS = np.array([1.0, 2.0, 4.0, 8.0])


def sizes(
    look: Snapshot, remaining: float | list[float], *, power: float = 0.8, known: bool = True, **settings: Any
) -> list[int]:
    """The GPUs that each job has after a decision, whose speed goes with this power of its GPUs."""
    predicted = predict(len(look.jobs), remaining, power=power, known=known)
    plan = MLFH(MLFHSettings(**settings)).decide(look, predicted, {})
    after = {key: int(gpus) for key, gpus in zip(look.jobs.keys, _held(look), strict=True)}
    for action in plan.actions:
        after[action.job] = 0 if action.kind == "preempt" else sum(action.shares)
    return list(after.values())


def predict(n: int, remaining: float | list[float], *, power: float = 0.8, known: bool = True) -> Forecasts:
    """Of n jobs."""
    speed = np.repeat(GPUS[None, :] ** power, n, axis=0)
    fan = Fan.of(n, np.arange(n), np.repeat(GPUS[None, :], n, axis=0), [Forecast.certain(s, "test") for s in speed.T])
    predicted = forecasts(n, total=remaining, remaining=remaining)
    return replace(predicted, speed=fan) if known else predicted


def _held(look: Snapshot) -> np.ndarray:
    return np.bincount(look.runs_on[:, 0], look.runs_on[:, 2], minlength=len(look.jobs))


def cluster(*held: int, waiting: int = 0, asked: int = 4, there: int = 2, **columns: Any) -> Snapshot:
    """Nodes of four GPUs: jobs that hold so many GPUs each, by node, and jobs that wait; all train on 1 to 8."""
    n = len(held) + waiting
    runs_on, used = [], np.zeros((there, 3))
    for row, gpus in enumerate(held):
        left = gpus
        while left:
            node = int(np.argmax(used[:, 0] < 4))
            part = min(left, 4 - int(used[node, 0]))
            runs_on.append((row, node, part))
            used[node, 0] += part
            left -= part
    given = {
        "gpus": [*held, *[asked] * waiting],
        "gpus_min": 1,
        "gpus_max": 8,
        "state": ["running"] * len(held) + ["pending"] * waiting,
        "started": [NOW - HOUR] * len(held) + [np.nan] * waiting,
        "restartable": True,
        "demand": [[gpus, 0, 0] for gpus in (*held, *[asked] * waiting)],
    }
    return snapshot(
        jobs(n, **given | columns), nodes(there, used=used), runs_on=np.array(runs_on, dtype=np.int64).reshape(-1, 3)
    )


def test_what_nobody_wants_goes_to_who_gains_by_it() -> None:
    assert sizes(cluster(4), 10 * HOUR) == [8]


def test_without_grow_every_job_keeps_its_size() -> None:
    assert sizes(cluster(4), 10 * HOUR, grow=False) == [4]


@pytest.mark.parametrize("columns", [{"gpus_max": 4}, {"restartable": False}, {"managed": False}])
def test_only_an_elastic_job_that_may_be_changed_grows(columns: dict[str, Any]) -> None:
    assert sizes(cluster(4, **columns), 10 * HOUR) == [4]


def test_room_is_kept_for_a_job_that_is_not_managed_which_slurm_starts() -> None:
    assert sizes(cluster(4, waiting=1, managed=[True, False]), 10 * HOUR) == [4, 0]


def test_a_job_of_unknown_speed_keeps_its_size() -> None:
    assert sizes(cluster(4), 10 * HOUR, known=False) == [4]


def test_a_job_that_more_gpus_save_less_than_two_restarts_does_not_grow() -> None:
    assert sizes(cluster(4), 280.0) == [4]  # twice the GPUs save 1 - 2^-0.8 of it, which is 119 s
    assert sizes(cluster(4), 285.0) == [8]
    assert sizes(cluster(4), 280.0, restart=59.0) == [8]


def test_a_job_that_gains_nothing_does_not_grow() -> None:
    assert sizes(cluster(4), 10 * HOUR, power=0.0) == [4]


def test_who_has_more_than_it_asked_for_shrinks_so_that_another_starts() -> None:
    after = sizes(cluster(8, waiting=1), [3 * HOUR, HOUR], power=0.4)
    assert sum(after) == 8
    assert min(after) >= 1


def test_of_two_that_wait_the_one_nearer_its_end_has_more() -> None:
    near, far = sizes(cluster(waiting=2), [HOUR, 3 * HOUR], power=0.4)
    assert near > far >= 1
    assert near + far == 8


def test_none_has_less_than_its_least() -> None:
    after = sizes(cluster(waiting=5, gpus_min=3, asked=3), [HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 5 * HOUR])
    assert all(gpus == 0 or gpus >= 3 for gpus in after)
    assert sum(after) == 8


def test_small_gains_of_others_take_nobodys_gpus() -> None:
    look = cluster(4, 4)
    assert sizes(look, [HOUR, 1.2 * HOUR], keep=2.0) == [4, 4]


def test_a_stopping_job_is_left_alone() -> None:
    look = cluster(4, stop="target", target=0.5, accuracies=[[0.1, 0.2, 0.3, 0.4, 0.6]])
    fan = Fan.of(1, [0], GPUS[None, :], [Forecast.certain([gpus], "test") for gpus in GPUS])
    predicted = replace(forecasts(1, total=10 * HOUR, remaining=10 * HOUR), speed=fan)
    plan = MLFS().decide(look, predicted, {})
    assert [action.kind for action in plan.actions] == ["stop"]


def test_a_job_of_a_fixed_size_leaves_an_overloaded_node_while_others_grow() -> None:
    look = cluster(2, 2, there=3, gpus_max=[2, 8], gpus_min=[2, 1], demand=[[2, 8, 0], [2, 8, 0]])
    used, load = (np.array([[gpus, cpus, 0], [0, 0, 0], [0, 0, 0]], dtype=float) for gpus, cpus in ((4, 16), (0, 31)))
    look = replace(look, nodes=replace(look.nodes, used=used, load=load))
    predicted = predict(2, [HOUR, 9 * HOUR])
    actions = {action.job.job_id: action for action in MLFH().decide(look, predicted, {}).actions}
    assert actions[1].kind == "migrate"
    assert "n1" not in actions[1].nodes
    assert actions[2].kind == "resize"
    assert sum(actions[2].shares) == 8


def test_speed_is_needed_only_where_jobs_grow() -> None:
    assert {"speed", "guessed speed"} <= MLFH().needs & MLFS().needs
    assert "speed" not in MLFH(MLFHSettings(grow=False)).needs | MLFS(MLFSSettings(grow=False)).needs


def test_a_keep_that_makes_no_sense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="keep"):
        GrowthSettings(keep=0.5)


def test_the_weights_by_hand() -> None:
    """c = 10 / 3: 2^c = 10.079, 3^c = 38.941, and the root is the power 0.3."""
    assert weights(np.array([10.0, 1.0, 5.0])) == pytest.approx([1.0, 28.861**0.3, 9.079**0.3], abs=1e-3)


def test_on_a_power_of_the_gpus_the_shares_are_those_of_hesrpt() -> None:
    """Each within one of ((i / m)^c - ((i - 1) / m)^c) of 400 GPUs."""
    m, units, c = 6, 400, 1 / 0.3
    gpus = np.arange(1.0, units + 1)
    look = snapshot(jobs(m, gpus=1, gpus_max=units), nodes(1, capacity=[units, units, 0]))
    fan = Fan.of(m, np.arange(m), np.tile(gpus, (m, 1)), [Forecast.certain(np.full(m, k**0.7), "test") for k in gpus])
    hours = [(m - row) * 10 * HOUR for row in range(m)]
    plan = MLFH().decide(look, replace(forecasts(m, total=hours, remaining=hours), speed=fan), {})
    got = {action.job.job_id: sum(action.shares) for action in plan.actions}
    rank = np.arange(1, m + 1)
    expected = units * ((rank / m) ** c - ((rank - 1) / m) ** c)
    assert [got.get(row + 1, 0) for row in range(m)] == pytest.approx(expected, abs=1.0)


def test_the_hull_by_hand() -> None:
    """Speeds 10, 18, 17, 33 on 1, 2, 3, 4: straight from 2 to 4, at 15 for two GPUs; flat from 4 to 6."""
    speed = Fan.of(
        1, [0], np.array([[1.0, 2, 3, 4, 6]]), [Forecast.certain([v], "test") for v in (10.0, 18, 17, 33, 30)]
    )
    at, rate, _ = concave_hull(speed, np.array([0]), np.array([1]), np.array([6]))
    on = [float(relative_speed(at, rate, np.array([gpus]))[0]) for gpus in range(7)]
    assert on == pytest.approx([0, 1.0, 1.8, 2.55, 3.3, 3.3, 3.3])


def test_below_its_minimum_a_job_has_no_speed() -> None:
    speed = Fan.of(1, [0], np.array([[1.0, 2, 4]]), [Forecast.certain([v], "test") for v in (10.0, 18, 24)])
    at, rate, _ = concave_hull(speed, np.array([0]), np.array([2]), np.array([4]))
    on = [float(relative_speed(at, rate, np.array([gpus]))[0]) for gpus in range(5)]
    assert on == pytest.approx([0, 1.0, 2.0, 2 + 1 / 3, 2 + 2 / 3])


def test_the_largest_waits_where_its_first_gpu_is_worth_less_than_the_last_of_others_unless_it_is_guaranteed() -> None:
    look = cluster(waiting=3, there=1, gpus_max=2, asked=1)
    left = [HOUR, HOUR, 900 * HOUR]
    assert sizes(look, left, power=0.9) == [2, 2, 0]
    assert sum(sizes(look, left, power=0.9, guarantee=True)) == 4
    assert min(sizes(look, left, power=0.9, guarantee=True)) == 1


def test_a_job_gets_no_gpus_of_nodes_on_which_it_may_not_run() -> None:
    look = cluster(waiting=2, placement=[0, 1])
    look = replace(look, fits=np.array([[True, False], [False, True]]))
    assert sizes(look, [HOUR, 100 * HOUR]) == [4, 4]
    look = replace(look, fits=np.array([[True, True], [True, False]]))
    assert sizes(look, [9 * HOUR, HOUR]) == [4, 4]


def test_jobs_of_one_ml_job_are_not_resized() -> None:
    assert sizes(cluster(waiting=2, asked=2, ml_job=[0, 0]), HOUR) == [2, 2]


def test_a_job_that_may_not_start_yet_takes_no_share() -> None:
    assert sizes(cluster(4, waiting=1, reason=["None", "Dependency"]), HOUR) == [8, 0]


def test_elastic_jobs_shrink_for_one_of_a_fixed_size() -> None:
    look = cluster(8, waiting=1, asked=6, gpus_min=[1, 6], gpus_max=[8, 6])
    assert sizes(look, [10 * HOUR, HOUR]) == [2, 6]


def test_a_job_of_a_fixed_size_gives_way_to_an_elastic_one_before_it_where_its_wait_is_worth_the_loss() -> None:
    look = cluster(8, waiting=1, asked=2, gpus_min=[8, 1], gpus_max=8)
    assert sizes(look, [100 * HOUR, HOUR]) == [0, 8]
    assert sizes(look, [100 * HOUR, HOUR], loss=0.0) == [8, 0]
    assert sizes(look, [HOUR, 100 * HOUR]) == [8, 0]


@pytest.mark.parametrize("grow", [True, False])
def test_a_job_of_a_fixed_size_that_found_no_room_takes_what_elastic_ones_leave(grow: bool) -> None:
    """The first in the queue does not fit, nor would it if the elastic job had its least."""
    look = cluster(
        1,
        waiting=2,
        there=1,
        gpus=[1, 4, 3],
        gpus_min=[1, 4, 3],
        gpus_max=[2, 4, 3],
        demand=[[1, 0, 0], [4, 0, 0], [3, 0, 0]],
    )
    assert sizes(look, [HOUR, HOUR / 4, 9 * HOUR], grow=grow, hysteresis=9.0) == [1, 0, 3]


def test_a_job_whose_share_has_no_room_gets_what_there_is() -> None:
    """Its CPUs fit twice on each node."""
    look = cluster(waiting=1, demand=[[4, 48, 0]])
    assert sizes(look, HOUR) == [4]


def test_a_job_that_finds_no_more_than_it_has_keeps_it_without_a_restart() -> None:
    look = cluster(2, there=1, demand=[[2, 24, 0]])
    look = replace(look, nodes=replace(look.nodes, used=np.array([[2.0, 24.0, 0.0]])))
    assert MLFH().decide(look, predict(1, 10 * HOUR), {}).actions == ()


def test_a_job_that_holds_more_than_the_rest_is_worth_to_it_is_left_with_it_where_nobody_gains() -> None:
    assert sizes(cluster(4, 4, gpus_max=[4, 4]), [HOUR, 50 * HOUR], power=0.0) == [4, 4]


@pytest.mark.parametrize(("iterations", "preempted"), [(8**0.87 * HOUR, False), (np.nan, True)])
def test_a_job_is_of_one_size_whether_it_waits_or_runs_though_its_speed_is_forecast_wrongly(
    iterations: float, preempted: bool
) -> None:
    """An hour on the 8 GPUs that it asked for, by the forecast of its speed 6.1 on the one that it has, and in truth 7.

    By time alone it is the largest of eight while it runs, and the smallest once another has taken its place.
    """
    n, runs = 8, np.arange(8) == 3
    of_jobs = jobs(
        n,
        state=np.where(runs, "running", "pending"),
        started=np.where(runs, NOW - HOUR, np.nan),
        gpus=np.where(runs, 1, 8),
        gpus_min=1,
        gpus_max=8,
        restartable=True,
        max_iterations=iterations,
        iteration=np.where(runs, 10.0, 0.0),
    )
    look = snapshot(of_jobs, nodes(1, capacity=[1, 32, 0], used=[[1, 1, 0]]), runs_on=np.array([[3, 0, 1]]))
    plan = MLFH().decide(look, predict(n, np.where(runs, 7 * HOUR, HOUR).tolist(), power=0.87), {})
    assert ("preempt" in [action.kind for action in plan.actions]) == preempted


def test_with_the_guarantee_who_has_started_keeps_its_minimum_and_without_it_makes_room() -> None:
    look = cluster(1, 1, 1, 1, waiting=2, there=1, asked=1)
    left = [90 * HOUR, 80 * HOUR, 70 * HOUR, 60 * HOUR, HOUR / 2, HOUR / 3]
    assert sizes(look, left, guarantee=True) == [1, 1, 1, 1, 0, 0]
    assert min(sizes(look, left)[4:]) >= 1
