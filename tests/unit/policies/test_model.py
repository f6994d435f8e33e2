"""What a model is, and how far a state is from those in training."""

from typing import Any

import numpy as np
import pytest

from policies.model import Model, Shapes
from policies.seen_states import SHAPES, SeenStates

SHAPED: Shapes = {"first": (3, "hidden"), "bias": ("hidden",)}


def model(**arrays: Any) -> Model:
    given = {"first": np.ones((3, 4)), "bias": np.zeros(4), **arrays}
    return Model("ours", 2, {name: np.asarray(each, dtype=np.float32) for name, each in given.items()}, {"seed": "7"})


def test_a_models_arrays_cannot_be_changed_and_are_its_own() -> None:
    given = np.ones(3, dtype=np.float32)
    made = Model("ours", 1, {"a": given})
    given[0] = 5.0
    assert made.arrays["a"].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        made.arrays["a"][0] = 2.0


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1.0, np.nan], dtype=np.float32), "array a has elements that are not finite"),
        (np.array([np.inf], dtype=np.float32), "array a has elements that are not finite"),
        (np.zeros((2, 0), dtype=np.float32), "array a has no elements"),
        (np.zeros(2), "array a is of float64, not of float32"),
    ],
)
def test_an_array_that_no_policy_could_compute_with_is_refused(array: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Model("ours", 1, {"a": array})


def test_the_digest_is_of_all_that_a_model_has() -> None:
    same = model()
    assert same.digest == model().digest
    others = [
        model(first=np.full((3, 4), 2.0)),
        model(first=np.ones((4, 3))),
        Model("theirs", 2, same.arrays, same.facts),
        Model("ours", 3, same.arrays, same.facts),
        Model("ours", 2, same.arrays, {"seed": "8"}),
    ]
    assert len({same.digest, *(each.digest for each in others)}) == 6


def test_a_model_with_the_arrays_that_a_policy_has_is_accepted_at_any_size_of_the_named_dimensions() -> None:
    model().require("ours", 2, SHAPED)
    model(first=np.ones((3, 9)), bias=np.ones(9)).require("ours", 2, SHAPED)


@pytest.mark.parametrize(
    ("policy", "version", "arrays", "message"),
    [
        ("theirs", 2, {}, "it is a model of 'ours', not of 'theirs'"),
        ("ours", 3, {}, "it is of version 2 of ours's features, and this slurmplug has version 3: train it again"),
        ("ours", 2, {"bias": np.zeros(5)}, r"array bias is of shape \(5,\), not \(4\)"),
        ("ours", 2, {"first": np.ones((2, 4))}, r"array first is of shape \(2, 4\), not \(3, hidden\)"),
        ("ours", 2, {"bias": np.zeros((4, 1))}, r"array bias is of shape \(4, 1\)"),
        ("ours", 2, {"more": np.zeros(1)}, "array more is not one of the policy's"),
    ],
)
def test_another_model_is_refused_with_what_differs(
    policy: str, version: int, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model(**arrays).require(policy, version, SHAPED)


def test_a_model_without_one_of_the_arrays_is_refused() -> None:
    with pytest.raises(ValueError, match="array bias is missing"):
        Model("ours", 1, {"first": np.ones((3, 4), dtype=np.float32)}).require("ours", 1, SHAPED)


def test_states_like_those_in_training_are_near_and_others_are_far() -> None:
    generator = np.random.default_rng(3)
    spread = np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 20.0]])
    states = generator.normal(size=(4_000, 3)) @ spread + [5.0, -2.0, 100.0]
    seen = SeenStates.of(states)
    near = np.array([seen.distance(state) for state in generator.normal(size=(500, 3)) @ spread + [5.0, -2.0, 100.0]])
    assert (near <= 1.0).mean() > 0.99
    assert seen.distance(np.array([5.0, -2.0, 400.0])) > 1.0
    assert seen.distance(np.array([6.5, -4.0, 100.0])) > 1.0, "each within its range, never together"
    assert not seen.distance(np.array([np.nan, 0.0, 0.0])) <= 1.0


def test_a_feature_that_never_varied_in_training_is_far_when_it_does() -> None:
    states = np.column_stack([np.random.default_rng(1).normal(size=500), np.full(500, 3.0)])
    seen = SeenStates.of(states)
    assert seen.distance(np.array([0.0, 3.0])) < 1.0 < seen.distance(np.array([0.0, 4.0]))


def test_a_feature_may_differ_by_as_much_as_the_policy_is_indifferent_to() -> None:
    states = np.column_stack([np.random.default_rng(1).normal(size=500), np.full(500, 3.0)])
    seen = SeenStates.of(states, indifferent=0.2)
    assert seen.distance(np.array([0.0, 3.4])) < 1.0 < seen.distance(np.array([0.0, 4.0]))
    assert seen.distance(np.array([2.5, 3.0])) < 1.0 < seen.distance(np.array([5.0, 3.0]))


def test_what_a_model_keeps_of_the_states_gives_the_same_distances() -> None:
    seen = SeenStates.of(np.random.default_rng(2).normal(size=(300, 2)))
    kept = Model("ours", 1, seen.arrays())
    kept.require("ours", 1, SHAPES)
    state = np.array([1.0, 2.0])
    assert SeenStates.from_arrays(kept.arrays).distance(state) == pytest.approx(seen.distance(state), rel=1e-5)


def test_examples_of_the_states_of_a_training_stand_for_them_where_more_are_added() -> None:
    generator = np.random.default_rng(3)
    spread = np.array([[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 20.0]])
    before = SeenStates.of(generator.standard_t(3, size=(4_000, 3)) @ spread + [5.0, -2.0, 100.0])
    examples = before.examples(2_000, np.random.default_rng(0))
    again = SeenStates.of(examples)
    at = generator.normal(size=(500, 3)) @ (5.0 * spread) + [5.0, -2.0, 100.0]
    then, now = (np.array([each.distance(state) for state in at]) for each in (before, again))
    np.testing.assert_allclose(now, then, rtol=0.15)
    new = np.array([5.0, -2.0, 800.0]) + generator.normal(size=(300, 3))
    assert min(map(before.distance, new)) > 1.0
    both = SeenStates.of(np.concatenate([examples, new]))
    assert max(map(both.distance, new)) <= 1.0
    assert (np.array([both.distance(state) for state in examples]) <= 1.0).mean() >= 0.995
