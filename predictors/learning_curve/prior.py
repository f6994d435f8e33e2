"""Curves as they are believed to be before any was seen: what the predictor learns from while it has no history.

As in prior-fitted networks for learning curves (Adriaensen, Rakotoarison, Müller, Hutter 2023): draw from a prior,
then learn to predict the draws. The prior: progress along a family of `predictors.learning_curve.shapes` from chance level to a
top, possibly after a plateau; learning rates constant, annealed or dropped in steps, the longer runs mostly not
constant; noise that is correlated and shrinks as the rate falls; some runs overfit, a few never learn.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from scipy.signal import lfilter

from predictors.arrays import Bools, Floats, Ints

LENGTHS = tuple(int(n) for n in np.round(np.geomspace(15, 400, 14)))
_LONG = 70
_MILESTONES = np.array([[0.3, 0.6, 0.9], [0.5, 0.75, 1.0], [0.4, 0.8, 1.0], [1 / 3, 2 / 3, 1.0]])


def prior_curves(length: int, count: int, random: Generator) -> Floats:
    """(count, length) curves within [0, 1]."""
    x = np.arange(1.0, length + 1.0)
    classes = np.where(random.random(count) < 0.5, np.exp(random.uniform(np.log(2), np.log(1000), count)), 10.0)
    chance = 1.0 / classes
    top = 1.0 - (1.0 - chance) * np.exp(random.uniform(np.log(0.003), np.log(0.9), count))
    learns: Bools = random.random(count) >= 0.06
    base = chance[:, None] + (np.where(learns, top, chance) - chance)[:, None] * _progress(x, count, random)
    base, quiet = _schedules(base, x / length, learns, random)
    overfit = np.where(random.random(count) < 0.12, random.exponential(0.03, count), 0.0)
    base -= overfit[:, None] * np.maximum(0.0, x / length - random.uniform(0.05, 0.6, (count, 1)))
    noise = np.exp(random.uniform(np.log(0.0005), np.log(0.03), count))[:, None] * quiet
    swing = 0.3 + 1.4 * np.sqrt(np.clip(base * (1.0 - base), 0.0, 1.0))
    curves = base + noise * swing * _correlated(count, length, random)
    dips = (random.random(count) < 0.03)[:, None] & (random.random(base.shape) < 0.05)
    return np.clip(np.where(dips, curves - base * random.uniform(0.0, 0.3, base.shape), curves), 0.0, 1.0)


def _progress(x: Floats, count: int, random: Generator) -> Floats:
    """(count, length) from 0 to at most 1: power law, Weibull, Hill, or an exponential with a slow remainder."""
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
    late = (random.random(count) < 0.2)[:, None]
    progress = np.where(late, progress / (1.0 + np.exp(np.clip((start - x) / width, -50.0, 50.0))), progress)
    saturated = np.where(random.random(count) < 0.5, random.uniform(0.0, 1.0, count), 0.0)[:, None]
    return np.asarray(np.minimum(progress * np.maximum(progress[:, -1:], 1e-6) ** -saturated, 1.0))


def _schedules(base: Floats, share: Floats, learns: Bools, random: Generator) -> tuple[Floats, Floats]:
    """The curves with what a falling learning rate adds, and the noise that it leaves, both (count, length)."""
    count, length = base.shape
    long = length >= _LONG
    odds = [0.25, 0.30, 0.05, 0.40] if long else [0.80, 0.08, 0.04, 0.08]
    kind: Ints = np.asarray(random.choice(4, size=count, p=odds))
    bend = random.uniform(1.0, 4.0, (count, 1))
    annealed = np.where((kind == 1)[:, None], (1.0 - np.cos(np.pi * share)) / 2.0, share) ** bend
    gain: Floats = (_share(random, count, (2.0, 2.5) if long else (1.0, 4.0)) * learns)[:, None]
    smooth: Bools = ((kind == 1) | (kind == 2))[:, None]
    base = np.where(smooth, base + (1.0 - base) * gain * annealed, base)
    quiet = np.where(smooth, 0.15 + 0.85 * (1.0 - annealed), 1.0)
    usual = _MILESTONES[random.integers(len(_MILESTONES), size=count)]
    at = np.where(random.random((count, 1)) < 0.5, np.sort(random.uniform(0.25, 0.95, (count, 3)), axis=1), usual)
    jump: Floats = _share(random, count, (2.5, 2.5) if long else (1.0, 4.0)) * learns * (kind == 3)
    for milestone, happens in zip(at.T, (1.0, 0.67, 0.33), strict=True):
        jump = jump * (random.random(count) < happens)
        since: Floats = np.maximum(share - milestone[:, None], 0.0) * length
        base = base + (1.0 - base) * jump[:, None] * (1.0 - np.exp(-since / random.uniform(0.3, 3.0, (count, 1))))
        quiet = np.where((since > 0) & (jump > 0)[:, None], quiet * 0.5, quiet)
        jump = jump * random.uniform(0.1, 0.5, count)
    return base, quiet


def _share(random: Generator, count: int, beta: tuple[float, float]) -> Floats:
    return np.asarray(random.beta(*beta, size=count))


def _correlated(count: int, length: int, random: Generator) -> Floats:
    """(count, length) first-order autoregressive noise of variance one."""
    kept = random.uniform(0.0, 0.7, count)
    fresh = random.standard_normal((count, length)) * np.sqrt(1.0 - kept**2)[:, None]
    fresh[:, 0] /= np.sqrt(1.0 - kept**2)
    return np.stack([lfilter([1.0], [1.0, -k], row) for k, row in zip(kept, fresh, strict=True)])
