"""What must hold of MLF-H's priority and MLF-C's stops for every queue."""

from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.mlfs.load_control import LoadControlSettings
from policies.mlfs.mlfs import MLFH, MLFS, MLFHSettings, MLFSSettings
from policies.mlfs.placement import Servers
from policies.mlfs.priority import HOUR, PrioritySettings, score
from policies.plan import OtherJob
from policies.snapshot import Jobs, Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

HOURS = st.floats(0.01, 1000).map(lambda hours: hours * HOUR)
ANY = st.one_of(st.just(np.nan), st.floats(-1e12, 1e12))
FORMS = st.sampled_from([PrioritySettings(form="scaled"), PrioritySettings(form="literal")])


@st.composite
def queues(draw: st.DrawFn, most: int = 8) -> tuple[Jobs, Forecasts]:
    """Jobs of up to three ML jobs, with dependencies that follow the order of the rows, and forecasts of them."""
    n = draw(st.integers(1, most))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=n, max_size=n))

    first = [row % 3 if row % 3 <= row else row for row in range(n)]
    pairs = [(child, parent) for child in range(n) for parent in range(child)]
    parents = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    state = column(st.sampled_from(["pending", "running"]))
    of_jobs = jobs(
        n,
        ml_job=first,
        parents=parents,
        state=state,
        started=np.where(np.array(state) == "running", NOW - 100.0, np.nan),
        urgency=column(st.floats(0, 10)),
        waited=column(HOURS),
        iteration=column(st.integers(0, 100)),
        max_iterations=column(st.sampled_from([np.nan, 100.0])),
        params=column(st.sampled_from([np.nan, 1.0, 5.0])),
        deadline=column(st.one_of(st.just(np.nan), HOURS.map(lambda ahead: NOW + ahead))),
        losses=column(st.lists(st.floats(0, 10), max_size=6)),
    )
    times = np.array(column(HOURS))
    return of_jobs, forecasts(n, remaining=times, total=times + 100.0)


def priorities(of_jobs: Jobs, predicted: Forecasts, config: PrioritySettings) -> np.ndarray:
    return score(of_jobs, NOW, predicted, config).score


def with_value(column: np.ndarray, row: int, value: float) -> np.ndarray:
    changed = column.copy()
    changed[row] = value
    return changed


def not_lower(after: np.ndarray, before: np.ndarray) -> bool:
    """Up to rounding of the sums."""
    return bool(np.all(after >= before - 1e-9 * np.abs(before)))


@given(queues(), FORMS, st.data())
def test_higher_urgency_never_lowers_its_own_or_any_other_priority(
    queue: tuple[Jobs, Forecasts], config: PrioritySettings, data: st.DataObject
) -> None:
    of_jobs, predicted = queue
    row = data.draw(st.integers(0, len(of_jobs) - 1))
    urgency = data.draw(st.floats(of_jobs.urgency[row], 10))
    more = replace(of_jobs, urgency=with_value(of_jobs.urgency, row, urgency))
    assert not_lower(priorities(more, predicted, config), priorities(of_jobs, predicted, config))


@given(queues(), FORMS, st.data())
def test_a_longer_wait_never_lowers_its_own_or_any_other_priority(
    queue: tuple[Jobs, Forecasts], config: PrioritySettings, data: st.DataObject
) -> None:
    of_jobs, predicted = queue
    row = data.draw(st.integers(0, len(of_jobs) - 1))
    waited = of_jobs.waited[row] + data.draw(HOURS)
    longer = replace(of_jobs, waited=with_value(of_jobs.waited, row, waited))
    assert not_lower(priorities(longer, predicted, config), priorities(of_jobs, predicted, config))


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0.01, 1), FORMS)
def test_a_closer_deadline_that_can_be_made_never_lowers_priority(
    run_time: float, slack: float, closer: float, config: PrioritySettings
) -> None:
    later, sooner = (
        priorities(jobs(deadline=NOW + (run_time + ahead) * HOUR), forecasts(1, remaining=run_time * HOUR), config)
        for ahead in (slack, slack * closer)
    )
    assert not_lower(sooner, later)


@given(queues(), FORMS, st.data())
def test_a_larger_share_of_the_model_never_lowers_the_priority_of_a_job_without_children(
    queue: tuple[Jobs, Forecasts], config: PrioritySettings, data: st.DataObject
) -> None:
    of_jobs, predicted = queue
    alone = replace(of_jobs, parents=np.zeros((0, 2), np.int64), params=np.ones(len(of_jobs)))
    row = data.draw(st.integers(0, len(alone) - 1))
    larger = replace(alone, params=with_value(alone.params, row, data.draw(st.floats(1, 1e9))))
    assert not_lower(priorities(larger, predicted, config)[row], priorities(alone, predicted, config)[row])


@given(queues(), FORMS, st.data())
def test_raising_a_childs_own_term_never_lowers_its_parent(
    queue: tuple[Jobs, Forecasts], config: PrioritySettings, data: st.DataObject
) -> None:
    of_jobs, predicted = queue
    assume(len(of_jobs.parents))
    child, parent = data.draw(st.sampled_from([tuple(edge) for edge in of_jobs.parents]))
    raised = replace(
        of_jobs,
        urgency=with_value(of_jobs.urgency, child, 10.0),
        waited=with_value(of_jobs.waited, child, of_jobs.waited[child] * 2),
    )
    after, before = priorities(raised, predicted, config), priorities(of_jobs, predicted, config)
    assert not_lower(after[parent], before[parent])


@given(queues(), FORMS)
def test_children_add_at_most_four_times_the_own_value(queue: tuple[Jobs, Forecasts], config: PrioritySettings) -> None:
    of_jobs, predicted = queue
    terms = score(of_jobs, NOW, predicted, config).terms
    own = terms["learning"] + terms["remaining"] + terms["deadline"] + terms["waiting"]
    assert np.all(terms["children"] <= 4 * own * (1 + 1e-9))


@given(queues(), FORMS)
def test_the_terms_sum_up_to_the_rank(queue: tuple[Jobs, Forecasts], config: PrioritySettings) -> None:
    of_jobs, predicted = queue
    result = score(of_jobs, NOW, predicted, config)
    assert np.sum(list(result.terms.values()), axis=0) == pytest.approx(result.score)


@given(queues(), FORMS, st.randoms(use_true_random=False))
def test_priorities_do_not_depend_on_the_order_of_the_rows(
    queue: tuple[Jobs, Forecasts], config: PrioritySettings, random: Random
) -> None:
    of_jobs, predicted = queue
    n = len(of_jobs)
    order = random.sample(range(n), n)
    place = np.argsort(order)
    columns = ("state", "started", "urgency", "waited", "iteration", "max_iterations", "params", "deadline")
    group = [min(place[row] for row in range(n) if of_jobs.ml_job[row] == of_jobs.ml_job[old]) for old in order]
    moved = jobs(
        n,
        ml_job=group,
        parents=place[of_jobs.parents],
        losses=[of_jobs.losses.row(row)[1] for row in order],
        **{name: getattr(of_jobs, name)[order] for name in columns},
    )
    elsewhere = replace(predicted, total=predicted.total[order], remaining=predicted.remaining[order])
    assert priorities(moved, elsewhere, config) == pytest.approx(priorities(of_jobs, predicted, config)[order])


@given(st.data(), FORMS)
def test_a_managed_job_always_has_a_finite_rank(data: st.DataObject, config: PrioritySettings) -> None:
    n = data.draw(st.integers(1, 5))

    def column(values: st.SearchStrategy[Any] = ANY) -> list[Any]:
        return data.draw(st.lists(values, min_size=n, max_size=n))

    rows = st.integers(0, n - 1)
    of_jobs = jobs(
        n,
        state=column(st.sampled_from(["pending", "running", "suspended", "completing"])),
        ml_job=np.sort(column(rows)),
        role=column(st.sampled_from(["", "worker", "ps"])),
        parents=data.draw(st.lists(st.tuples(rows, st.integers(-1, n - 1)), max_size=8)),
        losses=column(st.lists(st.floats(), max_size=5)),
        **{
            name: column()
            for name in (
                "submitted started time_limit waited attained urgency deadline max_iterations params iteration"
            ).split()
        },
    )
    predicted = forecasts(n, total=column(), remaining=column())
    with np.errstate(all="raise", under="ignore"):
        assert np.all(np.isfinite(priorities(of_jobs, predicted, config)))


CURVES = st.lists(st.floats(0, 1), max_size=12)


@given(CURVES, st.floats(0, 1), st.floats(1e-6, 0.3), st.one_of(st.just(np.nan), st.floats(0, 1)), st.data())
def test_only_running_managed_jobs_that_allow_it_are_stopped_and_never_early(
    curve: list[float], mean: float, sd: float, target: float, data: st.DataObject
) -> None:
    config = MLFSSettings(overload_enter=1)
    choice: dict[str, Any] = {
        "state": data.draw(st.sampled_from(["pending", "running", "suspended"])),
        "managed": data.draw(st.booleans()),
        "stop": data.draw(st.sampled_from(["iterations", "optstop", "target"])),
        "downgrade": data.draw(st.sampled_from(["", "optstop", "target"])),
        "reason": data.draw(st.sampled_from(["None", "Resources"])),
    }
    of_jobs = jobs(accuracies=[curve], target=target, **choice)
    predicted = replace(forecasts(1), final=Forecast.normal([mean], [sd], "test"))
    plan = MLFS(config).decide(snapshot(of_jobs), predicted, {})
    for action in (action for action in plan.actions if action.kind == "stop"):
        assert choice["state"] == "running"
        assert choice["managed"]
        assert len(curve) >= LoadControlSettings().min_observed
        assert choice["stop"] != "iterations" or choice["downgrade"]
        if action.reason.rule == "target":
            assert max(curve) >= target


@given(queues())
def test_the_same_arguments_give_the_same_plan(queue: tuple[Jobs, Forecasts]) -> None:
    of_jobs, predicted = queue
    first, second = (MLFS().decide(snapshot(of_jobs), predicted, {}) for _ in range(2))
    assert np.array_equal(first.score, second.score)
    assert first.actions == second.actions


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Snapshot, Forecasts]:
    """Up to four nodes with jobs that run where there is room for them, and jobs that wait."""
    there, n = draw(st.integers(1, 4)), draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[Any]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)))

    gpus = column(st.sampled_from([0, 1, 2, 4, 6]))
    ranged = column(st.booleans()) & (gpus > 0)
    demand = np.stack([gpus, np.maximum(gpus, 1) * column(st.sampled_from([1, 8])), np.zeros(n)], axis=1)
    wanted = column(st.booleans())
    used, runs_on = np.zeros((there, 3)), []
    for row in np.flatnonzero(wanted & (gpus <= 4)):
        for node in range(there):
            if np.all(used[node] + demand[row] <= [4, 32, 131_072]):
                used[node] += demand[row]
                runs_on.append((row, node, gpus[row]))
                break
    runs = np.isin(np.arange(n), [row for row, *_ in runs_on])
    of_jobs = jobs(
        n,
        gpus=gpus,
        gpus_min=np.where(ranged, np.maximum(gpus // 2, 1), gpus),
        gpus_max=np.where(ranged, 2 * gpus, gpus),
        demand=demand,
        ml_job=[min(row, row // 2 * 2) if draw(st.integers(0, 4)) == 0 else row for row in range(n)],
        state=np.where(runs, "running", "pending"),
        started=np.where(runs, NOW - column(st.sampled_from([10.0, 5_000.0])), np.nan),
        managed=column(st.sampled_from([True, True, True, False])),
        held=column(st.sampled_from([False, False, False, True])),
        interactive=column(st.sampled_from([False, False, False, True])),
        reason=column(st.sampled_from(["Resources", "Priority", "Dependency"])),
        restartable=column(st.booleans()),
        user=column(st.sampled_from(["ada", "eve"])),
        traffic=column(st.sampled_from([np.nan, 1.0, 50.0])),
        network=np.where(runs, column(st.sampled_from([np.nan, 0.1, 0.95])), np.nan),
        checkpoint=column(st.sampled_from([np.nan, 0.0, 9.0])),
        iteration=10,
        iteration_time=10.0,
    )
    on_nodes = nodes(
        there,
        used=used,
        up=draw(st.lists(st.sampled_from([True, True, False]), min_size=there, max_size=there)),
        load=np.stack([np.zeros(there), draw(st.sampled_from([0.0, 20.0, 40.0])) + used[:, 1], np.zeros(there)], 1),
    )
    hours = column(HOURS)
    on = np.array(runs_on, np.int64).reshape(-1, 3)
    known = replace(
        forecasts(n, remaining=hours, total=hours), speed=_speeds(draw(st.lists(SPEEDS, min_size=n, max_size=n)))
    )
    return snapshot(of_jobs, on_nodes, runs_on=on), known


SPEEDS = st.sampled_from([None, (1.0, 2.0, 4.0, 8.0), (1.0, 1.6, 2.5, 3.0), (1.0, 0.8, 0.6, 2.0), (1.0, 1.0, 1.0, 1.0)])
"""Iterations a second on 1, 2, 4 and 12 GPUs; None where they are unknown."""


def _speeds(of_jobs: list[tuple[float, ...] | None]) -> Fan:
    rows = [row for row, speeds in enumerate(of_jobs) if speeds]
    if not rows:
        return Fan.unknown(len(of_jobs))
    x = np.tile([1.0, 2.0, 4.0, 12.0], (len(rows), 1))
    by_count = zip(*(speeds for speeds in of_jobs if speeds), strict=True)
    return Fan.of(len(of_jobs), rows, x, [Forecast.certain(list(speeds), "test") for speeds in by_count])


SWITCHES = st.builds(
    MLFHSettings, preempt=st.booleans(), skip=st.booleans(), migrate=st.booleans(), use_bandwidth=st.booleans(),
    ideal=st.sampled_from(["tight", "least"]), overload=st.sampled_from([0.5, 0.9]), churn=st.sampled_from([0.1, 1.0]),
    grow=st.booleans(),
)  # fmt: skip


@settings(max_examples=300)
@given(clusters(), SWITCHES)
def test_no_node_holds_more_than_it_has_after_a_decision_and_each_gang_is_whole(
    cluster: tuple[Snapshot, Forecasts], config: MLFHSettings
) -> None:
    look, predicted = cluster
    plan = MLFH(config).decide(look, predicted, {})
    rows, at = {key: row for row, key in enumerate(look.jobs.keys)}, {n: i for i, n in enumerate(look.nodes.names)}
    used = look.nodes.used.copy()
    per_gpu = look.jobs.demand / np.maximum(look.jobs.gpus, 1)[:, None]
    for action in plan.actions:
        if action.kind in ("preempt", "migrate", "resize"):
            for _, node, gpus in look.runs_on[look.runs_on[:, 0] == rows[action.job]]:
                used[node] -= per_gpu[rows[action.job]] * max(gpus, 1)
    for action in plan.actions:
        if action.kind in ("place", "migrate", "resize"):
            row = rows[action.job]
            least, most = look.jobs.gpus_min[row], look.jobs.gpus_max[row]
            assert (least <= sum(action.shares) <= most) if config.grow else sum(action.shares) == look.jobs.gpus[row]
            assert (action.kind == "resize") <= (least < most)
            for name, gpus in zip(action.nodes, action.shares, strict=True):
                assert look.nodes.up[at[name]]
                used[at[name]] += per_gpu[row] * (gpus if look.jobs.gpus[row] else 1)
    over = np.any(used > look.nodes.capacity + 1e-6, axis=1)
    assert not np.any(over)


@settings(max_examples=300)
@given(clusters(), SWITCHES)
def test_a_gang_that_runs_is_preempted_as_a_whole_or_not_at_all(
    cluster: tuple[Snapshot, Forecasts], config: MLFHSettings
) -> None:
    look, predicted = cluster
    preempted = {action.job for action in MLFH(config).decide(look, predicted, {}).actions if action.kind == "preempt"}
    for ml_job in range(len(look.jobs)):
        runs = np.flatnonzero((look.jobs.ml_job == ml_job) & look.jobs.running).tolist()
        assert len({look.jobs.keys[row] in preempted for row in runs}) <= 1


@settings(max_examples=200)
@given(clusters(), SWITCHES)
def test_without_ranges_growing_changes_nothing(cluster: tuple[Snapshot, Forecasts], config: MLFHSettings) -> None:
    look, predicted = cluster
    look = replace(look, jobs=replace(look.jobs, gpus_min=look.jobs.gpus, gpus_max=look.jobs.gpus))
    as_asked, grown = (MLFH(replace(config, grow=grow)).decide(look, predicted, {}) for grow in (False, True))
    assert as_asked.actions == grown.actions


@settings(max_examples=300)
@given(clusters(), SWITCHES)
def test_only_jobs_that_may_be_are_moved_and_each_once(
    cluster: tuple[Snapshot, Forecasts], config: MLFHSettings
) -> None:
    look, predicted = cluster
    plan, of_jobs = MLFH(config).decide(look, predicted, {}), look.jobs
    assert len({action.job for action in plan.actions}) == len(plan.actions)
    for action in plan.actions:
        row = of_jobs.keys.index(action.job)
        assert of_jobs.managed[row]
        assert not of_jobs.held[row]
        if action.kind == "place":
            assert of_jobs.state[row] == "pending"
            assert of_jobs.reason[row] != "Dependency"
        else:
            assert of_jobs.state[row] == "running"
            assert of_jobs.restartable[row]
            assert not of_jobs.interactive[row]
            assert NOW - of_jobs.started[row] >= config.settle


@settings(max_examples=300)
@given(clusters(), SWITCHES, st.data())
def test_a_job_without_a_place_finds_the_same_one_by_looking_where_there_is_more_room(
    cluster: tuple[Snapshot, Forecasts], config: MLFHSettings, data: st.DataObject
) -> None:
    look, _ = cluster
    servers = Servers(look, config)
    pending = np.flatnonzero(look.jobs.state == "pending").tolist()
    homeless = [row for row in pending if servers.find(row) is None]
    runs = np.flatnonzero(look.jobs.state == "running").tolist()
    assume(homeless)
    freed: set[int] = set()
    for row in data.draw(st.lists(st.sampled_from(runs), unique=True, min_size=1)) if runs else ():
        servers.give(row, servers.space.place(row))
        freed.update(servers.space.place(row).nodes)
    for row in homeless:
        assert servers.find_on(row, sorted(freed)) == servers.find(row)


@settings(max_examples=300)
@given(clusters(), SWITCHES)
def test_leaving_out_who_gives_up_nothing_that_helps_changes_no_decision(
    cluster: tuple[Snapshot, Forecasts], config: MLFHSettings
) -> None:
    look, predicted = cluster
    plan = MLFH(config).decide(look, predicted, {})
    with patch.object(Servers, "closed", lambda servers: np.zeros(len(servers.load), dtype=bool)):
        assert plan.actions == MLFH(config).decide(look, predicted, {}).actions


@settings(max_examples=200)
@given(clusters(), SWITCHES)
def test_who_gives_way_ranks_below_the_one_that_it_gives_way_to(
    cluster: tuple[Snapshot, Forecasts], config: MLFHSettings
) -> None:
    look, predicted = cluster
    for action in MLFH(config).decide(look, predicted, {}).actions:
        if action.reason.rule == "gives way":
            rank, by = action.reason.facts["rank"], action.reason.facts["by"]
            assert isinstance(rank, float)
            assert isinstance(by, OtherJob)
            assert rank < by.score
