"""MLF-C: overload, the option in force, and OptStop."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.mlfs.early_stopping import StopCandidates, remaining_share, stop_actions
from policies.mlfs.load_control import Load, LoadControlSettings, assess_load
from policies.mlfs.mlfs import MLFH, MLFS, MLFSSettings
from policies.mlfs.stop_rules import CAUSES, MAY_STOP
from policies.plan import NOTHING_REMEMBERED, Action, Reason
from policies.snapshot import Jobs
from predictors.forecast import Forecast
from tests.builders import forecasts, jobs, nodes, snapshot

AT_ONCE = LoadControlSettings(overload_enter=1, overload_exit=1)
PLATEAU = [0.50, 0.70, 0.80, 0.81, 0.80, 0.81, 0.80, 0.81, 0.80, 0.81, 0.80]
RISING = [0.10, 0.20, 0.30, 0.40, 0.50, 0.60]
QUEUED = {"state": ["running", "pending"], "reason": ["None", "Resources"]}


def load(*, overloaded: bool, settings: LoadControlSettings = AT_ONCE) -> Load:
    waiting = jobs(reason="Resources" if overloaded else "None")
    return assess_load(snapshot(waiting), NOTHING_REMEMBERED, settings)


def stops_of(
    of_jobs: Jobs, final: Forecast, *, overloaded: bool = False, settings: LoadControlSettings = AT_ONCE
) -> tuple[Action, ...]:
    """The stops of these jobs, by the forecasts of their ends."""
    look = StopCandidates.of(of_jobs, final, settings, overloaded=overloaded)
    return stop_actions(snapshot(of_jobs), look, load(overloaded=overloaded), settings)


def stopped(
    curve: list[float] | np.ndarray,
    mean: float,
    sd: float,
    *,
    overloaded: bool = False,
    settings: LoadControlSettings = AT_ONCE,
    **columns: Any,
) -> Action | None:
    """The stop of one running job, or None: its curve, and the forecast of its end."""
    given: dict[str, Any] = {"state": "running", "accuracies": [curve], "iteration": len(curve), "max_iterations": 100}
    of_jobs = jobs(**given | columns)
    final = Forecast.normal([mean], [sd], "test")
    actions = stops_of(of_jobs, final, overloaded=overloaded, settings=settings)
    assert len(actions) <= 1
    return actions[0] if actions else None


def cause_of(action: Action | None) -> str:
    return str(reason_of(action).facts["cause"])


def reason_of(action: Action | None) -> Reason:
    assert action is not None
    return action.reason


class TestOverload:
    @pytest.mark.parametrize("reason", ["Resources", "Priority"])
    @pytest.mark.parametrize("managed", [True, False])
    def test_a_job_that_waits_for_its_turn_is_overload(self, reason: str, managed: bool) -> None:
        assert assess_load(snapshot(jobs(reason=reason, managed=managed)), {}, AT_ONCE).overloaded

    @pytest.mark.parametrize(
        "columns",
        [
            {"reason": "Dependency"},
            {"reason": "QOSMaxJobsPerUserLimit"},
            {"reason": "Resources", "held": True},
            {"reason": "Resources", "state": "running"},
        ],
    )
    def test_a_job_that_waits_for_something_else_is_not(self, columns: dict[str, Any]) -> None:
        assert not assess_load(snapshot(jobs(**columns)), {}, AT_ONCE).overloaded

    def test_degree_is_the_mean_of_the_dominant_shares_of_the_nodes_that_are_up(self) -> None:
        on_nodes = nodes(3, used=[[4, 1, 0], [1, 16, 0], [4, 32, 131_072]], up=[True, True, False])
        assert assess_load(snapshot(on_nodes=on_nodes), {}, AT_ONCE).degree == 0.75

    def test_full_gpus_are_overload_whatever_the_cpus_do(self) -> None:
        assert assess_load(snapshot(on_nodes=nodes(used=[4, 1, 0])), {}, AT_ONCE).overloaded
        assert not assess_load(snapshot(on_nodes=nodes(used=[3, 1, 0])), {}, AT_ONCE).overloaded

    def test_a_cluster_without_nodes_or_of_nodes_without_gpus_has_a_degree(self) -> None:
        assert assess_load(snapshot(on_nodes=nodes(0)), {}, AT_ONCE).degree == 0
        assert assess_load(snapshot(on_nodes=nodes(capacity=[0, 32, 1], used=[0, 8, 0])), {}, AT_ONCE).degree == 0.25

    def test_elements_of_an_array_are_counted(self) -> None:
        assert assess_load(snapshot(jobs(reason="Priority", elements=7)), {}, AT_ONCE).waiting == 7

    def test_it_must_last_to_count_and_be_gone_for_a_while_to_end(self) -> None:
        settings = LoadControlSettings(overload_enter=3, overload_exit=2)
        memory, verdicts = NOTHING_REMEMBERED, []
        for busy in [1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0]:
            result = assess_load(snapshot(jobs(reason="Resources" if busy else "None")), memory, settings)
            memory = result.memory
            verdicts.append(int(result.overloaded))
        assert verdicts == [0, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0]


class TestTarget:
    def test_a_job_that_asked_for_it_stops_at_its_target_with_no_overload(self) -> None:
        action = stopped(RISING, 0.9, 0.01, stop="target", target=0.6)
        assert reason_of(action).rule == "target"
        assert reason_of(action).facts["cause"] == "reached"

    def test_a_job_goes_on_below_its_target(self) -> None:
        assert stopped(RISING, 0.9, 0.01, stop="target", target=0.61) is None

    def test_a_target_that_was_reached_stays_reached(self) -> None:
        assert reason_of(stopped([*RISING, 0.4], 0.9, 0.01, stop="target", target=0.6)).rule == "target"

    def test_a_lower_is_better_target_is_met_in_its_negated_curve(self) -> None:
        assert reason_of(stopped([-3, -2, -1, -0.5, -0.09], -0.05, 0.01, stop="target", target=-0.1)).rule == "target"

    def test_a_job_with_no_target_has_the_sites_minimum(self) -> None:
        settings = LoadControlSettings(minimum_accuracy=0.55)
        action = stopped(RISING, 0.9, 0.01, stop="target", settings=settings)
        assert reason_of(action).facts["target"] == 0.55
        assert reason_of(action).facts["target_of"] == "site"

    def test_without_either_it_goes_on(self) -> None:
        assert stopped(PLATEAU, 0.80, 0.001, stop="target") is None


class TestOptStop:
    def test_a_job_that_will_miss_its_target_stops(self) -> None:
        action = stopped(PLATEAU, 0.80, 0.01, stop="optstop", target=0.9, iteration=50)
        assert reason_of(action).rule == "optstop"
        assert reason_of(action).facts["cause"] == "misses"
        assert float(str(reason_of(action).facts["probability"])) < 0.05

    def test_one_that_asked_to_stop_at_its_target_is_not_stopped_for_missing_it(self) -> None:
        assert stopped(PLATEAU, 0.80, 0.01, stop="target", target=0.9, iteration=99) is None

    def test_a_job_at_its_target_stops(self) -> None:
        action = stopped(RISING, 0.9, 0.01, stop="optstop", target=0.6)
        assert reason_of(action).rule == "target"
        assert reason_of(action).facts["cause"] == "reached"

    def test_the_sites_minimum_is_no_target_of_a_job_that_asked_for_the_best(self) -> None:
        settings = LoadControlSettings(minimum_accuracy=0.55)
        assert stopped(RISING, 0.9, 0.01, stop="optstop", settings=settings) is None

    def test_the_sites_minimum_of_accuracy_is_none_of_another_quantity(self) -> None:
        settings = LoadControlSettings(minimum_accuracy=0.55)
        at_plateau: dict[str, Any] = {"settings": settings, "iteration": 90, "stop": "optstop"}
        assert cause_of(stopped([value - 0.4 for value in PLATEAU], 0.5, 0.01, **at_plateau)) == "misses"
        losses = [value - 1.0 for value in PLATEAU]  # from 0.5 to 0.2
        assert stopped(losses, -0.1, 0.01, quantity="val_loss", sign=-1.0, **at_plateau) is None

    def test_what_is_sure_after_a_tenth_of_the_iterations_is_not_sure_enough_until_half_of_them_are_done(self) -> None:
        hopeless: dict[str, Any] = {"stop": "optstop", "target": 0.9}
        assert stopped(PLATEAU, 0.82, 0.01, **hopeless, iteration=11) is None
        assert stopped(PLATEAU, 0.82, 0.01, **hopeless, iteration=45) is None
        assert cause_of(stopped(PLATEAU, 0.82, 0.01, **hopeless, iteration=49)) == "misses"

    def test_more_doubt_is_allowed_the_nearer_the_end(self) -> None:
        """The target is reached with a probability of 3.4%."""
        likely: dict[str, Any] = {"stop": "optstop", "target": 0.835}
        assert stopped(PLATEAU, 0.82, 0.0082, **likely, iteration=80) is None
        assert cause_of(stopped(PLATEAU, 0.82, 0.0082, **likely, iteration=99)) == "misses"

    def test_the_papers_rule_allows_the_whole_error_after_each_report(self) -> None:
        hopeless: dict[str, Any] = {"stop": "optstop", "target": 0.9}
        paper = LoadControlSettings(overload_enter=1, overload_exit=1, spend_error=False)
        assert cause_of(stopped(PLATEAU, 0.80, 0.01, **hopeless, settings=paper)) == "misses"
        assert stopped(PLATEAU, 0.80, 0.08, **hopeless, settings=paper) is None

    def test_a_job_that_may_yet_make_its_target_goes_on(self) -> None:
        assert stopped(PLATEAU, 0.80, 0.08, stop="optstop", target=0.9) is None

    def test_a_job_that_passed_its_target_does_not_miss_it(self) -> None:
        assert cause_of(stopped([0.95, *PLATEAU], 0.8, 0.01, stop="optstop", target=0.9, iteration=99)) == "reached"

    def test_a_job_at_its_predicted_maximum_stops(self) -> None:
        action = stopped(PLATEAU, 0.805, 0.001, stop="optstop")
        assert reason_of(action).facts["cause"] == "maximum"
        assert "target" not in reason_of(action).facts
        assert "target_of" not in reason_of(action).facts

    def test_a_job_that_is_expected_to_get_better_by_more_than_epsilon_goes_on(self) -> None:
        assert stopped(PLATEAU, 0.82, 0.001, stop="optstop") is None

    def test_a_small_chance_of_a_large_gain_keeps_a_job_going(self) -> None:
        """One time in ten the learning rate drops and 0.1 is gained; the median end is below what was achieved."""
        end = Forecast.quantiles([0.05, 0.88, 0.92, 0.95], [[0.79, 0.80, 0.91, 0.91]], "test")
        running = jobs(state="running", accuracies=[PLATEAU], stop="optstop")
        assert end.median < max(PLATEAU)
        assert stops_of(running, end) == ()

    def test_nothing_is_stopped_on_an_unknown_end(self) -> None:
        of_jobs = jobs(state="running", accuracies=[PLATEAU], stop="optstop", target=0.99)
        assert stops_of(of_jobs, Forecast.unknown(1), overloaded=True) == ()

    def test_nothing_is_stopped_while_its_last_point_is_its_best_by_more_than_the_noise(self) -> None:
        assert stopped(RISING, 0.6, 0.0001, stop="optstop", target=0.9) is None
        assert stopped([*PLATEAU, 0.90], 0.80, 0.001, stop="optstop") is None

    def test_a_best_within_the_noise_does_not_protect(self) -> None:
        assert stopped([*PLATEAU, 0.811], 0.80, 0.001, stop="optstop", target=0.9) is not None

    def test_gains_smaller_than_epsilon_do_not_keep_a_job_from_its_maximum(self) -> None:
        smooth = 0.8 - np.exp(-np.arange(1.0, 12.0))
        assert reason_of(stopped(smooth, 0.8, 0.0001, stop="optstop")).facts["cause"] == "maximum"


class TestShareLeft:
    """Of a curve of the hyperbola 1 - 10 / (x + 9) from its first iteration to its tenth, of a hundred."""

    CURVE = 1 - 10 / (np.arange(1.0, 11.0) + 9)
    END = 1 - 10 / 109

    def left(self, *, overloaded: bool = False, end: float = END, **columns: Any) -> float:
        given: dict[str, Any] = {"accuracies": [self.CURVE], "iteration": 10, "max_iterations": 100, "stop": "target"}
        of_jobs, final = jobs(**given | columns), Forecast.certain([end], "test")
        return float(remaining_share(of_jobs, StopCandidates.of(of_jobs, final, AT_ONCE, overloaded=overloaded))[0])

    def test_reaches_to_where_a_hyperbola_passes_the_target(self) -> None:
        assert self.left(target=1 - 10 / (46 + 9)) == pytest.approx((46 - 10) / (100 - 10))

    def test_reaches_to_within_epsilon_of_the_predicted_maximum(self) -> None:
        value = self.END - AT_ONCE.epsilon * self.CURVE[-1]
        assert self.left(stop="optstop") == pytest.approx((10 / (1 - value) - 9 - 10) / (100 - 10))

    def test_is_one_iteration_where_the_target_is_reached(self) -> None:
        assert self.left(target=0.3) == pytest.approx(1 / 90)

    def test_is_all_where_nothing_stops_the_job(self) -> None:
        assert self.left(stop="iterations", target=0.6) == 1
        assert self.left(accuracies=[[]], target=0.6) == 1
        assert self.left(managed=False, target=0.6) == 1
        assert self.left(end=np.nan, target=0.6) == 1

    def test_follows_a_downgrade_only_under_overload(self) -> None:
        columns: dict[str, Any] = {"stop": "iterations", "downgrade": "target", "target": 0.6}
        assert self.left(**columns) == 1
        assert self.left(**columns, overloaded=True) == self.left(target=0.6) < 1

    def test_shortens_what_mlfs_ranks_by(self) -> None:
        of_jobs = jobs(
            2, accuracies=[self.CURVE] * 2, iteration=10, max_iterations=100, stop="target", target=[0.6, 0.8],
            state="running", attained=1_000.0,
        )  # fmt: skip
        predicted = forecasts(2, remaining=9_000, final=Forecast.certain([self.END] * 2, "test"))
        with_control, without = (
            MLFS(MLFSSettings(load_control=on)).decide(snapshot(of_jobs), predicted, {}).score for on in (True, False)
        )
        assert with_control[0] > with_control[1]
        assert without[0] == without[1]


class TestNobodyElseIsStopped:
    def stopped(self, **changed: Any) -> Action | None:
        due: dict[str, Any] = {"curve": PLATEAU, "mean": 0.8, "sd": 0.001, "stop": "target", "target": 0.75}
        return stopped(**due | changed)

    def test_the_job_of_these_tests_is_due(self) -> None:
        assert self.stopped() is not None

    @pytest.mark.parametrize(
        "columns",
        [
            {"state": "pending"},
            {"state": "suspended"},
            {"managed": False},
            {"stop": "iterations"},
            {"iteration": 100},
            {"curve": PLATEAU[:4]},
            {"curve": []},
        ],
    )
    def test_unless_all_holds(self, columns: dict[str, Any]) -> None:
        assert self.stopped(**columns) is None

    def test_no_curve_of_one_of_several_trials_ends_the_job_unless_the_first_to_meet_the_target_does(self) -> None:
        assert self.stopped(trials="all") is None
        assert self.stopped(trials="first") is not None
        no_better: dict[str, Any] = {"stop": "optstop", "target": 0.99}
        assert self.stopped(**no_better) is not None
        assert self.stopped(**no_better, trials="first") is None

    def test_jobs_are_told_apart(self) -> None:
        of_jobs = jobs(
            4,
            state="running",
            accuracies=[RISING, [], PLATEAU, RISING],
            stop=["iterations", "target", "target", "target"],
            target=0.6,
        )
        actions = stops_of(of_jobs, Forecast.unknown(4))
        assert [action.job.job_id for action in actions] == [3, 4]
        assert [action.reason.facts["achieved"] for action in actions] == [0.81, 0.60]


class TestOptionInForce:
    @pytest.mark.parametrize(
        ("stop", "downgrade", "overloaded", "mean", "expected"),
        [
            ("iterations", "", True, 0.9, None),
            ("iterations", "target", False, 0.9, None),
            ("iterations", "target", True, 0.9, "target"),
            ("iterations", "optstop", False, 0.9, None),
            ("iterations", "optstop", True, 0.9, "optstop"),
            ("optstop", "", False, 0.9, "optstop"),
            ("target", "optstop", True, 0.9, "target"),
            ("target", "", False, 0.9, "target"),
        ],
    )
    def test_is_the_users_choice_or_under_overload_the_furthest_allowed(
        self, stop: str, downgrade: str, overloaded: bool, mean: float, expected: str | None
    ) -> None:
        action = stopped(RISING, mean, 0.01, overloaded=overloaded, stop=stop, downgrade=downgrade, target=0.55)
        assert (action and action.reason.facts["in_force"]) == expected
        if action:
            assert reason_of(action).facts["asked"] == stop
            assert reason_of(action).facts["cause"] == "reached"
            assert reason_of(action).facts["overload"] == ("yes" if overloaded else "no")

    def test_a_downgrade_to_the_target_stops_for_nothing_else(self) -> None:
        columns: dict[str, Any] = {"stop": "iterations", "downgrade": "target", "target": 0.9, "iteration": 99}
        assert stopped(PLATEAU, 0.8, 0.002, overloaded=True, **columns) is None

    def test_a_job_that_asked_for_its_target_may_allow_more_under_overload(self) -> None:
        columns: dict[str, Any] = {"stop": "target", "downgrade": "optstop", "target": 0.9, "iteration": 99}
        assert stopped(PLATEAU, 0.8, 0.002, **columns) is None
        action = stopped(PLATEAU, 0.8, 0.002, overloaded=True, **columns)
        assert reason_of(action).facts["cause"] == "misses"
        assert reason_of(action).facts["in_force"] == "optstop"


TABLE_ROW = re.compile(r"^\| ([a-z]+) \|(.*)\|$", re.MULTILINE)
CAUSE_IN_WORDS = {
    "reached": "the target is met",
    "diverged": "the training has diverged",
    "misses": "the target is out of reach",
    "maximum": "no better value is likely",
}


def test_the_table_of_causes_in_the_docs_is_the_one_that_decides() -> None:
    page = (Path(__file__).parents[4] / "docs" / "policies.md").read_text()
    documented = {
        option: {cause for cause, words in CAUSE_IN_WORDS.items() if words in cells}
        for option, cells in TABLE_ROW.findall(page.partition("## What a job may be stopped for")[2])
    }
    assert documented == MAY_STOP
    assert set(CAUSE_IN_WORDS) == set(CAUSES)


@pytest.mark.parametrize("option", list(MAY_STOP))
@pytest.mark.parametrize("overloaded", [False, True])
@pytest.mark.parametrize("downgrade", ["", "target", "optstop"])
def test_a_job_is_stopped_for_the_causes_of_the_table_and_no_others(
    option: str, downgrade: str, overloaded: bool
) -> None:
    """Each job is one that a single rule would stop."""
    due = {
        "reached": jobs(state="running", accuracies=[RISING], target=0.55, iteration=6, max_iterations=100),
        "diverged": jobs(state="running", not_finite=5, iteration=11, max_iterations=100),
        "misses": jobs(state="running", accuracies=[PLATEAU], target=0.99, iteration=99, max_iterations=100),
        "maximum": jobs(state="running", accuracies=[PLATEAU], iteration=11, max_iterations=100),
    }
    final = {"reached": 0.9, "diverged": 0.9, "misses": 0.86, "maximum": 0.8}
    options = np.array([option]), np.array([downgrade])
    stopped_for = {
        cause
        for cause, one in due.items()
        for action in stops_of(
            replace(one, stop=options[0], downgrade=options[1]),
            Forecast.normal([final[cause]], [0.005], "test"),
            overloaded=overloaded,
        )
        if action.reason.facts["cause"] == cause
    }
    assert stopped_for == MAY_STOP[option] | (MAY_STOP[downgrade] if downgrade and overloaded else frozenset())


def test_facts_of_a_stop_carry_its_numbers() -> None:
    action = stopped(
        PLATEAU, 0.80, 0.01, overloaded=True, stop="iterations", downgrade="optstop", target=0.9, iteration=50
    )
    facts = dict(reason_of(action).facts)
    assert facts.pop("probability") == pytest.approx(0, abs=1e-3)
    assert facts.pop("predicted_maximum") == pytest.approx(0.81, abs=0.002)
    assert facts == {
        "cause": "misses",
        "asked": "iterations",
        "in_force": "optstop",
        "overload": "yes",
        "overload_degree": 0.0,
        "waiting": 1.0,
        "achieved": 0.81,
        "achieved_at": 4.0,
        "target": 0.9,
        "target_of": "job",
        "tolerance": pytest.approx(0.00405),
        "predicted": pytest.approx(0.80),
        "confidence": 0.95,
        "epsilon": 0.005,
        "iteration": 50.0,
        "max_iterations": 100.0,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"overload_degree": 1.5},
        {"overload_enter": 0},
        {"overload_exit": 0},
        {"confidence": 1.0},
        {"min_observed": 2},
        {"diverged_reports": 1},
        {"epsilon": -0.1},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LoadControlSettings(**wrong)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MLFSSettings(**wrong)


class TestPolicies:
    OF_JOBS = jobs(2, **QUEUED, stop="target", target=0.5, accuracies=[RISING, []], parents=[(1, -1)])

    def test_mlfs_ranks_and_places_like_mlf_h_and_stops(self) -> None:
        heuristic = MLFH().decide(snapshot(self.OF_JOBS), forecasts(2), {})
        full = MLFS().decide(snapshot(self.OF_JOBS), forecasts(2), {})
        assert np.array_equal(heuristic.score, full.score)
        assert [action.kind for action in full.actions] == ["stop", *(action.kind for action in heuristic.actions)]

    def test_mlfs_without_load_control_does_what_mlf_h_does(self) -> None:
        heuristic = MLFH().decide(snapshot(self.OF_JOBS), forecasts(2), {})
        full = MLFS(MLFSSettings(load_control=False)).decide(snapshot(self.OF_JOBS), forecasts(2), {})
        assert full.actions == heuristic.actions

    def test_overload_is_remembered_from_cycle_to_cycle(self) -> None:
        policy = MLFS(MLFSSettings(overload_enter=2))
        first = policy.decide(snapshot(self.OF_JOBS), forecasts(2), {})
        second = policy.decide(snapshot(self.OF_JOBS), forecasts(2), first.memory)
        facts = [plan.actions[0].reason.facts["overload"] for plan in (first, second)]
        assert facts == ["no", "yes"]

    def test_a_missing_parent_is_noted(self) -> None:
        plan = MLFS().decide(snapshot(self.OF_JOBS), forecasts(2), {})
        assert {key.job_id: reason.rule for key, reason in plan.notes.items()} == {2: "parent-missing"}
