"""What a model sees of a loss curve: its latest changes in units of their size, and where simple laws take it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from predictors.arrays import Floats
from predictors.loss_shapes import shape_features

_WINDOW = 60
_RECENT = 10
_TINY = 1e-9
_EDGES = (0, 1, 2, 3, 5, 7, 10, 15, 20, 40)
_SPANS = (6, 12, 24, 60)


@dataclass(frozen=True)
class Losses:
    """n curves as they are looked at.

    latest (n, 61): their last losses, before those the first; length, first, low, mean (n,): of all their losses.
    """

    latest: Floats
    length: Floats
    first: Floats
    low: Floats
    mean: Floats

    @classmethod
    def of(cls, curves: Sequence[Floats]) -> Losses:
        latest = np.empty((len(curves), _WINDOW + 1))
        for row, curve in zip(latest, curves, strict=True):
            row[: max(0, len(row) - len(curve))] = curve[0]
            row[max(0, len(row) - len(curve)) :] = curve[-len(row) :]
        told = np.array([(len(curve), curve[0], curve.min(), curve.mean()) for curve in curves])
        return cls(latest, *told.T)


def loss_features(losses: Losses, ahead: Floats) -> tuple[Floats, Floats]:
    """Of n curves, to be continued by `ahead` (n,) iterations: features (n, f), and the unit (n,) of a change.

    The unit is the mean absolute change of the last ten iterations; of a curve with few points, or with equal ones,
    a part of its value that falls with their number.
    """
    k, last = losses.length, losses.latest[:, -1]
    steps = np.diff(losses.latest, axis=1)
    floor = np.abs(last) * np.maximum(0.5 / k**4, 1e-6) + 1e-300
    counted = np.clip(k - 1, 1, _RECENT)
    unit = np.maximum(np.abs(steps[:, -_RECENT:]).sum(axis=1) / counted, floor)
    steps = steps / unit[:, None]
    changes = (last[:, None] - losses.latest[:, ::-1]) / unit[:, None]

    ratios, geometric = [], []
    for span in (1, 3, 5, 10):
        later, earlier = changes[:, span], changes[:, 2 * span] - changes[:, span]
        ratios.append(_ratio(later, earlier))
        geometric.append(_geometric(later, ratios[-1], span, ahead))
    laws = [*geometric, *_slopes(changes[:, 5] / 5.0, ratios[2], k, ahead)]
    fits, about = _fits(losses, ahead, unit)
    laws += fits
    shapes = shape_features(losses.latest[:, 1:] - last[:, None], k, ahead, unit * ahead)
    each = np.stack(laws, axis=1)
    features = np.column_stack(
        [
            each, *about, *shapes, np.median(each, axis=1), np.log(each.std(axis=1) + _TINY), *ratios,
            *((changes[:, b] - changes[:, a]) / (b - a) for a, b in pairwise(_EDGES)),
            np.diff(steps[:, -12:], axis=1).std(axis=1), steps[:, -8:].std(axis=1), np.log(k), np.log(ahead),
            np.log(unit) - np.log(np.abs(last) + 1e-300), np.log(unit / (np.abs(losses.first - last) + unit)),
            np.clip((losses.low - last) / unit, -50.0, 0.0), np.clip((losses.mean - last) / unit, -100.0, 100.0),
        ]
    )  # fmt: skip
    return np.clip(np.nan_to_num(features), -1e4, 1e4), unit


def _ratio(later: Floats, earlier: Floats) -> Floats:
    return np.clip(later / np.where(np.abs(earlier) < _TINY, _TINY, earlier), -3.0, 3.0)


def _geometric(change: Floats, ratio: Floats, span: int, ahead: Floats) -> Floats:
    """Mean change an iteration to come, if the changes shrink by `ratio` every `span` iterations."""
    q = np.clip(np.clip(ratio, 0.0, 1.0) ** (1.0 / span), 0.0, 0.9999)
    latest = change * (1.0 - q) / np.maximum(1.0 - q**span, 1e-12)
    return np.asarray(latest * q * (1.0 - q**ahead) / (1.0 - q) / ahead)


def _slopes(slope: Floats, ratio: Floats, k: Floats, ahead: Floats) -> Iterable[Floats]:
    """Mean change an iteration to come: the latest one, by the power law of its decline, and if it falls as 1/k^2."""
    centre = np.maximum(k - 2.5, 0.5)
    to_come = np.linspace(np.ones_like(ahead), ahead, 10, axis=1)
    exponent = np.clip(-np.log(np.clip(ratio, 1e-3, 1.5)) / np.log((k + 2.5) / centre), -1.0, 6.0)
    power = slope * (((k[:, None] + to_come) / centre[:, None]) ** -exponent[:, None]).mean(axis=1)
    return slope, power, slope * centre**2 / (k * (k + ahead))


def _fits(losses: Losses, ahead: Floats, unit: Floats) -> tuple[list[Floats], list[Floats]]:
    """Lines through the latest losses, and through their logarithms by iterations and by the logarithms of those.

    Where they lead, as mean changes an iteration in units; their level now and how far the losses are from them.
    """
    y = losses.latest[:, 1:]
    last, reach = y[:, -1], unit * ahead
    age = np.arange(_WINDOW - 1.0, -1.0, -1.0)
    k = losses.length
    since = np.log(np.maximum(k[:, None] - age, 1.0) / k[:, None])
    positive = losses.low > 0
    logs = np.log(np.where(positive[:, None], y / np.where(positive, last, 1.0)[:, None], 1.0))
    laws, about = [], []
    for span in _SPANS:
        counted = np.minimum(span, k)[:, None]
        weight: Floats = (age < counted) / counted
        for by, to in ((-age, ahead), (since, np.log1p(ahead / k))):
            level, slope, off = _line(by, logs, weight)
            growth = np.expm1(np.minimum(level + slope * to, 1.0))
            laws.append(np.clip(np.where(positive, growth * last, 0.0) / reach, -20.0, 20.0))
        if span > 6:
            about += [np.clip(np.expm1(level) * last / reach, -20, 20), np.log(off * np.abs(last) / reach + 1e-6)]
        if span < 60:
            level, slope, _ = _line(-age, y - last[:, None], weight)
            laws.append(np.clip((level + slope * ahead) / reach, -20.0, 20.0))
            about.append(((y - last[:, None]) * weight).sum(axis=1) / reach)
    return laws, about


def _line(x: Floats, y: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Level at x = 0, slope, root mean square distance of y (n, w) from the line, rows on their own."""
    x = np.broadcast_to(x, y.shape)
    x_mean, y_mean = (x * weight).sum(axis=1), (y * weight).sum(axis=1)
    x_off, y_off = x - x_mean[:, None], y - y_mean[:, None]
    square, product = (weight * x_off**2).sum(axis=1), (weight * x_off * y_off).sum(axis=1)
    slope = product / np.where(square > 0, square, 1.0)
    off = np.sqrt((weight * (y_off - slope[:, None] * x_off) ** 2).sum(axis=1))
    return y_mean - slope * x_mean, slope, off
