"""Speeds ahead: from what was seen of a job, of its kind, and from its forecast run time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from policies.snapshot import JobKey
from predictors.forecast import Fan, Forecast
from predictors.speed import SpeedPredictor
from slurmplug.forecasting.speeds.kind_paces import KindPaces, grid
from slurmplug.forecasting.speeds.seen_speeds import PlacementShape, SeenSpeeds, Whose
from slurmplug.forecasting.speeds.speed_fans import GUESS, SpeedFans
from tests.builders import CLUSTER, NOW, jobs, nodes, snapshot


def keys(*job_ids: int) -> tuple[JobKey, ...]:
    return tuple(JobKey(CLUSTER, job_id, int(NOW)) for job_id in job_ids)


def training(n: int = 1, on: Any = ((0, 0, 2),), nodes_of: int = 4, **columns: Any) -> Any:
    given = {"state": "running", "started": NOW - 1000.0, "iteration": 9, "gpus": 2, "gpus_max": 8, **columns}
    return snapshot(
        jobs(n, **given), nodes(4, capacity=[nodes_of, 32.0, 131_072.0]), runs_on=np.array(on, dtype=np.int64)
    )


def speeds(seen: SeenSpeeds, current: Any, total: Any = np.nan, guess: float = 0.0) -> Fan:
    values = np.broadcast_to(np.asarray(total, dtype=float), (len(current.jobs),))
    totals = Forecast.certain(values, np.where(np.isnan(values), "", "test"))
    return SpeedFans(KindPaces(seen)).speeds(current, totals, guess)


class TestSpeeds:
    def test_are_measured_where_a_job_trains(self) -> None:
        fan = speeds(SeenSpeeds(), training(iteration_time=0.5))
        assert fan.source.tolist() == ["measured speed"]
        assert fan.at([0], 2).median[0] == pytest.approx(2.0, rel=0.05)
        assert 1.0 <= fan.at([0], 1).median[0] < 2.0

    def test_do_not_rise_beyond_what_was_asked_for_or_seen_but_by_a_guess(self) -> None:
        seen = SeenSpeeds()
        flat, guessed = (
            speeds(seen, training(iteration_time=0.5), guess=guess).at([0, 0], [2, 4]).median for guess in (0.0, GUESS)
        )
        assert flat[0] == flat[1] == guessed[0] < guessed[1] <= (1.0 + GUESS) * guessed[0]

    def test_of_jobs_whose_number_of_gpus_may_not_change_are_known_where_that_is_asked(self) -> None:
        grows: dict[str, Any] = {"gpus_max": [8, 2, 8], "restartable": [True, True, False]}
        current = training(3, [(row, row, 2) for row in range(3)], iteration_time=0.5, gpus_min=2, **grows)
        fans = SpeedFans(KindPaces(SeenSpeeds()))
        every, some = (fans.speeds(current, Forecast.unknown(3), rigid=rigid) for rigid in (True, False))
        assert every.known.tolist() == [True, True, True]
        assert some.known.tolist() == [True, False, False]
        assert some.at([0], 4).median == every.at([0], 4).median

    def test_of_a_job_that_waits_are_those_of_its_kind(self) -> None:
        seen = SeenSpeeds()
        speeds(seen, training(kind="resnet", iteration_time=0.5))
        later = snapshot(jobs(2, keys=keys(7, 8), kind=["resnet", "bert"], gpus=2, gpus_max=8))
        fan = speeds(seen, later)
        assert fan.known.tolist() == [True, False]
        assert fan.at([0], 2).median[0] == pytest.approx(2.0, rel=0.05)

    def test_of_a_job_that_names_no_type_are_those_of_its_users_jobs_of_that_name(self) -> None:
        seen = SeenSpeeds()
        speeds(seen, training(user="ada", name="train", iteration_time=0.5))
        fan = speeds(
            seen, snapshot(jobs(3, keys=keys(7, 8, 9), user=["ada", "bob", "ada"], name=["train"] * 2 + ["x"]))
        )
        assert fan.known.tolist() == [True, False, False]

    def test_are_not_made_of_jobs_whose_gpus_no_policy_changes(self) -> None:
        fan = speeds(SeenSpeeds(), training(2, on=[(0, 0, 2), (1, 1, 2)], iteration_time=0.5, managed=[True, False]))
        assert fan.known.tolist() == [True, False]

    def test_keep_to_the_jobs_own_pace(self) -> None:
        current = training(2, on=[(0, 0, 2), (1, 1, 2)], kind="mlp", iteration_time=[0.5, 2.0])
        rates = speeds(SeenSpeeds(), current).at([0, 1], 2).median
        assert rates[0] / rates[1] == pytest.approx(4.0)

    def test_jobs_of_the_same_speeds_share_a_row_of_the_fan(self) -> None:
        current = snapshot(jobs(3, gpus=[4, 4, 2], gpus_max=8, max_iterations=90))
        assert speeds(SeenSpeeds(), current, total=900.0).index.tolist() == [0, 0, 1]

    def test_are_the_same_object_where_nothing_changed(self) -> None:
        fans, current = SpeedFans(KindPaces(SeenSpeeds())), training(iteration_time=0.5)
        first = fans.speeds(current, Forecast.unknown(1))
        assert fans.speeds(current, Forecast.unknown(1)) is first
        assert fans.speeds(training(iteration_time=0.7), Forecast.unknown(1)) is not first

    def test_of_a_job_of_an_unseen_kind_are_by_its_run_time_and_say_so(self) -> None:
        fan = speeds(SeenSpeeds(), snapshot(jobs(gpus=4, gpus_max=8, max_iterations=90)), total=900.0)
        assert fan.source.tolist() == ["run time and scaling"]
        assert fan.at([0], 4).median[0] == pytest.approx(0.1, rel=0.05)
        assert 0.025 <= fan.at([0], 1).median[0] < 0.1

    @pytest.mark.parametrize("columns", [{"gpus": 0}, {"max_iterations": np.nan}, {}])
    def test_are_unknown_of_a_job_without_a_run_time_or_gpus(self, columns: Any) -> None:
        current = snapshot(jobs(**{"gpus": 2, "max_iterations": 90, **columns}))
        assert not speeds(SeenSpeeds(), current, total=np.nan if not columns else 900.0).known.any()

    def test_are_tabulated_once_for_all_who_were_seen_alike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tables: list[Any] = []
        predict = SpeedPredictor.predict

        def noted(self: SpeedPredictor, *given: Any) -> Forecast:
            tables.append(given)
            return predict(self, *given)

        monkeypatch.setattr(SpeedPredictor, "predict", noted)
        fans = SpeedFans(KindPaces(SeenSpeeds()))
        for step in (0.5, 0.501, 0.7):
            current = training(3, on=[(0, 0, 2), (1, 1, 2), (2, 2, 2)], user=["ada", "bob", "kim"], iteration_time=step)
            fan = fans.speeds(current, Forecast.unknown(3))
        assert len(tables) == 1
        assert fan.index.tolist() == [0, 0, 0]
        assert fan.at([0], 2).median[0] == pytest.approx(1 / 0.7, rel=0.05)


class TestSpeedsOfOthers:
    """What the runs of one user do to the speeds of another's jobs: nothing by themselves."""

    def speed(self, others: Mapping[str, float], own: float | None = None, total: Forecast | None = None) -> float:
        """Iterations per second on two GPUs of ada's waiting job of a type, after these users' seconds an iteration."""
        seen = SeenSpeeds()
        for user, step in {**others, **({"ada": own} if own else {})}.items():
            for run in range(30):
                seen.add(Whose("type resnet50", user), PlacementShape(2, 1), (user, run), step)
        waits = snapshot(jobs(user="ada", kind="resnet50", gpus=2, gpus_max=8, max_iterations=90))
        return float(SpeedFans(KindPaces(seen)).speeds(waits, total or Forecast.unknown(1)).at([0], 2).median[0])

    def test_one_users_runs_say_nothing_of_anothers(self) -> None:
        by_run_time = Forecast.lognormal([900.0], 0.5, "test")
        alone = self.speed({}, total=by_run_time)
        assert alone == pytest.approx(0.1, rel=0.05)
        assert self.speed({"eve": 2400.0}, total=by_run_time) == alone
        assert self.speed({"eve": 2400.0, "bob": 10.0}, total=by_run_time) == alone

    def test_own_runs_come_before_those_of_others(self) -> None:
        own = self.speed({}, own=0.5)
        assert self.speed({"eve": 2400.0, "bob": 10.0, "kim": 11.0}, own=0.5) == own

    def test_among_several_users_one_moves_the_others_no_further_than_they_differ(self) -> None:
        honest = {"bob": 1.0, "kim": 1.2}
        for lie in (1e-6, 1.1, 2400.0):
            assert 1 / 1.25 < self.speed({**honest, "eve": lie}) < 1 / 0.95

    @pytest.mark.parametrize("lie", [1e-6, 1e6])
    def test_one_users_ratios_move_the_scaling_of_others_no_further_than_they_differ(self, lie: float) -> None:
        def at_eight(*ratios: float) -> float:
            """Speed on eight GPUs of ada's job, which trains at 1 it/s on one; by the ratios of three others."""
            seen = SeenSpeeds()
            for user, ratio in zip(("bob", "kim", "eve"), ratios, strict=True):
                for place, step in ((PlacementShape(1, 1), 7.0), (PlacementShape(8, 1), 7.0 * ratio)):
                    seen.add(Whose("type resnet50", user), place, user, step)
            current = training(on=[(0, 0, 1)], user="ada", kind="resnet50", iteration_time=1.0, nodes_of=8)
            return float(speeds(seen, current).at([0], 8).median[0])

        least, most = sorted((at_eight(0.2, 0.2, 0.2), at_eight(0.25, 0.25, 0.25)))
        assert 0.97 * least <= at_eight(0.2, 0.25, lie) <= 1.03 * most
        assert at_eight(0.2, 0.2, 0.2) == pytest.approx(5.0, rel=0.15)

    def test_beyond_what_enough_others_were_seen_at_hardly_more_is_promised(self) -> None:
        seen = SeenSpeeds()
        for user, gpus in (("bob", 4), ("kim", 4), ("joe", 4), ("eve", 8)):
            seen.add(Whose("type resnet50", user), PlacementShape(gpus, 1), user, 1.0)
        one = snapshot(jobs(user="ada", kind="resnet50", gpus=1, gpus_max=8, max_iterations=9))
        fan = speeds(seen, one, 9.0, GUESS)
        at = fan.at([0] * 3, [2, 4, 8]).median
        assert at[0] < at[1] < at[2] <= (1.0 + GUESS) * at[1]


RESNET50 = {1: 1.0, 2: 2.05, 4: 3.93, 8: 6.22, 16: 9.62}
"""speed of ResNet-50 by GPUs relative to one, as in Pollux's profiles"""


def tight(gpus: int) -> PlacementShape:
    return PlacementShape(gpus, -(-gpus // 4))


class TestScaling:
    """How a job scales is not told by the sizes of others of its kind."""

    def test_of_unlike_jobs_seen_once_each_is_what_may_be_expected_of_any(self) -> None:
        """Small jobs take 10 s on one GPU, large ones 114 s on eight."""
        seen = SeenSpeeds()
        for run, (gpus, step) in enumerate([(1, 10.0), (1, 10.2), (1, 9.9), (8, 113.0), (8, 115.0)]):
            seen.add(Whose("type gpt", "ada"), PlacementShape(gpus, 1), run, step)
        large = training(on=[(0, 0, 8)], gpus=8, kind="gpt", user="ada", iteration_time=114.0, nodes_of=8)
        by_gpus = 3600 * speeds(seen, large).at([0, 0], [1, 8]).median
        assert by_gpus[1] == pytest.approx(3600 / 114, rel=0.05)
        assert by_gpus[0] == pytest.approx(4.5, rel=0.25)  # in proportion 4; 320, were all of one size

    def test_of_jobs_of_different_sizes_is_that_of_the_ratios_within_them(self) -> None:
        """Ten jobs of ResNet-50, ten times as large at the most, each seen on two or three counts of GPUs."""
        random, seen, counts = np.random.default_rng(5), SeenSpeeds(), list(RESNET50)
        for run in range(10):
            size = 10 ** random.uniform(-0.5, 0.5)
            for gpus in random.choice(counts, random.integers(2, 4), replace=False).tolist():
                seen.add(Whose("type resnet50", "ada"), tight(gpus), run, size / RESNET50[gpus])
        for gpus in counts:
            current = training(on=[(0, n, min(gpus, 4)) for n in range(tight(gpus).nodes)],
                keys=keys(100 + gpus), user="ada",
                               kind="resnet50", gpus=gpus, gpus_max=16, iteration_time=3.0)  # fmt: skip
            found = speeds(seen, current).at([0] * 5, counts).median
            truth = np.array(list(RESNET50.values())) / RESNET50[gpus] / 3.0
            assert np.abs(found / truth - 1.0).max() < 0.15

    def test_of_a_job_seen_on_four_gpus_rises_with_gpus(self) -> None:
        """At one iteration a second on four."""
        for gpus_max in (4, 32):
            current = training(on=[(0, 0, 4)], gpus=4, gpus_max=gpus_max, iteration_time=1.0)
            one, four, many = speeds(SeenSpeeds(), current).at([0, 0, 0], [1, 4, 32]).median
            assert 0.25 <= one < 0.5
            assert four == pytest.approx(1.0, rel=0.03)
            assert many >= four

    def test_goes_through_all_placements_at_which_a_job_was_seen(self) -> None:
        """One that gains nothing from a fourth GPU, whatever its kind does."""
        seen, fans = SeenSpeeds(), None
        for run in range(6):
            for gpus in (1, 2, 4):
                seen.add(Whose("type mlp", "ada"), tight(gpus), run, 5.0 / gpus)
        fans = SpeedFans(KindPaces(seen))
        for gpus, step in ((1, 6.0), (2, 4.0), (4, 4.0), (2, 4.0)):
            current = training(on=[(0, 0, gpus)], gpus=gpus, kind="mlp", user="ada", iteration_time=step)
            fan = fans.speeds(current, Forecast.unknown(1))
        assert fan.at([0] * 3, [1, 2, 4]).median == pytest.approx([1 / 6, 1 / 4, 1 / 4])

    def test_of_a_job_once_seen_elsewhere_is_kept_while_it_waits(self) -> None:
        fans = SpeedFans(KindPaces(SeenSpeeds()))
        key = keys(7)
        trains = training(on=[(0, 0, 4)], gpus=4, iteration_time=2.0, keys=key)
        waits = snapshot(jobs(keys=key, gpus=2, gpus_max=8, max_iterations=90), nodes(4))
        before = fans.speeds(trains, Forecast.unknown(1)).at([0], 4).median[0]
        after = fans.speeds(waits, Forecast.certain([9.0], ["test"])).at([0], 4).median[0]
        assert after == pytest.approx(before)

    def test_hardly_rises_beyond_the_most_gpus_asked_for_or_seen(self) -> None:
        asked = snapshot(jobs(keys=keys(7), kind="mlp", user="ada", gpus=2, gpus_max=16, max_iterations=90), nodes(4))
        fans = SpeedFans(KindPaces(SeenSpeeds()))

        def ratio() -> float:
            two, most = fans.speeds(asked, Forecast.certain([900.0], ["test"]), GUESS).at([0, 0], [2, 16]).median
            return float(most / two)

        assert 1.0 < ratio() <= 1.0 + 7.0 * GUESS
        other = training(on=[(0, 0, 4), (0, 1, 4)], keys=keys(8), kind="mlp", user="ada", gpus=8, iteration_time=1.0)
        fans.speeds(other, Forecast.unknown(1))
        assert 1.5 < ratio() <= 4.0

    def test_goes_by_what_a_job_asked_for_that_runs_on_fewer(self) -> None:
        """Its run time is that on the GPUs that it asked for."""
        fans, key = SpeedFans(KindPaces(SeenSpeeds())), keys(7)
        asks: dict[str, Any] = {"keys": key, "gpus_max": 8, "max_iterations": 90}
        total = Forecast.certain([900.0], ["test"])
        waits = fans.speeds(snapshot(jobs(gpus=8, **asks), nodes(4)), total).at([0, 0], [2, 8]).median
        fans = SpeedFans(KindPaces(SeenSpeeds()))  # the daemon was started again
        runs = (
            fans.speeds(training(on=[(0, 0, 2)], gpus=2, requested=[8.0, 1.0, 0.0], **asks), total)
            .at([0, 0], [2, 8])
            .median
        )
        assert runs.tolist() == waits.tolist()
        assert waits[1] == pytest.approx(0.1, rel=0.05)


class TestPace:
    """How fast a job is that was never seen: by its forecast run time, and by jobs of its kind if they are alike."""

    def forecast(self, steps: Sequence[float], total: Forecast) -> Forecast:
        """Speed on two GPUs after own jobs of the type that took so many seconds an iteration there."""
        seen = SeenSpeeds()
        for run, step in enumerate(steps):
            seen.add(Whose("type mlp", "ada"), PlacementShape(2, 1), run, step)
        waits = snapshot(jobs(user="ada", kind="mlp", gpus=2, gpus_max=2, max_iterations=90))
        return SpeedFans(KindPaces(seen)).speeds(waits, total).at([0], 2)

    def test_is_that_of_the_run_time_where_jobs_of_the_kind_are_unlike(self) -> None:
        total = Forecast.lognormal([900.0], 0.2, "test")
        found = self.forecast([0.1, 1.0, 10.0, 100.0] * 3, total)
        assert found.median[0] == pytest.approx(0.1, rel=0.1)

    def test_is_that_of_the_kind_where_its_jobs_are_alike_and_run_times_uncertain(self) -> None:
        total = Forecast.lognormal([900.0], 1.0, "test")
        assert self.forecast([2.0] * 20, total).median[0] == pytest.approx(0.5, rel=0.1)
        few = self.forecast([2.0], total).median[0]
        assert 0.12 < few < 0.45

    def test_has_an_interval_that_is_wider_the_less_is_known(self) -> None:
        def width(forecast: Forecast) -> float:
            low, high = forecast.quantile([0.05, 0.95])[0]
            return float(np.log(high / low))

        certain = width(self.forecast([], Forecast.certain([900.0], ["test"])))
        unsure = width(self.forecast([], Forecast.lognormal([900.0], 0.5, "test")))
        alike, unlike = (width(self.forecast(steps, Forecast.unknown(1))) for steps in ([2.0] * 9, [0.2, 2, 20] * 3))
        assert certain < unsure == pytest.approx(np.hypot(certain, 3.29 * 0.5), rel=0.1)
        assert alike < unsure < unlike


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (5, [1, 2, 3, 4, 5]), (16, [1, 2, 3, 4, 6, 8, 12, 16])])
def test_the_grid_of_gpus_ends_with_the_most(most: int, counts: list[int]) -> None:
    assert grid(most).tolist() == counts
