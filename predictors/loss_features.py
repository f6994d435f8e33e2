"""What a model sees of a loss curve: its latest changes in units of their size, and what simple laws make of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from predictors.arrays import Floats

_WINDOW = 40
_RECENT = 10
_TINY = 1e-9


def loss_features(curves: Floats, ahead: int) -> tuple[Floats, Floats]:
    """Of curves (m, k), to be continued by `ahead` iterations: features (m, f), and the unit (m,) of a change.

    The unit is the mean absolute change of the last ten iterations; of a curve with few points, or with equal ones,
    a part of its value that falls with their number.
    """
    m, k = curves.shape
    last = curves[:, -1]
    missing = max(0, _WINDOW + 1 - k)
    window = np.concatenate([np.repeat(curves[:, :1], missing, axis=1), curves[:, -_WINDOW - 1 :]], axis=1)
    steps = np.diff(window, axis=1)
    floor = np.abs(last) * max(0.5 / k**4, 1e-6) + 1e-300
    unit = np.maximum(np.abs(steps[:, -min(_RECENT, max(k - 1, 1)) :]).mean(axis=1), floor)
    steps = steps / unit[:, None]
    changes = np.concatenate([np.zeros((m, 1)), np.cumsum(steps[:, ::-1], axis=1)], axis=1)

    def change(since: int, until: int) -> Floats:
        return np.asarray(changes[:, since] - changes[:, until])

    ratios, geometric = [], []
    for span in (1, 3, 5, 10):
        ratio = _ratio(change(span, 0), change(2 * span, span))
        ratios.append(ratio)
        geometric.append(_geometric(change(span, 0), ratio, span, ahead))
    slope = change(5, 0) / 5.0
    to_come = np.arange(1, ahead + 1) if ahead <= _WINDOW else np.linspace(1, ahead, _WINDOW)
    exponent = np.clip(-np.log(np.clip(ratios[2], 1e-3, 1.5)) / np.log((k + 2.5) / max(k - 2.5, 0.5)), -1.0, 6.0)
    power = slope * (((k + to_come) / max(k - 2.5, 0.5)) ** -exponent[:, None]).mean(axis=1)
    sublinear = slope * max(k - 2.5, 0.5) ** 2 / (k * (k + ahead))
    edges = (0, 1, 2, 3, 5, 7, 10, 15, 20, 40)
    parts = [change(b, a) / (b - a) for a, b in pairwise(edges)]
    features = np.stack(
        [
            *geometric, slope, power, sublinear, *ratios, *parts,
            np.diff(steps[:, -12:], axis=1).std(axis=1), np.full(m, np.log(k)), np.full(m, np.log(ahead)),
            np.log(unit / (np.abs(last) + 1e-300)), np.log(unit / (np.abs(curves[:, 0] - last) + unit)),
            np.clip((curves.min(axis=1) - last) / unit, -50.0, 0.0),
            np.clip((curves.mean(axis=1) - last) / unit, -100.0, 100.0), steps[:, -8:].std(axis=1),
        ],
        axis=1,
    )  # fmt: skip
    return np.clip(np.nan_to_num(features), -1e4, 1e4), unit


def _ratio(later: Floats, earlier: Floats) -> Floats:
    return np.clip(later / np.where(np.abs(earlier) < _TINY, _TINY, earlier), -3.0, 3.0)


def _geometric(change: Floats, ratio: Floats, span: int, ahead: int) -> Floats:
    """Mean change an iteration to come, if the changes shrink by `ratio` every `span` iterations."""
    q = np.clip(np.clip(ratio, 0.0, 1.0) ** (1.0 / span), 0.0, 0.9999)
    latest = change * (1.0 - q) / np.maximum(1.0 - q**span, 1e-12)
    return np.asarray(latest * q * (1.0 - q**ahead) / (1.0 - q) / ahead)
