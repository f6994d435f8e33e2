"""Optimus' speed by workers and parameter servers, and its fit to sample runs."""

import numpy as np
import pytest

from policies.marginal_gain.server_speeds import fitted, rate, seconds


def test_an_iteration_takes_what_the_equation_says() -> None:
    times = np.array([6.0, 1.0, 2.0, 0.1, 0.2])
    assert float(seconds(times, 3, 2)) == pytest.approx(6 / 3 + 1 + 2 * 3 / 2 + 0.1 * 3 + 0.2 * 2)
    assert rate(times, [1, 3], [1, 2]).tolist() == pytest.approx([1 / 9.3, 1 / 6.7])


def test_sample_runs_without_error_give_the_coefficients_back() -> None:
    times = np.array([0.5, 0.0, 0.3, 0.02, 0.01])
    rng = np.random.default_rng(0)
    workers, servers = rng.integers(1, 17, (2, 10))
    assert fitted(workers, servers, seconds(times, workers, servers)) == pytest.approx(times, abs=1e-9)


def test_no_coefficient_is_negative_whatever_is_measured() -> None:
    rng = np.random.default_rng(1)
    workers, servers = rng.integers(1, 17, (2, 10))
    found = fitted(workers, servers, rng.uniform(0.1, 5.0, 10))
    assert (found >= 0).all()
    assert found.any()
