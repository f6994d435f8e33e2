"""The example of the documentation, how a policy of one's own is trained in the environment, does what it says."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytestmark = pytest.mark.rl

from gymnasium.vector import SyncVectorEnv  # noqa: E402

from docs import train_own_policy as example  # noqa: E402
from slurmplug.rl.environment import SchedulingEnvironment, Task  # noqa: E402


def in_this_process(task: Task, count: int) -> SyncVectorEnv:
    return SyncVectorEnv([partial(SchedulingEnvironment, task)] * count)


def test_the_gradient_is_that_of_the_logarithm_of_the_choice() -> None:
    rng = np.random.default_rng(0)
    weights, jobs, mask = rng.standard_normal(4), rng.standard_normal((5, 3)), np.array([1, 0, 1, 1, 0])

    def of_chosen(weights: np.ndarray, at: int) -> float:
        scores = np.array([*(jobs[[0, 2]] @ weights[:3]), weights[3]])
        return float(scores[at] - np.log(np.exp(scores).sum()))

    chosen, gradient = example.draw(weights, jobs, mask, rng)
    at = [0, 2, 3].index(chosen)
    steps = 1e-6 * np.eye(4)
    by_differences = [(of_chosen(weights + step, at) - of_chosen(weights - step, at)) / 2e-6 for step in steps]
    np.testing.assert_allclose(gradient, by_differences, atol=1e-6)


def test_the_same_seed_trains_the_same_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "WORKLOADS", replace(example.WORKLOADS, jobs=4))
    monkeypatch.setattr(example, "processes", in_this_process)
    first, again, other = example.train(1, seed=3), example.train(1, seed=3), example.train(1, seed=4)
    assert first.shape == (example.ALLOCATOR.features + 1,)
    assert first.any()
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
