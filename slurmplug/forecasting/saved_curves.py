"""The learning curve predictor as it is saved: what it learnt, and from whose runs."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from predictors.learning_curve import LearningCurvePredictor

NAME = "learning curve"
"""of the model in the ledger"""
_USERS = "taught_by"


def state(curves: LearningCurvePredictor, taught_by: Collection[str]) -> dict[str, Any]:
    """What is saved. taught_by: the users on whose runs it was fitted."""
    return {**curves.state(), _USERS: np.array(sorted(taught_by), dtype=np.str_)}


def from_state(saved: Mapping[str, Any]) -> tuple[LearningCurvePredictor, frozenset[str]]:
    """The predictor, and the users on whose runs it was fitted. Raises ValueError for a state of another version."""
    return LearningCurvePredictor.from_state(saved), frozenset(saved.get(_USERS, np.zeros(0)).tolist())
