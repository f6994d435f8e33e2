"""MLF-H with elastic jobs: who is given more GPUs than it asked for, and who fewer."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.mlfs.growth import GrowthSettings
from policies.mlfs.mlfs import MLFH, MLFS, MLFHSettings, MLFSSettings
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

HOUR = 3600.0
GPUS = np.array([1.0, 2.0, 4.0, 8.0])


def sizes(
    look: Snapshot, remaining: float | list[float], *, power: float = 0.8, known: bool = True, **settings: Any
) -> list[int]:
    """The GPUs that each job has after a decision, whose speed goes with this power of its GPUs."""
    n = len(look.jobs)
    speed = np.repeat(GPUS[None, :] ** power, n, axis=0)
    fan = Fan.of(n, np.arange(n), np.repeat(GPUS[None, :], n, axis=0), [Forecast.certain(s, "test") for s in speed.T])
    predicted = forecasts(n, total=remaining, remaining=remaining)
    predicted = replace(predicted, speed=fan) if known else predicted
    plan = MLFH(MLFHSettings(grow=True, **settings)).decide(look, predicted, {})
    after = {key: int(gpus) for key, gpus in zip(look.jobs.keys, _held(look), strict=True)}
    for action in plan.actions:
        after[action.job] = 0 if action.kind == "preempt" else sum(action.shares)
    return list(after.values())


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
    look = cluster(4)
    plan = MLFH().decide(look, forecasts(1, total=10 * HOUR, remaining=10 * HOUR), {})
    assert plan.actions == ()


@pytest.mark.parametrize("columns", [{"gpus_max": 4}, {"restartable": False}, {"managed": False}])
def test_only_an_elastic_job_that_may_be_changed_grows(columns: dict[str, Any]) -> None:
    assert sizes(cluster(4, **columns), 10 * HOUR) == [4]


def test_room_is_kept_for_a_job_that_is_not_managed_which_slurm_starts() -> None:
    assert sizes(cluster(4, waiting=1, managed=[True, False]), 10 * HOUR) == [4, 0]


def test_a_job_of_unknown_speed_keeps_its_size() -> None:
    assert sizes(cluster(4), 10 * HOUR, known=False) == [4]


def test_a_job_that_would_be_done_before_the_restart_has_paid_off_does_not_grow() -> None:
    assert sizes(cluster(4), 300.0) == [4]
    assert sizes(cluster(4), 300.0, restart=1.0) == [8]


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
    plan = MLFS(MLFSSettings(grow=True)).decide(look, predicted, {})
    assert [action.kind for action in plan.actions] == ["stop"]


def test_where_a_node_is_overloaded_it_is_relieved_and_nobody_grows() -> None:
    look = cluster(2, 2, there=2)
    look = replace(look, nodes=replace(look.nodes, load=np.array([[0.0, 31.0, 0.0], [0.0, 0.0, 0.0]])))
    assert sizes(look, [HOUR, 9 * HOUR]) == [2, 2]


def test_speed_is_needed_only_where_jobs_grow() -> None:
    assert "speed" not in MLFH().needs | MLFS().needs
    assert "speed" in MLFH(MLFHSettings(grow=True)).needs & MLFS(MLFSSettings(grow=True)).needs


def test_a_keep_that_makes_no_sense_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="keep"):
        GrowthSettings(keep=0.5)
