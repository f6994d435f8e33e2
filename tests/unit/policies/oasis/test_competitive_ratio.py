"""Theorem 4 of OASiS: the optimum is at most 2 max_r (1, ln U^r / L) times what the published algorithm serves.

U and L are those of all jobs, as the theorem takes them. Of what this project adds, an upper bound of prices for all of
a job's work (`ceiling = "work"`) and plans that take admissions back (`revisions`) have no such bound: two families of
jobs, on which the ratio grows with their length and the theorem's bound with its logarithm.
"""

from typing import Any

import numpy as np
import pytest

from policies.oasis.bids import OASiSSettings
from tests.oasis_optimum import arriving, known_bounds, optimum, served


def first_slot_sold(slots: int, gpus: int) -> dict[str, Any]:
    """As many jobs of one slot as there are GPUs, worth 1 in the first slot and next to nothing later; then as many
    that need a GPU in every slot, worth 1 a slot. Both are worth the same for their work."""
    short = np.full(slots, 0.01)
    short[0] = 1.0
    return {
        "arrivals": np.zeros(2 * gpus, dtype=int),
        "work": np.repeat([1, slots], gpus),
        "workers": np.ones(2 * gpus, dtype=int),
        "demand": np.ones((2 * gpus, 1)),
        "value": [short] * gpus + [np.full(slots, float(slots))] * gpus,
        "capacity": np.array([[float(gpus)]]),
    }


def relay(count: int, more: float) -> dict[str, Any]:
    """Jobs of two slots on one GPU, each arriving when the last one has half of its work to do, worth a little more
    than it, and nothing a slot later."""
    value = [np.where(np.arange(count + 1) < job + 2, (1.0 + more) ** job, 0.0) for job in range(count)]
    return {
        "arrivals": np.arange(count),
        "work": np.full(count, 2),
        "workers": np.ones(count, dtype=int),
        "demand": np.ones((count, 1)),
        "value": value,
        "capacity": np.array([[1.0]]),
    }


@pytest.mark.parametrize("seed", range(6))
def test_as_published_it_serves_what_theorem_4_promises(seed: int) -> None:
    case = arriving(seed, 6)
    bounds = known_bounds(case, "paper")
    best, reached = optimum(**case), served(case, 0, "paper", bounds)
    assert best >= reached * (1 - 2e-3)  # the solver's gap
    assert best <= bounds.ratio * reached


def test_the_ceiling_by_work_has_not_the_bound_of_theorem_4() -> None:
    case = first_slot_sold(slots=40, gpus=8)
    best = optimum(**case)
    published, by_work = known_bounds(case, "paper"), known_bounds(case, "work")
    assert best == pytest.approx(40 * 8)
    assert best <= published.ratio * served(case, 0, "paper", published)
    # all of the first slot is sold to short jobs, and no long one can end
    assert served(case, 0, "work", by_work) == pytest.approx(8, abs=0.1)
    assert best > by_work.ratio * served(case, 0, "work", by_work)


def test_plans_that_take_admissions_back_have_not_the_bound_of_theorem_4() -> None:
    case = relay(70, more=0.001)
    best, bounds = optimum(**case), known_bounds(case, "paper")
    assert best <= bounds.ratio * served(case, 0, "paper", bounds)
    # each job is given up, half done, for the next one; the last one ends
    reached = served(case, OASiSSettings().revisions, "paper", bounds)
    assert reached == pytest.approx(1.001**69, abs=0.05)
    assert best > bounds.ratio * reached
