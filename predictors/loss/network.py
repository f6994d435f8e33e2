"""A network that says how a loss goes on: which of the simple laws to follow, how far beside them, and how surely.

A mixture of experts (Jacobs, Jordan, Nowlan, Hinton 1991): two hidden layers weigh the laws of `predictors.loss.extrapolation`
and give the distances of thirteen quantiles from their weighted mean, in units of how far the laws are apart. Trained
on the pinball loss by Adam (Kingma and Ba 2015), on draws of a prior alone (`predictors.loss.training`), as
prior-fitted networks are (Müller and others 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats
from predictors.loss.features import LAWS, Look

Single: TypeAlias = NDArray[np.floating[Any]]

LEVELS = np.array([0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
MIDDLE = 6
OUT = LAWS + 2 + len(LEVELS) - 1
"""a weight for each law, the median's distance from their mean, the logarithm of the scale, gaps between quantiles"""
_BOUND = 6.0


@dataclass(frozen=True, eq=False)
class LossNetwork:
    """centre, scale (f,) of the features; weights first (f, h), second (h, h), last (h, out), each with a bias."""

    centre: Floats
    scale: Floats
    first: Floats
    first_bias: Floats
    second: Floats
    second_bias: Floats
    last: Floats
    last_bias: Floats

    def quantiles(self, look: Look) -> Floats:
        """(n, len(LEVELS)) increasing quantiles of the change of n curves, in their reaches."""
        x = standardised(look.features, self.centre, self.scale)
        weights = (self.first, self.first_bias, self.second, self.second_bias, self.last, self.last_bias)
        return np.asarray(forward(weights, x, look.laws, look.apart)[0])

    def state(self) -> dict[str, NDArray[Any]]:
        return {name: values.astype(np.float32) for name, values in vars(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LossNetwork:
        return cls(*(np.asarray(state[name], dtype=np.float64) for name in cls.__dataclass_fields__))


def standardised(features: Floats, centre: Floats, scale: Floats) -> Floats:
    return np.asarray(np.minimum(np.maximum((features - centre) / scale, -_BOUND), _BOUND))


def forward(weights: tuple[Single, ...], x: Single, laws: Single, apart: Single) -> tuple[Single, ...]:
    """Quantiles (n, levels) from standardised features x (n, f), and what the gradient is made of."""
    first, first_bias, second, second_bias, last, last_bias = weights
    hidden = np.maximum(x @ first + first_bias, 0.0)
    deeper = np.maximum(hidden @ second + second_bias, 0.0)
    out = deeper @ last + last_bias
    share = np.exp(out[..., :LAWS] - out[..., :LAWS].max(axis=-1, keepdims=True))
    share /= share.sum(axis=-1, keepdims=True)
    mean = (share * laws).sum(axis=-1, keepdims=True)
    bent = np.tanh(out[..., LAWS + 1 : LAWS + 2] / _BOUND)
    scale = apart[:, None] * np.exp(_BOUND * bent)
    gaps = np.logaddexp(0.0, out[..., LAWS + 2 :])
    offset = np.empty((*out.shape[:-1], len(LEVELS)), dtype=out.dtype)
    offset[..., MIDDLE] = 0.0
    offset[..., MIDDLE + 1 :] = np.cumsum(gaps[..., MIDDLE:], axis=-1)
    offset[..., :MIDDLE] = -np.cumsum(gaps[..., :MIDDLE], axis=-1)[..., ::-1]
    offset += out[..., LAWS : LAWS + 1]
    return mean + scale * offset, hidden, deeper, out, share, mean, bent, scale, offset
