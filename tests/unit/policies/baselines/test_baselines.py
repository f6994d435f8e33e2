"""What is characteristic of each baseline, on small clusters."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.baselines.dorm import Dorm, DormSettings, fair_shares
from policies.baselines.drf import DRF, DRFSettings
from policies.baselines.fair import Fair, FairSettings
from policies.baselines.fifo import FIFO, FIFOSettings
from policies.baselines.gandiva import Gandiva, GandivaSettings
from policies.baselines.hypersched import HyperSched, expected_gains
from policies.baselines.optimus import Optimus, OptimusSettings
from policies.baselines.rrh import RRH, RRHSettings, utility
from policies.baselines.sjf import SJF, SRTF
from policies.baselines.slurm import Slurm
from policies.baselines.tetris import Graphene, Tetris
from policies.baselines.tiresias import Gittins, Tiresias, TiresiasSettings, gittins_index
from policies.plan import NOTHING_REMEMBERED, Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast, Forecasts
from tests.builders import NOW, forecasts, jobs, nodes, on_networks, snapshot

HOUR = 3600.0


def decided(
    policy: Policy, given: Snapshot, predicted: Forecasts | None = None, memory: Memory = NOTHING_REMEMBERED
) -> Plan:
    return policy.decide(given, predicted or forecasts(len(given.jobs)), memory)


def actions_of(plan: Plan) -> set[tuple[str, int, int | None]]:
    return {(action.kind, action.job.job_id, action.gpus) for action in plan.actions}


def order(plan: Plan) -> list[int]:
    """Job ids, the highest rank first."""
    return [int(row) + 1 for row in np.argsort(-plan.score, kind="stable") if not np.isnan(plan.score[row])]


def queue(**columns: Any) -> Snapshot:
    """Jobs that were submitted one second after the other, all waiting for 4 nodes of 4 GPUs unless told otherwise."""
    n = len(columns["gpus"])
    return snapshot(jobs(n, **({"submitted": NOW - n + np.arange(n)} | columns)), nodes(4))


def half_full(n: int = 3, used: int = 4, **columns: Any) -> Snapshot:
    """Two nodes: job 1 holds GPUs of the first, the others wait."""
    given = {
        "state": ["running", *["pending"] * (n - 1)],
        "restartable": True,
        "started": [NOW - 2 * HOUR, *[np.nan] * (n - 1)],
        "submitted": NOW - 3 * HOUR + np.arange(n),
    } | columns
    return snapshot(jobs(n, **given), nodes(2, used=[[used, 1, 0], [0, 0, 0]]), runs_on=np.array([[0, 0, used]]))


def speeds(n: int, rows: list[int], gpus: list[int], rate: list[list[float]]) -> Forecasts:
    fan = Fan.of(n, rows, np.tile(np.array(gpus, dtype=float), (len(rows), 1)), _columns(np.array(rate, dtype=float)))
    nothing = Forecasts.unknown(n)
    return Forecasts(nothing.total, nothing.remaining, nothing.final, nothing.accuracy, nothing.loss, fan)


def _columns(rate: np.ndarray) -> list[Forecast]:
    return [Forecast.certain(column, "test") for column in rate.T]


# --- order only -------------------------------------------------------------------------------------------------------


def test_fifo_starts_by_submission_and_lets_nothing_overtake() -> None:
    given = queue(gpus=[8, 12, 1])
    assert order(decided(FIFO(), given)) == [1, 2, 3]
    assert actions_of(decided(FIFO(), given)) == {("place", 1, 8)}
    assert actions_of(decided(FIFO(FIFOSettings(strict=False)), given)) == {("place", 1, 8), ("place", 3, 1)}


@pytest.mark.parametrize("policy", [FIFO(), SJF(), SRTF(), Tiresias(), Gandiva(), RRH()])
def test_a_policy_without_elasticity_gives_an_elastic_job_what_it_asked_for_or_nothing(policy: Policy) -> None:
    assert actions_of(decided(policy, queue(gpus=[9, 9], gpus_min=1, gpus_max=16))) == {("place", 1, 9)}


def test_sjf_starts_the_shortest_and_takes_the_time_limit_where_nothing_is_forecast() -> None:
    given = queue(gpus=[16, 16, 16, 16], time_limit=[np.nan, 50.0, np.nan, 500.0])
    plan = decided(SJF(), given, forecasts(4, total=[300.0, np.nan, np.nan, 10.0]))
    assert order(plan) == [4, 2, 1, 3]
    assert actions_of(plan) == {("place", 4, 16)}


def test_sjf_lets_what_runs_run() -> None:
    given = half_full(2, used=4, gpus=[4, 8])
    assert actions_of(decided(SJF(), given, forecasts(2, total=[900.0, 1.0]))) == set()


def test_srtf_preempts_for_what_is_sooner_done() -> None:
    given = half_full(3, used=4, gpus=[4, 8, 1])
    plan = decided(SRTF(), given, forecasts(3, remaining=[900.0, 1.0, 2.0]))
    assert actions_of(plan) == {("preempt", 1, None), ("place", 2, 8)}
    assert actions_of(decided(SRTF(), given, forecasts(3, remaining=[1.0, 900.0, 2.0]))) == {("place", 3, 1)}


def test_slurm_alone_ranks_nothing_and_starts_nothing() -> None:
    plan = decided(Slurm(), queue(gpus=[1, 1]))
    assert np.isnan(plan.score).all()
    assert actions_of(plan) == set()


@pytest.mark.parametrize("policy", [Slurm(), FIFO(), Fair()])
def test_a_policy_without_admission_lets_everybody_in(policy: Policy) -> None:
    given = queue(gpus=[1, 1], awaits=[True, False], held=[True, False])
    assert ("release", 1, None) in actions_of(decided(policy, given))


# --- shares -----------------------------------------------------------------------------------------------------------


def test_fair_gives_elastic_jobs_the_same_number_of_gpus_as_far_as_they_can_use_it() -> None:
    given = queue(gpus=[4, 4, 4], gpus_min=1, gpus_max=[16, 16, 2])
    assert actions_of(decided(Fair(), given)) == {("place", 1, 7), ("place", 2, 7), ("place", 3, 2)}


def test_fair_shrinks_who_runs_alone_when_another_comes() -> None:
    given = half_full(2, used=4, gpus=[4, 2], gpus_min=1, gpus_max=8)
    assert actions_of(decided(Fair(), given)) == {("place", 2, 4)}
    given = half_full(3, used=4, gpus=[4, 2, 2], gpus_min=1, gpus_max=8)
    assert actions_of(decided(Fair(), given)) == {("resize", 1, 3), ("place", 2, 3), ("place", 3, 2)}


def test_fair_takes_turns_where_jobs_cannot_share() -> None:
    waits = half_full(2, used=4, gpus=[4, 8], attained=[4 * 2 * HOUR, 0.0])
    assert actions_of(decided(Fair(), waits)) == {("preempt", 1, None), ("place", 2, 8)}
    begun = half_full(2, used=4, gpus=[4, 8], attained=[4 * 0.5 * HOUR, 0.0], started=[NOW - 0.5 * HOUR, np.nan])
    assert actions_of(decided(Fair(), begun)) == set()
    assert actions_of(decided(Fair(FairSettings(quantum=0.0)), waits)) == set()


def test_drf_starts_the_next_job_of_the_user_with_the_least_dominant_share() -> None:
    given = queue(gpus=[4, 4, 4, 4, 4], user=["ada", "ada", "ada", "bob", "bob"])
    plan = decided(DRF(), given)
    assert order(plan) == [1, 4, 2, 5, 3]
    assert actions_of(plan) == {("place", job, 4) for job in (1, 2, 4, 5)}
    assert order(decided(DRF(DRFSettings(among="job")), given)) == [1, 2, 3, 4, 5]


def test_the_dominant_share_of_drf_is_that_of_whatever_resource_is_scarcest() -> None:
    given = queue(gpus=[1, 1, 1], user=["ada", "bob", "ada"], demand=[[1, 32, 0], [1, 1, 0], [1, 1, 0]])
    assert order(decided(DRF(), given)) == [1, 2, 3]
    more = queue(gpus=[1] * 4, user=["ada", "bob", "ada", "bob"], demand=[[1, 32, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0]])
    assert order(decided(DRF(), more)) == [1, 2, 4, 3]


def test_optimus_gives_gpus_to_whom_they_shorten_most() -> None:
    given = queue(gpus=[1, 1], gpus_min=1, gpus_max=16, max_iterations=[100.0, 100.0])
    predicted = speeds(2, [0, 1], [1, 16], [[1.0, 16.0], [1.0, 1.05]])
    placed = {action.job.job_id: action.gpus or 0 for action in decided(Optimus(), given, predicted).actions}
    assert placed[1] > placed[2] >= 1
    assert placed[1] + placed[2] == 16


def test_optimus_leaves_gpus_idle_that_make_nobody_faster() -> None:
    given = queue(gpus=[1], gpus_min=1, gpus_max=16, max_iterations=100.0)
    assert actions_of(decided(Optimus(), given, speeds(1, [0], [1, 4, 5], [[1.0, 3.0, 2.0]]))) == {("place", 1, 4)}


def test_optimus_gives_a_job_of_unknown_speed_what_it_asked_for() -> None:
    given = queue(gpus=[2, 3], gpus_min=1, gpus_max=16)
    assert actions_of(decided(Optimus(), given)) == {("place", 1, 2), ("place", 2, 3)}


# --- attained service -------------------------------------------------------------------------------------------------


def test_tiresias_demotes_by_gpu_time_and_is_first_in_first_out_within_a_queue() -> None:
    given = queue(gpus=[4, 4, 4], attained=[57_600.0, 57_599.0, 0.0])
    assert order(decided(Tiresias(), given)) == [2, 3, 1]
    assert order(decided(Tiresias(TiresiasSettings(queues=(10.0, 57_600.0))), given)) == [3, 2, 1]


def test_tiresias_preempts_the_demoted_and_skips_what_does_not_fit() -> None:
    given = half_full(4, used=4, gpus=[4, 6, 7, 1], attained=[60_000.0, 0, 0, 0])
    assert actions_of(decided(Tiresias(), given)) == {("preempt", 1, None), ("place", 2, 6), ("place", 4, 1)}


def test_tiresias_remembers_who_came_into_the_second_queue_first() -> None:
    first = decided(Tiresias(), queue(gpus=[4, 4, 4], attained=[0.0, 0.0, 60_000.0]))
    later = snapshot(
        jobs(3, gpus=4, attained=[60_000.0, 0.0, 60_000.0], submitted=NOW - 3 + np.arange(3)), nodes(4), now=NOW + 60
    )
    assert order(decided(Tiresias(), later, memory=first.memory)) == [2, 3, 1]
    assert order(decided(Tiresias(), later)) == [2, 1, 3]


def test_tiresias_puts_jobs_where_most_is_free_as_in_polluxs_simulation() -> None:
    given = snapshot(jobs(1, gpus=2), nodes(2, used=[[2, 0, 0], [0, 0, 0]]))
    assert decided(Tiresias(), given).actions[0].nodes == ("n2",)
    assert decided(Tiresias(TiresiasSettings(packing="tight")), given).actions[0].nodes == ("n1",)


@pytest.mark.parametrize("queues", [(0.0,), (2.0, 1.0), (1.0, 1.0), (np.nan,)])
def test_queues_that_make_no_sense_are_refused(queues: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="queues are increasing"):
        TiresiasSettings(queues=queues)


def test_the_gittins_index_of_a_certain_length_is_the_rate_of_finishing() -> None:
    index = gittins_index(Forecast.certain([100.0, 100.0, 100.0], "test"), np.array([0.0, 60.0, 100.0]))
    assert index[:2] == pytest.approx([1 / 100, 1 / 40])
    assert index[2] == 0.0


def test_the_gittins_index_of_a_uniform_length_is_that_of_its_end() -> None:
    uniform = Forecast.quantiles(np.linspace(0.01, 0.99, 99), np.linspace(1, 99, 99), "test", lower=0.0, upper=100.0)
    index = gittins_index(uniform, np.array([0.0]))  # the rate of F(d) / (d - d^2/200) rises to 1 / 50
    assert index[0] == pytest.approx(1 / 50, rel=1e-3)


def test_gittins_prefers_a_job_that_may_be_over_at_once_to_one_that_surely_takes_longer() -> None:
    either = Forecast.quantiles([0.01, 0.49, 0.51, 0.99], [[1.0, 1.0, 1000.0, 1000.0]], "test", lower=0.0)
    predicted = forecasts(2)
    total = Forecast.assemble(2, [([0], Forecast.certain([100.0], "test")), ([1], either)])
    predicted = Forecasts(
        total, predicted.remaining, predicted.final, predicted.accuracy, predicted.loss, predicted.speed
    )
    assert total.mean[1] > total.mean[0]
    assert order(decided(Gittins(), queue(gpus=[4, 4]), predicted)) == [2, 1]


# --- packing ----------------------------------------------------------------------------------------------------------


def test_tetris_prefers_the_short_and_among_equals_what_fits_best() -> None:
    alike = queue(gpus=[2, 2])
    assert order(decided(Tetris(), alike, forecasts(2, remaining=[900.0, 10.0]))) == [2, 1]
    free_gpus = snapshot(jobs(2, demand=[[1, 4, 0], [2, 1, 0]], gpus=[1, 2]), nodes(1, used=[0, 28, 0]))
    predicted = forecasts(2, remaining=[160.0, 180.0])
    assert order(decided(Tetris(), free_gpus, predicted)) == [2, 1]


def test_graphene_starts_the_task_with_the_longest_chain_below_it() -> None:
    given = queue(gpus=[1, 1, 1], ml_job=[0, 0, 0], parents=[[2, 1]], reason=["None", "None", "Dependency"])
    plan = decided(Graphene(), given, forecasts(3, remaining=[100.0, 100.0, 500.0]))
    assert order(plan).index(2) < order(plan).index(1)


def test_graphene_goes_by_the_work_that_whole_ml_jobs_have_left() -> None:
    given = queue(gpus=[1, 1, 1, 1], ml_job=[0, 0, 2, 2])
    assert order(decided(Graphene(), given, forecasts(4, remaining=[1.0, 900.0, 100.0, 100.0])))[:2] == [3, 4]


def test_gandiva_puts_jobs_of_a_size_side_by_side() -> None:
    of_jobs = jobs(3, gpus=[1, 2, 1], state=["running", "running", "pending"], started=NOW)
    given = snapshot(of_jobs, nodes(2, used=[[1, 1, 0], [2, 1, 0]]), runs_on=np.array([[0, 0, 1], [1, 1, 2]]))
    assert decided(Gandiva(), given).actions[0].nodes == ("n1",)


def crowded(network: list[float], started: float = NOW - HOUR, gpus: tuple[int, ...] = (1, 2)) -> Snapshot:
    """Two jobs on the first node, and on the second one that has run for too short a time to be moved."""
    of_jobs = jobs(3, gpus=(*gpus, 1), state="running", restartable=True, started=[started, started, NOW])
    on = np.array([[0, 0, gpus[0]], [1, 0, gpus[1]], [2, 1, 1]])
    used = [[sum(gpus), 2, 0], [1, 1, 0]]
    return snapshot(on_networks(of_jobs, network, on), nodes(2, used=used), runs_on=on)


def test_gandiva_moves_the_smallest_job_off_an_overloaded_node() -> None:
    actions = decided(Gandiva(), crowded([0.95, 0.1])).actions
    assert [(action.kind, action.job.job_id, action.nodes) for action in actions] == [("migrate", 1, ("n2",))]
    assert decided(Gandiva(), crowded([0.95, 0.95])).actions == ()
    assert decided(Gandiva(), crowded([0.5, 0.1])).actions == ()
    assert decided(Gandiva(), crowded([0.95, 0.1], started=NOW - 60)).actions == ()
    assert decided(Gandiva(GandivaSettings(moves=0)), crowded([0.95, 0.1])).actions == ()


def test_gandiva_moves_nobody_by_what_another_reports_of_the_network() -> None:
    look = crowded([0.95, 0.1])
    reports = np.array([np.nan, 1.0, np.nan])
    actions = decided(Gandiva(), replace(look, jobs=replace(look.jobs, network=reports))).actions
    assert [(action.kind, action.job.job_id) for action in actions] == [("migrate", 2)]
    unmanaged = replace(look.jobs, network=reports, managed=np.array([True, False, True]))
    assert decided(Gandiva(), replace(look, jobs=unmanaged)).actions == ()
    closed = replace(look.jobs, network=np.array([0.95, 0.95, 1.0]), user=np.array(["ada", "ada", "eve"]))
    actions = decided(Gandiva(), replace(look, jobs=closed)).actions
    assert [(action.job.job_id, action.nodes) for action in actions] == [(1, ("n2",))]


def test_gandiva_brings_a_spread_job_together() -> None:
    of_jobs = jobs(1, gpus=4, state="running", restartable=True, started=NOW - HOUR)
    used = [[2, 1, 0], [2, 1, 0], [0, 0, 0]]
    given = snapshot(of_jobs, nodes(3, used=used), runs_on=np.array([[0, 0, 2], [0, 1, 2]]))
    actions = decided(Gandiva(), given).actions
    assert [(action.kind, action.nodes, action.shares) for action in actions] == [("migrate", ("n3",), (4,))]


# --- what jobs are worth ----------------------------------------------------------------------------------------------

CURVES = [[0.1, 0.2, 0.3, 0.4], [0.9, 0.9, 0.9, 0.9], [], [0.1, 0.4, 0.6, 0.7]]


def test_hypersched_tries_the_new_then_goes_by_the_gain_before_the_deadline() -> None:
    given = queue(
        gpus=[4, 4, 4, 4],
        accuracies=CURVES,
        iteration=[4, 4, 0, 4],
        iteration_time=60.0,
        deadline=[NOW + 120, NOW + HOUR, NOW + HOUR, NOW + HOUR],
    )
    assert order(decided(HyperSched(), given)) == [3, 4, 1, 2]


def test_hypersched_pauses_what_no_longer_improves_for_others_only() -> None:
    columns = {"accuracies": [CURVES[1], CURVES[2]], "iteration": [4, 0], "iteration_time": 60.0}
    assert actions_of(decided(HyperSched(), half_full(2, used=4, gpus=[4, 8], **columns))) == {
        ("preempt", 1, None),
        ("place", 2, 8),
    }
    assert actions_of(decided(HyperSched(), half_full(2, used=4, gpus=[4, 4], **columns))) == {("place", 2, 4)}


def test_hypersched_puts_those_past_their_deadline_last() -> None:
    given = queue(gpus=[4, 4], accuracies=[CURVES[0], CURVES[1]], iteration_time=60.0, deadline=[NOW - 1, NOW + HOUR])
    assert order(decided(HyperSched(), given)) == [2, 1]


def test_a_gain_is_what_the_iterations_before_the_deadline_bring() -> None:
    given = queue(gpus=[1, 1], accuracies=[CURVES[0]] * 2, iteration_time=60.0, deadline=[NOW + 240, NOW + 60])
    expected = 0.1 * 4 * (1 - 4 / np.array([8, 5]))  # the last slope, falling off as 1 / iteration squared
    assert expected_gains(given, forecasts(2), 3) == pytest.approx(expected)


def sigmoid(priority: int, sensitivity: float, target: float) -> list[float]:
    return [priority, sensitivity, target]


def test_rrh_goes_by_utility_for_each_gpu_second() -> None:
    given = queue(gpus=[4, 4, 8], utility=[sigmoid(10, 0, 1), sigmoid(50, 0, 1), sigmoid(50, 0, 1)])
    assert order(decided(RRH(), given, forecasts(3, remaining=HOUR))) == [2, 3, 1]


def test_rrh_admits_what_is_worth_more_than_the_delay_it_brings() -> None:
    eager = sigmoid(100, 0.01, HOUR)
    given = queue(
        gpus=[16, 16], utility=[sigmoid(1, 0, 1), eager], awaits=True, held=True, submitted=[NOW - HOUR, NOW - HOUR / 2]
    )
    plan = decided(RRH(), given, forecasts(2, remaining=[HOUR, HOUR / 4]))
    assert actions_of(plan) == {("release", 2, None)}
    assert order(plan) == [2, 1]
    assert actions_of(decided(RRH(RRHSettings(threshold=1e6)), given, forecasts(2, remaining=HOUR))) == set()


def test_utility_is_half_of_the_priority_at_the_target_and_urgency_without_one() -> None:
    of_jobs = jobs(3, utility=[sigmoid(8, 2, 100), [np.nan] * 3, [np.nan] * 3], urgency=[1, 7, np.nan])
    assert utility(of_jobs, np.full(3, 100.0)) == pytest.approx([4.0, 7.0, 1.0])


# --- dorm -------------------------------------------------------------------------------------------------------------


def test_dorm_uses_every_gpu_and_shares_them_fairly() -> None:
    given = queue(gpus=[1, 1], gpus_min=1, gpus_max=16)
    assert actions_of(decided(Dorm(DormSettings(fairness=0.0)), given)) == {("place", 1, 8), ("place", 2, 8)}


def test_dorm_fits_gangs_so_that_most_gpus_are_in_use() -> None:
    given = queue(gpus=[9, 8, 8])
    assert actions_of(decided(Dorm(DormSettings(fairness=1.0)), given)) == {("place", 2, 8), ("place", 3, 8)}


def test_dorm_changes_no_more_running_jobs_than_it_may() -> None:
    columns = {"gpus": [4, 4], "gpus_min": 1, "gpus_max": 8}
    assert actions_of(decided(Dorm(DormSettings(adjustment=0.0)), half_full(2, used=4, **columns))) == {("place", 2, 4)}
    alone = half_full(1, used=4, gpus=[4], gpus_min=1, gpus_max=8)
    assert actions_of(decided(Dorm(DormSettings(adjustment=0.0)), alone)) == set()
    assert actions_of(decided(Dorm(DormSettings(adjustment=1.0)), alone)) == {("resize", 1, 8)}


def test_dorm_keeps_what_it_found_until_a_job_comes_or_ends() -> None:
    given = queue(gpus=[9, 8, 8])
    first = decided(Dorm(DormSettings(fairness=1.0)), given)
    kept = {"wanted": np.array([9, 0, 0]), "jobs": first.memory["jobs"], "nodes": first.memory["nodes"]}
    assert actions_of(decided(Dorm(), given, memory=kept)) == {("place", 1, 9)}
    another = queue(gpus=[9, 8, 8, 1])
    assert actions_of(decided(Dorm(DormSettings(fairness=1.0)), another, memory=kept)) != {("place", 1, 9)}


def test_dorm_starts_what_fits_by_submission_where_the_solver_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        x = None

    monkeypatch.setattr("policies.baselines.dorm.milp", lambda *args, **kwargs: Nothing())
    assert actions_of(decided(Dorm(), queue(gpus=[9, 8, 7]))) == {("place", 1, 9), ("place", 3, 7)}


def test_fair_shares_are_equal_but_for_who_cannot_use_as_much() -> None:
    each = np.array([[1 / 16, 0.0], [1 / 16, 0.0], [1 / 16, 0.0]])
    shares = fair_shares(each, np.array([16.0, 16.0, 2.0]), np.array([1.0, 1.0]))
    assert shares == pytest.approx([7 / 16, 7 / 16, 2 / 16], abs=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FairSettings(quantum=-1.0),
        lambda: DRFSettings(among="queue"),  # type: ignore[arg-type]
        lambda: OptimusSettings(packing="loose"),  # type: ignore[arg-type]
        lambda: TiresiasSettings(packing="loose"),  # type: ignore[arg-type]
        lambda: GandivaSettings(overload=0.0),
        lambda: RRHSettings(reward=2.0),
        lambda: DormSettings(fairness=2.0),
        lambda: DormSettings(seconds=0.0),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r" is | are "):
        wrong()
