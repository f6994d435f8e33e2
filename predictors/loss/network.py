"""The network that combines the extrapolation rules: a mixture of experts with quantiles about its mean.

Two hidden layers weigh the experts (Jacobs, Jordan, Nowlan, Hinton 1991), which are the rules of `extrapolation` and
`least_squares`, and give the distances of thirteen quantiles from their weighted mean in units of the experts'
dispersion. Trained on the pinball loss by Adam (Kingma, Ba 2015), on simulated curves alone (`training`), as
prior-fitted networks are (Müller and others 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats
from predictors.loss.features import EXPERTS, LossFeatures

Single: TypeAlias = NDArray[np.floating[Any]]
"""float32 in training, float64 when predicting"""

LEVELS = np.array([0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
MIDDLE = 6
"""index of the median"""
OUTPUTS = EXPERTS + 2 + len(LEVELS) - 1
"""of the network: a weight for each expert, the distance of the median from their weighted mean, the logarithm of the
scale, and the gaps between successive quantiles"""
_BOUND = 6.0
"""of standardised features, and of the logarithm of the scale"""


@dataclass(frozen=True, eq=False)
class LossNetwork:
    """The weights of the network.

    centre, scale: (f,) that standardise the features. first: (f, h), second: (h, h), last: (h, OUTPUTS), each with a
    bias.
    """

    centre: Floats
    scale: Floats
    first: Floats
    first_bias: Floats
    second: Floats
    second_bias: Floats
    last: Floats
    last_bias: Floats

    def quantiles(self, features: LossFeatures) -> Floats:
        """(n, len(LEVELS)) increasing quantiles of the change of n losses, in units of `LossFeatures.unit`."""
        x = standardise(features.values, self.centre, self.scale)
        weights = (self.first, self.first_bias, self.second, self.second_bias, self.last, self.last_bias)
        return np.asarray(forward(weights, x, features.experts, features.dispersion)[0])

    def state(self) -> dict[str, NDArray[Any]]:
        """The weights as float32 arrays, from which `from_state` makes the network."""
        return {name: values.astype(np.float32) for name, values in vars(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> LossNetwork:
        """The network whose `state` this is."""
        return cls(*(np.asarray(state[name], dtype=np.float64) for name in cls.__dataclass_fields__))


def standardise(features: Floats, centre: Floats, scale: Floats) -> Floats:
    """Features (n, f) in units of `scale` about `centre`, bounded."""
    return np.asarray(np.minimum(np.maximum((features - centre) / scale, -_BOUND), _BOUND))


def forward(weights: tuple[Single, ...], x: Single, experts: Single, dispersion: Single) -> tuple[Single, ...]:
    """The forward pass, for standardised features x (n, f), experts (n, EXPERTS) and their dispersion (n,).

    Returns the quantiles (n, levels), and the intermediate results of which the gradient is computed.
    """
    first, first_bias, second, second_bias, last, last_bias = weights
    hidden = np.maximum(x @ first + first_bias, 0.0)
    second_hidden = np.maximum(hidden @ second + second_bias, 0.0)
    out = second_hidden @ last + last_bias
    share = np.exp(out[..., :EXPERTS] - out[..., :EXPERTS].max(axis=-1, keepdims=True))
    share /= share.sum(axis=-1, keepdims=True)
    mean = (share * experts).sum(axis=-1, keepdims=True)
    log_scale = np.tanh(out[..., EXPERTS + 1 : EXPERTS + 2] / _BOUND)
    scale = dispersion[:, None] * np.exp(_BOUND * log_scale)
    gaps = np.logaddexp(0.0, out[..., EXPERTS + 2 :])
    offset = np.empty((*out.shape[:-1], len(LEVELS)), dtype=out.dtype)
    offset[..., MIDDLE] = 0.0
    offset[..., MIDDLE + 1 :] = np.cumsum(gaps[..., MIDDLE:], axis=-1)
    offset[..., :MIDDLE] = -np.cumsum(gaps[..., :MIDDLE], axis=-1)[..., ::-1]
    offset += out[..., EXPERTS : EXPERTS + 1]
    return mean + scale * offset, hidden, second_hidden, out, share, mean, log_scale, scale, offset
