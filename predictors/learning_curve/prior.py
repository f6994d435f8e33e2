"""The model that needs no history: a quantile forest fitted on draws from a prior over learning curves.

As for prior-fitted networks (Adriaensen, Rakotoarison, Müller, Hutter 2023, on learning curves): draw curves from a
prior, then fit a model to the draws. A curve of the prior progresses from chance level to a top along a parametric
family, possibly after a plateau. Learning rates are constant, annealed or dropped in steps, mostly not constant in
long runs. Noise is autocorrelated and shrinks with the learning rate. Some runs overfit, a few never learn.

The forest depends on nothing that a site has, so it is grown once, by docs/make_learning_curve_forest.py, and ships in
prior_forest.npz: to grow it takes seconds, which each start of a daemon and each report that forecasts would take.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import numpy as np
from numpy.random import Generator
from scipy.signal import lfilter

from predictors.arrays import Bools, Floats, Ints, clip
from predictors.forest import QuantileForest
from predictors.learning_curve.features import CUTS, HISTORY_LENGTH, HORIZON, Examples, make_examples
from predictors.learning_curve.quantiles import MEDIAN, sample_quantiles

_LENGTHS = tuple(int(n) for n in np.round(np.geomspace(15, 400, 14)))
"""lengths of the curves drawn for training"""
_LONG = 70
"""iterations from which on a run is long"""
_MILESTONES = np.array([[0.3, 0.6, 0.9], [0.5, 0.75, 1.0], [0.4, 0.8, 1.0], [1 / 3, 2 / 3, 1.0]])
_CURVES = 960
"""curves drawn for the forest, of each length"""
_TREE_SHARE = 0.09
"""share of them that each tree is fitted on: draws are cheap, and errors of trees on different draws correlate less"""
_SHORT_RUN_SHRINKAGE, _SHORT_AND_LONG = 0.2, (70.0, 200.0)
"""by how much less than the prior expects runs of the first horizon gain; those of the second gain as much"""
_UPPER_SHRINKAGE, _LOWER_SHRINKAGE = 0.7, 0.9
"""factors of the widths of the prior's intervals above and below the median"""
_FEWEST_SEEN = 5


def prior_quantiles(x: Floats) -> Floats:
    """(m, levels) quantiles of the gain, for features x (m, features); overconfident of real curves."""
    return sample_quantiles(_forest().sample(x))


def prior_examples(count: int) -> Examples:
    """Examples of `count` curves of each of the prior's lengths, always the same ones; every other cut is used."""
    random = np.random.default_rng(20)
    return make_examples(
        [curve for length in _LENGTHS for curve in sample_prior_curves(length, count, random)], CUTS[::2]
    )


def grow_forest() -> QuantileForest:
    """The forest that prior_forest.npz has, but for rounding, and for what another release of scikit-learn draws."""
    x, y, owner, _ = prior_examples(_CURVES)
    return QuantileForest.fit(x, y, owner, trees=60, smallest_leaf=8, features=0.5, seed=20, share=_TREE_SHARE)


@lru_cache(maxsize=1)
def _forest() -> QuantileForest:
    stored = resources.files("predictors.learning_curve").joinpath("prior_forest.npz")
    with stored.open("rb") as file, np.load(file) as state:
        return QuantileForest.from_state(state)


def shrink_overconfident(gains: Floats, x: Floats) -> Floats:
    """Quantiles (m, levels) by the prior, shrunk to what real curves gain; x: (m, features).

    Curves of the prior gain more than real short runs do, and its intervals are too wide. Both were measured on curves
    of at least `_FEWEST_SEEN` iterations; shorter ones are left as they are.
    """
    short, long = np.log(_SHORT_AND_LONG)
    median = gains[:, MEDIAN : MEDIAN + 1]
    deviation = gains - median
    kept = 1.0 - _SHORT_RUN_SHRINKAGE * clip((long - x[:, HORIZON : HORIZON + 1]) / (long - short), 0.0, 1.0)
    shrunk = median * kept + np.where(deviation > 0, _UPPER_SHRINKAGE, _LOWER_SHRINKAGE) * deviation
    return np.asarray(np.where(x[:, HISTORY_LENGTH : HISTORY_LENGTH + 1] >= np.log(_FEWEST_SEEN), shrunk, gains))


def sample_prior_curves(length: int, count: int, random: Generator) -> Floats:
    """(count, length) curves in [0, 1], `length` iterations each."""
    x = np.arange(1.0, length + 1.0)
    classes = np.where(random.random(count) < 0.5, np.exp(random.uniform(np.log(2), np.log(1000), count)), 10.0)
    chance = 1.0 / classes
    top = 1.0 - (1.0 - chance) * np.exp(random.uniform(np.log(0.003), np.log(0.9), count))
    learns: Bools = random.random(count) >= 0.06
    base = chance[:, None] + (np.where(learns, top, chance) - chance)[:, None] * _progress(x, count, random)
    base, noise_factor = _schedules(base, x / length, learns, random)
    overfit = np.where(random.random(count) < 0.12, random.exponential(0.03, count), 0.0)
    base -= overfit[:, None] * np.maximum(0.0, x / length - random.uniform(0.05, 0.6, (count, 1)))
    noise = np.exp(random.uniform(np.log(0.0005), np.log(0.03), count))[:, None] * noise_factor
    amplitude = 0.3 + 1.4 * np.sqrt(np.clip(base * (1.0 - base), 0.0, 1.0))
    curves = base + noise * amplitude * _autoregressive_noise(count, length, random)
    dips = (random.random(count) < 0.03)[:, None] & (random.random(base.shape) < 0.05)
    return np.clip(np.where(dips, curves - base * random.uniform(0.0, 0.3, base.shape), curves), 0.0, 1.0)


def _progress(x: Floats, count: int, random: Generator) -> Floats:
    """(count, length) from 0 to at most 1: power law, Weibull, Hill, or an exponential with a slow tail."""
    length = len(x)
    scale = np.exp(random.uniform(np.log(0.3), np.log(0.4 * length), count))[:, None]
    exponent = np.exp(random.normal(0.0, 0.45, count))[:, None]
    family = random.integers(4, size=count)[:, None]
    ratio = x / scale
    progress = np.select(
        [family == 0, family == 1, family == 2],
        [
            1.0 - (1.0 + ratio) ** -exponent,
            1.0 - np.exp(-(ratio ** (0.8 * exponent))),
            1.0 / (1.0 + ratio ** (-1.3 * exponent)),
        ],
        1.0 - 0.7 * np.exp(-ratio) - 0.3 / (1.0 + ratio / 4.0) ** 0.7,
    )
    start = np.exp(random.uniform(0.0, np.log(0.5 * length), count))[:, None]
    width = start * random.uniform(0.1, 0.5, count)[:, None]
    delayed = (random.random(count) < 0.2)[:, None]
    progress = np.where(delayed, progress / (1.0 + np.exp(np.clip((start - x) / width, -50.0, 50.0))), progress)
    saturated = np.where(random.random(count) < 0.5, random.uniform(0.0, 1.0, count), 0.0)[:, None]
    return np.asarray(np.minimum(progress * np.maximum(progress[:, -1:], 1e-6) ** -saturated, 1.0))


def _schedules(base: Floats, share: Floats, learns: Bools, random: Generator) -> tuple[Floats, Floats]:
    """The curves with what the learning rate schedule adds, and the factor of the noise, both (count, length)."""
    count, length = base.shape
    long = length >= _LONG
    probabilities = [0.25, 0.30, 0.05, 0.40] if long else [0.80, 0.08, 0.04, 0.08]
    kind: Ints = np.asarray(random.choice(4, size=count, p=probabilities))
    exponent = random.uniform(1.0, 4.0, (count, 1))
    annealed = np.where((kind == 1)[:, None], (1.0 - np.cos(np.pi * share)) / 2.0, share) ** exponent
    gain: Floats = (_beta(random, count, (2.0, 2.5) if long else (1.0, 4.0)) * learns)[:, None]
    smooth: Bools = ((kind == 1) | (kind == 2))[:, None]
    base = np.where(smooth, base + (1.0 - base) * gain * annealed, base)
    noise_factor = np.where(smooth, 0.15 + 0.85 * (1.0 - annealed), 1.0)
    usual = _MILESTONES[random.integers(len(_MILESTONES), size=count)]
    at = np.where(random.random((count, 1)) < 0.5, np.sort(random.uniform(0.25, 0.95, (count, 3)), axis=1), usual)
    jump: Floats = _beta(random, count, (2.5, 2.5) if long else (1.0, 4.0)) * learns * (kind == 3)
    for milestone, happens in zip(at.T, (1.0, 0.67, 0.33), strict=True):
        jump = jump * (random.random(count) < happens)
        since: Floats = np.maximum(share - milestone[:, None], 0.0) * length
        base = base + (1.0 - base) * jump[:, None] * (1.0 - np.exp(-since / random.uniform(0.3, 3.0, (count, 1))))
        noise_factor = np.where((since > 0) & (jump > 0)[:, None], noise_factor * 0.5, noise_factor)
        jump = jump * random.uniform(0.1, 0.5, count)
    return base, noise_factor


def _beta(random: Generator, count: int, parameters: tuple[float, float]) -> Floats:
    return np.asarray(random.beta(*parameters, size=count))


def _autoregressive_noise(count: int, length: int, random: Generator) -> Floats:
    """(count, length) first-order autoregressive noise of variance one."""
    autocorrelation = random.uniform(0.0, 0.7, count)
    innovations = random.standard_normal((count, length)) * np.sqrt(1.0 - autocorrelation**2)[:, None]
    innovations[:, 0] /= np.sqrt(1.0 - autocorrelation**2)
    return np.stack([lfilter([1.0], [1.0, -phi], row) for phi, row in zip(autocorrelation, innovations, strict=True)])
