"""How far a state is from those that a policy was trained on, by the Mahalanobis distance (Mahalanobis 1936)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from policies.model import Shapes, Singles
from predictors.arrays import Floats

SHAPES: Shapes = {"seen.mean": ("seen",), "seen.whiten": ("seen", "seen"), "seen.limit": (1,)}
"""The names and shapes of the arrays of `SeenStates.arrays` in a model."""
_LEAST_DEVIATION = 1e-3
"""of a feature that hardly varies in training, in its own units or as a share of its mean"""


@dataclass(frozen=True, eq=False)
class SeenStates:
    """The mean and covariance of the summaries of states in training.

    mean: (f,). whiten: (f, f), which turns what is left of a summary without the mean into uncorrelated parts of
    variance 1. limit: the distance that nearly all states in training are within.
    """

    mean: Floats
    whiten: Floats
    limit: float

    @classmethod
    def of(cls, states: Floats, *, within: float = 0.999, indifferent: float = 0.0) -> "SeenStates":
        """The statistics of the states (n, f) of a training; the share `within` of these is at a distance of 1 at most.

        indifferent: a change of a feature, in its own unit, that hardly changes what is decided: each feature counts as
        if it had varied by so much more in training, independently of the others.
        """
        mean = states.mean(axis=0)
        least = np.maximum(_LEAST_DEVIATION * np.maximum(1.0, np.abs(mean)), indifferent)
        covariance = np.atleast_2d(np.cov(states, rowvar=False, bias=True)) + np.diag(least**2)
        whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T
        distances = np.linalg.norm((states - mean) @ whiten, axis=1)
        return cls(mean, whiten, max(float(np.quantile(distances, within)), 1.0))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Singles]) -> "SeenStates":
        """The statistics that a model's arrays hold; the inverse of `arrays`."""
        mean, whiten, limit = (np.asarray(arrays[name], dtype=np.float64) for name in SHAPES)
        return cls(mean, whiten, float(limit[0]))

    def arrays(self) -> dict[str, Singles]:
        """What a model keeps of them."""
        values = (self.mean, self.whiten, np.array([self.limit]))
        return {name: each.astype(np.float32) for name, each in zip(SHAPES, values, strict=True)}

    def examples(self, count: int, rng: np.random.Generator, *, within: float = 0.999) -> Floats:
        """(count, f) states that stand for those of the training: drawn at random, the share `within` of them known."""
        drawn = rng.standard_normal((count, len(self.mean)))
        drawn *= self.limit / np.quantile(np.linalg.norm(drawn, axis=1), within)
        return np.asarray(self.mean + drawn @ np.linalg.inv(self.whiten))

    def distance(self, state: Floats) -> float:
        """The distance of a state's summary (f,) from the mean; above 1 it is beyond nearly all states in training."""
        return float(np.linalg.norm((state - self.mean) @ self.whiten) / self.limit)
