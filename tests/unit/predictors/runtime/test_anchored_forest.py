"""An anchored forest predicts differences that no tree of absolute values can; the draw with the best min/max."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from predictors.forest import QuantileForest
from predictors.runtime.anchored_forest import AnchoredForest, max_agreement_draw


def test_a_target_near_an_anchor_is_found_where_no_target_was_before() -> None:
    rng = np.random.default_rng(1)
    anchor = rng.uniform(0.0, 10.0, 400)
    x, y = anchor[:, None], anchor + 0.1 * rng.standard_normal(400)

    forest = AnchoredForest.fit(x, np.stack([np.zeros(400), anchor, anchor], axis=1), y, seed=0)
    beyond = np.array([[20.0]])

    assert abs(np.median(forest.sample(beyond, np.array([[0.0, 20.0, 20.0]]))) - 20.0) < 0.3


def test_what_holds_of_the_later_rows_counts_more_than_what_held_before() -> None:
    y = np.repeat([1.0, 3.0], 200)
    x = np.zeros((400, 1))

    draws = AnchoredForest.fit(x, np.zeros((400, 1)), y, seed=0).sample(x[:1], np.zeros((1, 1)))

    assert draws.mean() > 2.2


def test_the_likeliest_is_the_draw_with_the_largest_mean_of_min_by_max() -> None:
    draws = np.sort(np.random.default_rng(2).normal(5.0, 2.0, (20, 40)), axis=1)
    by_hand = [row[np.argmax([np.exp(-np.abs(c - row)).mean() for c in row])] for row in draws]

    assert_array_equal(max_agreement_draw(draws), by_hand)


def test_of_many_short_runs_and_some_long_ones_the_likeliest_is_short() -> None:
    draws = np.log(np.sort(np.concatenate([np.full(45, 10.0), np.geomspace(100.0, 1e5, 55)])))[None]

    assert_allclose(np.exp(max_agreement_draw(draws)), 10.0)


def test_joined_forests_say_what_each_of_them_says() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random((200, 3)), rng.random(200)
    one, two = (
        QuantileForest.fit(x, y, np.arange(200), trees=5, smallest_leaf=4, features=0.8, seed=seed) for seed in (0, 1)
    )

    assert_array_equal(
        QuantileForest.joined([one, two]).leaves(x), np.concatenate([one.leaves(x), two.leaves(x)], axis=1)
    )
