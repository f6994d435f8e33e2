"""Losses of the algorithms themselves, on small random problems: what `predictors.loss` believes before it saw any.

Linear models (logistic, hinge, squared loss, the latter with and without momentum) by gradient descent on all points or
on mini-batches, gradient boosting of trees on all points or on samples, Lloyd's k-means, networks of one hidden layer.
The problems are drawn wide; nothing about them was fitted to curves on which the forecasts are measured.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from predictors.arrays import Bools, Floats

_LOGISTIC, _HINGE, _SQUARED, _MOMENTUM = range(4)
_CLUSTERS = (5, 10, 20, 50)


def simulated_losses(length: int, count: int, random: Generator) -> Floats:
    """About (count, length) losses by iteration, round or epoch."""
    parts = ((linear_models, 0.45), (boosting, 0.2), (clustering, 0.15), (networks, 0.2))
    return np.concatenate([algorithm(length, round(share * count), random) for algorithm, share in parts])


def linear_models(length: int, count: int, random: Generator) -> Floats:
    """Gradient descent at a constant rate or one that falls as 1/k or its root, ridge penalty included in the loss."""
    points, inputs = 96, 12
    kind = np.arange(count) % 4
    x = random.standard_normal((count, points, inputs))
    x *= np.arange(1.0, inputs + 1) ** -random.uniform(0.0, 1.5, (count, 1, 1))
    x = x @ np.linalg.qr(random.standard_normal((count, inputs, inputs)))[0]
    x /= np.sqrt((x**2).mean(axis=(1, 2), keepdims=True))
    target = _standard((x @ random.standard_normal((count, inputs, 1)))[:, :, 0])
    target = _standard(target + _between(random, 0.03, 2.0, (count, 1)) * random.standard_normal((count, points)))
    sign = np.where(target > 0, 1.0, -1.0)
    squared, hinge = (kind >= _SQUARED)[:, None], (kind == _HINGE)[:, None]

    steepest = np.linalg.norm(x, axis=(1, 2)) ** 2 / points
    rate = _between(random, 0.02, 1.0, count)
    rate *= np.where(squared[:, 0], 1.5 / steepest, _between(random, 0.1, 2.0, count))
    rate[kind == _MOMENTUM] *= 0.3
    momentum = np.where(kind == _MOMENTUM, 0.9, 0.0)[:, None]
    penalty = _between(random, 1e-5, 1e-2, (count, 1))
    batch = np.where(random.random(count) < 0.6, points, random.integers(8, points, count))[:, None]
    slowing = random.integers(0, 3, count)

    weight, moved = np.zeros((count, inputs)), np.zeros((count, inputs))
    losses = np.empty((count, length))
    for k in range(length):
        out = (x @ weight[:, :, None])[:, :, 0]
        margin, off = sign * out, out - target
        each = np.where(squared, off**2, np.where(hinge, np.maximum(0.0, 1.0 - margin), np.logaddexp(0.0, -margin)))
        losses[:, k] = each.mean(axis=1) + (penalty * weight**2).sum(axis=1) / 2.0
        slope = np.where(squared, off, -sign * np.where(hinge, margin < 1.0, _sigmoid(-margin)))
        chosen = (random.random((count, points)).argsort(axis=1) < batch) / batch
        gradient = ((slope * chosen)[:, None, :] @ x)[:, 0] + penalty * weight
        pace = rate / np.choose(slowing, [1.0, 1.0 + 0.05 * k, np.sqrt(1.0 + k)])
        moved = momentum * moved - pace[:, None] * gradient
        weight = weight + moved
    return losses


def boosting(length: int, count: int, random: Generator) -> Floats:
    """Each round fits up to six stumps one after the other, as a tree would split, to what is left of its sample."""
    points, inputs, stumps = 100, 6, 80
    x = random.standard_normal((count, points, inputs))
    feature = random.integers(0, inputs, (count, 1, stumps))
    stump = np.sign(np.take_along_axis(x, feature, axis=2) - random.standard_normal((count, 1, stumps)))
    target = np.sin(x * random.uniform(0.5, 2.0, (count, 1, inputs))) @ random.standard_normal((count, inputs, 1))
    noise = _between(random, 0.05, 1.0, (count, 1)) * random.standard_normal((count, points))
    target = _standard(_standard(target[:, :, 0]) + noise)
    logistic = (np.arange(count) % 2 == 1)[:, None]
    target = np.where(logistic, target > 0, target)
    rate = _between(random, 0.02, 0.5, (count, 1)) * np.where(logistic, 4.0, 1.0)
    splits = random.integers(1, 7, (count, 1))
    share = np.where(random.random((count, 1)) < 0.5, 1.0, random.uniform(0.5, 0.9, (count, 1)))

    score, losses = np.zeros((count, points)), np.empty((count, length))
    for k in range(length):
        sample = _sample(share, points, random)
        left = target - np.where(logistic, _sigmoid(score), score)
        for split in range(6):
            left = np.where(sample, left, 0.0)
            gain = (left[:, None, :] @ stump)[:, 0] / sample.sum(axis=1, keepdims=True)
            best = np.abs(gain).argmax(axis=1)[:, None]
            part = np.take_along_axis(gain, best, axis=1) * np.take_along_axis(stump, best[:, None], axis=2)[:, :, 0]
            part = np.where(split < splits, part, 0.0)
            left, score = left - part, score + rate * part
        each = np.where(logistic, np.logaddexp(0.0, score) - target * score, (target - score) ** 2)
        losses[:, k] = np.where(sample, each, 0.0).sum(axis=1) / sample.sum(axis=1)
    return losses


def clustering(length: int, count: int, random: Generator) -> Floats:
    return np.stack([_lloyd(length, random) for _ in range(count)])


def _lloyd(length: int, random: Generator) -> Floats:
    """Mean squared distance to the nearest centre; centres start at points, points lie about a few places."""
    points, inputs, clusters = 400, int(random.integers(2, 17)), int(random.choice(_CLUSTERS))
    places = random.uniform(0.0, 3.0) * random.standard_normal((int(random.integers(2, 30)), inputs))
    x = random.standard_normal((points, inputs)) * np.arange(1.0, inputs + 1) ** -random.uniform(0.0, 1.0)
    x += places[random.integers(0, len(places), points)]
    centres = x[random.permutation(points)[:clusters]]
    losses = np.empty(length)
    for k in range(length):
        distance = (x**2).sum(axis=1)[:, None] - 2.0 * x @ centres.T + (centres**2).sum(axis=1)
        belongs = distance.argmin(axis=1)[:, None] == np.arange(clusters)
        losses[k:] = distance.min(axis=1).mean()
        if k and losses[k] >= losses[k - 1] * (1.0 - 1e-12):
            break
        centres = np.where(
            belongs.any(axis=0)[:, None], belongs.T @ x / np.maximum(belongs.sum(axis=0), 1)[:, None], centres
        )
    return losses


def networks(length: int, count: int, random: Generator) -> Floats:
    """Softmax classification by Adam or momentum, three mini-batches an epoch, the rate constant, dropped, annealed."""
    points, inputs, hidden, classes, batches = 96, 10, 16, 4, 3
    x = random.standard_normal((count, points, inputs))
    teacher = np.tanh(x @ random.standard_normal((count, inputs, hidden)) / 2.0)
    teacher = teacher @ random.standard_normal((count, hidden, classes))
    teacher += _between(random, 0.05, 2.0, (count, 1, 1)) * random.standard_normal(teacher.shape)
    label = np.eye(classes)[teacher.argmax(axis=2)]
    weights = [
        random.standard_normal((count, inputs, hidden)) / np.sqrt(inputs), np.zeros((count, 1, hidden)),
        random.standard_normal((count, hidden, classes)) / (2.0 * np.sqrt(hidden)), np.zeros((count, 1, classes)),
    ]  # fmt: skip
    mean, square = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    adam = random.random((count, 1, 1)) < 0.5
    rate = np.where(adam, _between(random, 3e-4, 3e-2, (count, 1, 1)), _between(random, 2e-3, 0.15, (count, 1, 1)))
    schedule = random.choice(3, (count, 1, 1), p=[0.65, 0.2, 0.15])
    dropped = length * random.uniform(0.2, 0.8, (count, 1, 1))

    losses = np.zeros((count, length))
    for k in range(length):
        annealed = 0.5 * (1.0 + np.cos(np.pi * k / length))
        pace = rate * np.where(schedule == 1, np.where(k < dropped, 1.0, 0.1), np.where(schedule == 2, annealed, 1.0))
        for rows in random.permutation(points).reshape(batches, -1):
            loss, gradients = _backward(x[:, rows], label[:, rows], weights)
            losses[:, k] += loss / batches
            for i, gradient in enumerate(gradients):
                mean[i] = 0.9 * mean[i] + np.where(adam, 0.1, 1.0) * gradient
                square[i] = 0.99 * square[i] + 0.01 * gradient**2
                weights[i] = weights[i] - pace * mean[i] / np.where(adam, np.sqrt(square[i]) + 1e-8, 1.0)
    return losses


def _backward(x: Floats, label: Floats, weights: list[Floats]) -> tuple[Floats, tuple[Floats, ...]]:
    """Mean cross entropy of each network, and its gradients."""
    active = np.maximum(x @ weights[0] + weights[1], 0.0)
    out = active @ weights[2] + weights[3]
    share = np.exp(out - out.max(axis=2, keepdims=True))
    share /= share.sum(axis=2, keepdims=True)
    loss = -np.log(np.maximum((share * label).sum(axis=2), 1e-12)).mean(axis=1)
    off = (share - label) / x.shape[1]
    back = (off @ weights[2].transpose(0, 2, 1)) * (active > 0)
    return loss, (
        x.transpose(0, 2, 1) @ back, back.sum(axis=1, keepdims=True),
        active.transpose(0, 2, 1) @ off, off.sum(axis=1, keepdims=True),
    )  # fmt: skip


def _sample(share: Floats, points: int, random: Generator) -> Bools:
    sample = random.random((len(share), points)) < share
    sample[:, 0] = True
    return sample


def _standard(values: Floats) -> Floats:
    return np.asarray(values / values.std(axis=1, keepdims=True))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -50.0, 50.0))))


def _between(random: Generator, low: float, high: float, shape: int | tuple[int, ...]) -> Floats:
    """Evenly spread over the logarithms."""
    return np.exp(random.uniform(np.log(low), np.log(high), shape))
