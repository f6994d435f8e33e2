"""Speed on placements not measured, from those that were."""

import numpy as np
import pytest

from predictors.speed import SpeedPredictor


def _step_time(gpus: float, nodes: float) -> float:
    """A job of half a second a gradient, whose synchronisation costs little in a node and much across."""
    sync = 0.0 if gpus == 1 else 0.05 + 0.01 * (gpus - 2) if nodes == 1 else 0.4 + 0.01 * (gpus - 2)
    return float((0.5**2 + sync**2) ** 0.5)


PLACEMENTS = [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 2), (16, 4), (32, 8)]


def _fitted(placements: list[tuple[int, int]]) -> SpeedPredictor:
    gpus, nodes = np.array(placements).T
    return SpeedPredictor().fit(gpus, nodes, [_step_time(*p) for p in placements])


def test_three_points_tell_the_other_placements() -> None:
    predictor = _fitted([(1, 1), (4, 1), (8, 2)])
    gpus, nodes = np.array(PLACEMENTS).T
    truth = np.array([_step_time(*p) for p in PLACEMENTS])

    forecast = predictor.predict(gpus, nodes)

    assert np.mean(np.abs(1.0 / forecast.median - truth) / truth) < 0.1
    assert set(forecast.source) == {"measured speed"}


def test_more_points_make_the_forecast_better_and_narrower() -> None:
    few, more = _fitted([(2, 1)]).predict(32, 8), _fitted([(2, 1), (4, 2), (8, 2)]).predict(32, 8)
    truth = 1.0 / _step_time(32, 8)

    assert np.ptp(few.quantile([0.05, 0.95])) > np.ptp(more.quantile([0.05, 0.95]))
    assert abs(more.median[0] - truth) < abs(few.median[0] - truth)


def test_a_placement_that_was_measured_is_forecast_as_measured() -> None:
    forecast = _fitted([(1, 1), (4, 1), (8, 2)]).predict(4, 1)

    assert forecast.median[0] == pytest.approx(1.0 / _step_time(4, 1), rel=0.05)


def test_gpus_that_crowd_each_other_on_a_node_slow_down_any_number_of_nodes() -> None:
    """All of a node's GPUs wait for its processors: 1 + 0.3 (GPUs a node - 1), as in measurements of cloud nodes."""
    predictor = SpeedPredictor().fit([1, 4, 8], [1, 1, 1], [1.0, 1.9, 3.1])

    crowded, spread = 1.0 / predictor.predict([8, 8], [2, 8]).median

    assert 1.5 < crowded < 3.0
    assert spread < crowded


def test_points_that_no_model_explains_make_a_wide_forecast() -> None:
    odd = SpeedPredictor().fit([1, 2, 4], [1, 1, 1], [9.0, 0.1, 30.0]).predict(8, 2)
    even = _fitted([(1, 1), (2, 1), (4, 1)]).predict(8, 2)

    spread = [np.ptp(np.log(forecast.quantile([0.05, 0.95]))) for forecast in (odd, even)]
    assert spread[0] > spread[1]
    assert np.isfinite(odd.median).all()


def test_nothing_is_known_before_anything_was_measured() -> None:
    assert not SpeedPredictor().predict([1, 2], [1, 1]).known.any()


def test_a_forecast_of_no_placements_is_empty() -> None:
    assert len(_fitted([(1, 1)]).predict([], [])) == 0


def test_the_unit_of_time_does_not_matter() -> None:
    slow, fast = (SpeedPredictor().fit([1, 4], [1, 1], [s, 1.3 * s]).predict(8, 2).median[0] for s in (100.0, 0.001))

    assert fast / slow == pytest.approx(1e5, rel=0.01)


@pytest.mark.parametrize(
    ("gpus", "nodes", "times"),
    [([1], [1], [0.0]), ([1], [1], [np.nan]), ([1, 2], [1, 1], [0.5]), ([1], [2], [0.5]), ([0], [0], [0.5])],
)
def test_what_is_no_measurement_is_refused(gpus: list[int], nodes: list[int], times: list[float]) -> None:
    with pytest.raises(ValueError, match=r"step time|placement"):
        SpeedPredictor().fit(gpus, nodes, times)


def test_a_model_comes_back_from_plain_values_and_another_version_is_refused() -> None:
    predictor = _fitted([(1, 1), (4, 1)])
    back = SpeedPredictor.from_state(predictor.state())

    np.testing.assert_array_equal(back.predict(16, 4).table, predictor.predict(16, 4).table)
    with pytest.raises(ValueError, match="fit it again"):
        SpeedPredictor.from_state({**predictor.state(), "version": "speed-0"})


class TestJobsOfAKind:
    """Jobs of one kind scale alike, and are of different sizes."""

    def test_small_jobs_on_one_gpu_do_not_make_a_large_one_fast_there(self) -> None:
        """Small jobs take 10 s on one GPU, large ones 114 s on eight: 320 iterations an hour, were they the same."""
        small, large = [10.0, 10.2, 9.9], [114.0, 113.0, 115.0]
        gpus, steps = np.array([1] * 3 + [8] * 3), np.array([*small, *large]) * np.array([1] * 3 + [8] * 3)
        predictor = SpeedPredictor().fit(gpus, np.ones(6), steps, np.arange(6))

        on_one, on_eight = predictor.predict([1, 8], [1, 1], job=3).median

        in_an_hour = 3600 * np.array([on_one, on_eight]) * np.array([1, 8])
        assert in_an_hour[1] == pytest.approx(3600 / 114, rel=0.1)
        assert in_an_hour[0] == pytest.approx(4.5, rel=0.25)  # in proportion 4

    def test_how_a_kind_scales_is_learnt_from_ratios_within_its_jobs(self) -> None:
        places = np.array(PLACEMENTS)
        truth = np.array([_step_time(*place) for place in PLACEMENTS])
        seen, scales = [(0, 3, 7), (1, 4, 6), (2, 5, 7), (0, 5, 6)], (1.0, 50.0, 0.1, 7.0)
        rows = np.array([row for rows in seen for row in rows] + [0])
        steps = np.concatenate(
            [truth[list(rows)] * scale for rows, scale in zip(seen, scales, strict=True)] + [[300 * truth[0]]]
        )
        job = np.repeat(np.arange(5), [3, 3, 3, 3, 1])

        gpus, nodes = places.T
        with_kind = SpeedPredictor().fit(gpus[rows], nodes[rows], steps, job).predict(gpus, nodes, job=4)
        alone = SpeedPredictor().fit(1, 1, 300 * truth[0]).predict(gpus, nodes)

        error = [np.mean(np.abs(1 / each.median / (300 * truth) - 1)) for each in (with_kind, alone)]
        assert error[0] < 0.1
        assert error[0] < error[1] / 2

    def test_a_job_that_was_measured_once_says_nothing_of_how_its_kind_scales(self) -> None:
        own = SpeedPredictor().fit(4, 1, 2.0).predict([1, 4, 16], [1, 1, 4])
        beside = SpeedPredictor().fit([4, 8, 1], [1, 1, 1], [2.0, 1e3, 1e-3], [0, 1, 2]).predict([1, 4, 16], [1, 1, 4])

        assert beside.median == pytest.approx(own.median, rel=0.02)

    def test_a_job_that_was_not_measured_is_unknown(self) -> None:
        assert not _fitted([(1, 1), (4, 1)]).predict(8, 1, job=5).known.any()
