"""Trains the network of `LossPredictor`, on draws of a prior and losses of simulated algorithms alone.

`docs/make_loss_network.py` runs it. Each curve gives several examples: it is cut at random, and continued for some
iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
from numpy.random import Generator

from predictors.arrays import Floats, Ints
from predictors.loss.algorithms import boosting, clustering, linear_models, networks
from predictors.loss.features import EXPERTS, LossFeatures, LossWindows, extract_features
from predictors.loss.network import LEVELS, MIDDLE, OUTPUTS, LossNetwork, Single, forward, standardise
from predictors.loss.prior import sample_prior_losses

_SOURCES = ((sample_prior_losses, 2400), (linear_models, 6300), (boosting, 1800), (clustering, 600), (networks, 1200))
"""what curves are drawn from, and how many"""
_LENGTH = 240
_CURVES_AT_ONCE = 300
_EXAMPLES = 14
"""of each curve"""
_AHEAD, _MOST_AHEAD = 10, 45
"""iterations ahead: SLAQ's horizon in half of the examples, else up to 45"""
_TARGET_BOUND = 8.0
_HIDDEN = 96
_EPOCHS = 12
_BATCH = 512
_RATE = 2e-3


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """n examples. target: (n,) change of the loss in units of `features.unit`. weight: (n,). curve: (n,) its number."""

    features: LossFeatures
    target: Floats
    weight: Floats
    curve: Ints

    @classmethod
    def joined(cls, parts: Sequence[TrainingSet]) -> TrainingSet:
        """The examples of all parts, in their order."""
        names = [field.name for field in fields(LossFeatures)]
        features = (np.concatenate([getattr(part.features, name) for part in parts]) for name in names)
        rest = (np.concatenate([getattr(part, name) for part in parts]) for name in ("target", "weight", "curve"))
        return cls(LossFeatures(*features), *rest)


def sample_curves(seed: int) -> Iterator[Floats]:
    """Loss curves (300, 240), source after source; the same for the same seed."""
    for number, (draw, count) in enumerate(_SOURCES):
        for part in range(count // _CURVES_AT_ONCE):
            yield draw(_LENGTH, _CURVES_AT_ONCE, np.random.default_rng([seed, number, part]))


def make_training_set(curves: Sequence[Floats], random: Generator) -> TrainingSet:
    """Examples of arrays of curves (c, 240), each weighted by its unit relative to the loss and to the curve's
    range."""
    parts, first = [], 0
    for stack in curves:
        row = np.arange(len(stack))
        for turn in range(_EXAMPLES):
            ahead = np.round(np.exp(random.uniform(0.0, np.log(_MOST_AHEAD), len(stack))))
            ahead = np.where(random.random(len(stack)) < 0.55, _AHEAD, ahead).astype(np.int64)
            least = 2.5 if turn % 6 == 0 else 8.0
            k = np.round(np.exp(random.uniform(np.log(least), np.log(_LENGTH - 10.0), len(stack))))
            k = np.clip(k, 2, _LENGTH - ahead).astype(np.int64)
            windows = LossWindows.of([curve[:n] for curve, n in zip(stack, k, strict=True)])
            features = extract_features(windows, ahead.astype(np.float64))
            last, future = stack[row, k - 1], stack[row, k - 1 + ahead]
            extent = np.ptp(stack, axis=1)
            of_value = np.minimum(features.unit / np.maximum(np.abs(last), 0.02 * extent + 1e-300), 2.0)
            of_range = np.minimum(features.unit / np.maximum(extent, 1e-300), 2.0)
            weight = np.stack([of_value, of_range], axis=1)
            parts.append(TrainingSet(features, (future - last) / features.unit, weight, first + row))
        first += len(stack)
    joined = TrainingSet.joined(parts)
    weight = 0.15 + (joined.weight / joined.weight.mean(axis=0)).sum(axis=1)
    return TrainingSet(joined.features, np.clip(joined.target, -_TARGET_BOUND, _TARGET_BOUND), weight, joined.curve)


def train(examples: TrainingSet, seed: int) -> LossNetwork:
    """The network trained on the examples, shuffled and initialised by the seed."""
    values = examples.features.values
    centre, scale = (part.astype(np.float32) for part in (values.mean(axis=0), values.std(axis=0) + 1e-3))
    x = standardise(values, centre, scale).astype(np.float32)
    parts = (examples.features.experts, examples.features.dispersion, examples.target, examples.weight)
    experts, dispersion, target, weight = (part.astype(np.float32) for part in parts)
    random = np.random.default_rng(seed)
    weights = initial_weights(x.shape[1], random)
    optimiser = _Adam(weights, _EPOCHS * (len(x) // _BATCH))
    for _ in range(_EPOCHS):
        order = random.permutation(len(x))
        for start in range(0, len(x) - _BATCH + 1, _BATCH):
            rows = order[start : start + _BATCH]
            score = partial(pinball_loss, target=target[rows], weight=weight[rows])
            optimiser.step(gradient(weights, x[rows], experts[rows], dispersion[rows], score)[1])
    names = LossNetwork.__dataclass_fields__
    return LossNetwork.from_state(dict(zip(names, [centre, scale, *weights], strict=True)))


class _Adam:
    """Adam with a warm-up of 200 steps, cosine decay, and gradients clipped to twice their typical norm."""

    def __init__(self, weights: Sequence[Single], steps: int) -> None:
        self._weights, self._steps, self._count, self._typical_norm = weights, steps, 0, 0.0
        self._mean, self._square = ([np.zeros_like(w) for w in weights] for _ in range(2))

    def step(self, gradients: Sequence[Single]) -> None:
        self._count += 1
        norm = float(np.sqrt(sum(float((part**2).sum()) for part in gradients)))
        self._typical_norm = 0.99 * self._typical_norm + 0.01 * norm if self._count > 1 else norm
        clipping = min(1.0, 2.0 * self._typical_norm / (norm + 1e-12))
        rate = _RATE * min(1.0, self._count / 200) * 0.5 * (1.0 + np.cos(np.pi * self._count / self._steps))
        rate /= 1.0 - 0.9**self._count
        for w, mean, square, part in zip(self._weights, self._mean, self._square, gradients, strict=True):
            mean[:] += 0.1 * (clipping * part - mean)
            square[:] += 0.001 * ((clipping * part) ** 2 - square)
            w[:] -= rate * mean / (np.sqrt(square / (1.0 - 0.999**self._count)) + 1e-8)


def initial_weights(features: int, random: Generator) -> tuple[Single, ...]:
    """Random weights for so many features, in the order of the fields of `LossNetwork`: He initialisation."""
    weights = []
    for rows, columns, size in ((features, _HIDDEN, 1.0), (_HIDDEN, _HIDDEN, 1.0), (_HIDDEN, OUTPUTS, 0.1)):
        weights += [size * random.standard_normal((rows, columns)) * np.sqrt(2.0 / rows), np.zeros((1, columns))]
    weights[5][:, EXPERTS + 2 :] = -1.0
    return tuple(w.astype(np.float32) for w in weights)


def pinball_loss(quantiles: Single, target: Single, weight: Single) -> tuple[float, Single]:
    """Weighted mean pinball loss of quantiles (n, levels) of target (n,), and its gradient by the quantiles (n,
    levels).

    weight: (n,). The median counts three times.
    """
    levels = LEVELS.astype(quantiles.dtype)
    error = target[:, None] - quantiles
    by_quantile = np.where(error > 0, -levels, 1.0 - levels) * (weight / weight.sum())[:, None]
    by_quantile[:, MIDDLE] *= 3.0
    return float(-(by_quantile * error).sum()), by_quantile


def gradient(
    weights: tuple[Single, ...],
    x: Single,
    experts: Single,
    dispersion: Single,
    score: Callable[[Single], tuple[float, Single]],
) -> tuple[float, list[Single]]:
    """The score of the quantiles at inputs x (n, f), and its gradients by the weights.

    score: maps quantiles (n, levels) to a number and its gradient by them.
    """
    quantiles, hidden, second_hidden, out, share, mean, log_scale, scale, offset = forward(
        weights, x, experts, dispersion
    )
    value, by_quantile = score(quantiles)
    by_offset = by_quantile * scale
    by_out = np.empty_like(out)
    by_out[:, :EXPERTS] = share * (experts - mean) * by_quantile.sum(axis=1, keepdims=True)
    by_out[:, EXPERTS] = by_offset.sum(axis=1)
    by_out[:, EXPERTS + 1] = (by_offset * offset).sum(axis=1) * (1.0 - log_scale[:, 0] ** 2)
    lower = -np.cumsum(by_offset[:, :MIDDLE], axis=1)[:, ::-1]
    upper = np.cumsum(by_offset[:, :MIDDLE:-1], axis=1)[:, ::-1]
    by_out[:, EXPERTS + 2 :] = np.concatenate([lower, upper], axis=1) / (1.0 + np.exp(-out[:, EXPERTS + 2 :]))
    by_second_hidden = (by_out @ weights[4].T) * (second_hidden > 0)
    by_hidden = (by_second_hidden @ weights[2].T) * (hidden > 0)
    pairs = ((x, by_hidden), (hidden, by_second_hidden), (second_hidden, by_out))
    gradients = ((inputs.T @ by_output, by_output.sum(axis=0, keepdims=True)) for inputs, by_output in pairs)
    return value, [each for pair in gradients for each in pair]
