"""How the network of `predictors.loss.predictor` is made: from draws of a prior and losses of algorithms, and from no log.

`docs/make_loss_network.py` runs it. A curve is looked at after several numbers of points, several iterations ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator

from predictors.arrays import Floats, Ints
from predictors.loss.algorithms import boosting, clustering, linear_models, networks
from predictors.loss.features import LAWS, Look, Losses, looked_at
from predictors.loss.network import LEVELS, MIDDLE, OUT, LossNetwork, Single, forward, standardised
from predictors.loss.prior import prior_losses

_DRAWS = ((prior_losses, 2400), (linear_models, 6300), (boosting, 1800), (clustering, 600), (networks, 1200))
_LENGTH = 240
_TOGETHER = 300
_LOOKS = 14
"""at each curve"""
_AHEAD, _FURTHEST = 10, 45
"""iterations: the horizon of SLAQ for half of the looks, else up to 45"""
_MOST = 8.0
"""reaches: targets are cut there, as the laws are"""
_HIDDEN = 96
_EPOCHS = 12
_BATCH = 512
_RATE = 2e-3


@dataclass(frozen=True, eq=False)
class Lessons:
    """What is learnt from: n looks, target (n,) in their reaches, weight (n,), curve (n,) that each is of."""

    look: Look
    target: Floats
    weight: Floats
    curve: Ints

    @classmethod
    def joined(cls, parts: Sequence[Lessons]) -> Lessons:
        of_look = {
            name: np.concatenate([getattr(part.look, name) for part in parts]) for name in Look.__dataclass_fields__
        }
        rest = (np.concatenate([getattr(part, name) for part in parts]) for name in ("target", "weight", "curve"))
        return cls(Look(**of_look), *rest)


def drawn(seed: int) -> Iterator[Floats]:
    """Curves (c, 240), a few hundred at a time."""
    for kind, (draw, count) in enumerate(_DRAWS):
        for part in range(count // _TOGETHER):
            yield draw(_LENGTH, _TOGETHER, np.random.default_rng([seed, kind, part]))


def lessons(curves: Sequence[Floats], random: Generator) -> Lessons:
    """Looks at all curves, weighted by how much an error there is of the value and of the curve's range."""
    parts, first = [], 0
    for some in curves:
        row = np.arange(len(some))
        for turn in range(_LOOKS):
            ahead = np.round(np.exp(random.uniform(0.0, np.log(_FURTHEST), len(some))))
            ahead = np.where(random.random(len(some)) < 0.55, _AHEAD, ahead).astype(np.int64)
            least = 2.5 if turn % 6 == 0 else 8.0
            k = np.round(np.exp(random.uniform(np.log(least), np.log(_LENGTH - 10.0), len(some))))
            k = np.clip(k, 2, _LENGTH - ahead).astype(np.int64)
            look = looked_at(Losses.of([curve[:n] for curve, n in zip(some, k, strict=True)]), ahead.astype(np.float64))
            last, then = some[row, k - 1], some[row, k - 1 + ahead]
            extent = np.ptp(some, axis=1)
            of_value = np.minimum(look.reach / np.maximum(np.abs(last), 0.02 * extent + 1e-300), 2.0)
            of_range = np.minimum(look.reach / np.maximum(extent, 1e-300), 2.0)
            parts.append(Lessons(look, (then - last) / look.reach, np.stack([of_value, of_range], axis=1), first + row))
        first += len(some)
    joined = Lessons.joined(parts)
    weight = 0.15 + (joined.weight / joined.weight.mean(axis=0)).sum(axis=1)
    return Lessons(joined.look, np.clip(joined.target, -_MOST, _MOST), weight, joined.curve)


def trained(given: Lessons, seed: int) -> LossNetwork:
    """The network that the lessons, in orders of the seed, make."""
    features = given.look.features
    centre, scale = (part.astype(np.float32) for part in (features.mean(axis=0), features.std(axis=0) + 1e-3))
    x = standardised(features, centre, scale).astype(np.float32)
    parts = (given.look.laws, given.look.apart, given.target, given.weight)
    laws, apart, target, weight = (part.astype(np.float32) for part in parts)
    random = np.random.default_rng(seed)
    weights = started(x.shape[1], random)
    descent = _Adam(weights, _EPOCHS * (len(x) // _BATCH))
    for _ in range(_EPOCHS):
        order = random.permutation(len(x))
        for start in range(0, len(x) - _BATCH + 1, _BATCH):
            rows = order[start : start + _BATCH]
            score = partial(pinball, target=target[rows], weight=weight[rows])
            descent.step(gradient(weights, x[rows], laws[rows], apart[rows], score)[1])
    names = LossNetwork.__dataclass_fields__
    return LossNetwork.from_state(dict(zip(names, [centre, scale, *weights], strict=True)))


class _Adam:
    """Its rate rises for 200 steps and then falls as a cosine; a long gradient is cut to twice the usual length."""

    def __init__(self, weights: Sequence[Single], steps: int) -> None:
        self._weights, self._steps, self._done, self._usual = weights, steps, 0, 0.0
        self._mean, self._square = ([np.zeros_like(w) for w in weights] for _ in range(2))

    def step(self, slopes: Sequence[Single]) -> None:
        self._done += 1
        length = float(np.sqrt(sum(float((slope**2).sum()) for slope in slopes)))
        self._usual = 0.99 * self._usual + 0.01 * length if self._done > 1 else length
        shorter = min(1.0, 2.0 * self._usual / (length + 1e-12))
        rate = _RATE * min(1.0, self._done / 200) * 0.5 * (1.0 + np.cos(np.pi * self._done / self._steps))
        rate /= 1.0 - 0.9**self._done
        for w, mean, square, slope in zip(self._weights, self._mean, self._square, slopes, strict=True):
            mean[:] += 0.1 * (shorter * slope - mean)
            square[:] += 0.001 * ((shorter * slope) ** 2 - square)
            w[:] -= rate * mean / (np.sqrt(square / (1.0 - 0.999**self._done)) + 1e-8)


def started(features: int, random: Generator) -> tuple[Single, ...]:
    weights = []
    for rows, columns, size in ((features, _HIDDEN, 1.0), (_HIDDEN, _HIDDEN, 1.0), (_HIDDEN, OUT, 0.1)):
        weights += [size * random.standard_normal((rows, columns)) * np.sqrt(2.0 / rows), np.zeros((1, columns))]
    weights[5][:, LAWS + 2 :] = -1.0
    return tuple(w.astype(np.float32) for w in weights)


def pinball(quantiles: Single, target: Single, weight: Single) -> tuple[float, Single]:
    """Mean loss of quantiles (n, levels) of target (n,), weighted by `weight` (n,), and its slope by each of them.

    The median counts three times.
    """
    levels = LEVELS.astype(quantiles.dtype)
    off = target[:, None] - quantiles
    by_quantile = np.where(off > 0, -levels, 1.0 - levels) * (weight / weight.sum())[:, None]
    by_quantile[:, MIDDLE] *= 3.0
    return float(-(by_quantile * off).sum()), by_quantile


def gradient(
    weights: tuple[Single, ...], x: Single, laws: Single, apart: Single, score: Callable[[Single], tuple[float, Single]]
) -> tuple[float, list[Single]]:
    """What `score` says of the quantiles, and its slope by each of the weights."""
    quantiles, hidden, deeper, out, share, mean, bent, scale, offset = forward(weights, x, laws, apart)
    value, by_quantile = score(quantiles)
    by_offset = by_quantile * scale
    by_out = np.empty_like(out)
    by_out[:, :LAWS] = share * (laws - mean) * by_quantile.sum(axis=1, keepdims=True)
    by_out[:, LAWS] = by_offset.sum(axis=1)
    by_out[:, LAWS + 1] = (by_offset * offset).sum(axis=1) * (1.0 - bent[:, 0] ** 2)
    lower = -np.cumsum(by_offset[:, :MIDDLE], axis=1)[:, ::-1]
    upper = np.cumsum(by_offset[:, :MIDDLE:-1], axis=1)[:, ::-1]
    by_out[:, LAWS + 2 :] = np.concatenate([lower, upper], axis=1) / (1.0 + np.exp(-out[:, LAWS + 2 :]))
    by_deeper = (by_out @ weights[4].T) * (deeper > 0)
    by_hidden = (by_deeper @ weights[2].T) * (hidden > 0)
    pairs = ((x, by_hidden), (hidden, by_deeper), (deeper, by_out))
    return value, [slope for given, by in pairs for slope in (given.T @ by, by.sum(axis=0, keepdims=True))]
