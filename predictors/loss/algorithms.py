"""Loss curves of training algorithms on small random problems, simulated to train the network of `LossPredictor`.

Linear models (logistic, hinge, squared loss, the latter with and without momentum) by gradient descent on all points or
on mini-batches, gradient boosting of trees on all points or on samples, Lloyd's k-means, networks of one hidden layer.
The problems are drawn from wide ranges; none was fitted to the curves on which forecasts are evaluated.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from predictors.arrays import Bools, Floats, Ints

_LOGISTIC, _HINGE, _SQUARED, _MOMENTUM = range(4)
_CLUSTERS = (5, 10, 20, 50)
_WEIGHT_BOUND = 1e50


def linear_models(length: int, count: int, random: Generator) -> Floats:
    """Linear models by gradient descent at a rate that is constant or falls as 1/k or 1/sqrt(k), with a ridge penalty.

    Inputs are normal, products of normal ones (as of a polynomial kernel), or one Gaussian cloud for each class. Runs
    that overflow, or end no lower than they began, are drawn again. Returns (count, length) losses.
    """
    kept = np.empty((0, length))
    while len(kept) < count:
        losses = _gradient_descent(length, count - len(kept), random)
        bounded = losses.max(axis=1) < 100.0 * losses[:, 0]
        kept = np.concatenate([kept, losses[bounded & (losses[:, -5:].mean(axis=1) < losses[:, 0])]])
    return kept


def _gradient_descent(length: int, count: int, random: Generator) -> Floats:
    points, inputs = 128, 20
    kind = random.choice(4, count, p=[0.2, 0.35, 0.25, 0.2])
    x = random.standard_normal((count, points, inputs))
    product = x * np.roll(x, 1, axis=2)
    x = np.where(random.random((count, 1, 1)) < 0.35, product - product.mean(axis=1, keepdims=True), x)
    x *= np.arange(1.0, inputs + 1) ** -random.uniform(0.0, 1.5, (count, 1, 1))
    x = x @ np.linalg.qr(random.standard_normal((count, inputs, inputs)))[0]
    x *= np.arange(inputs) < random.integers(4, inputs + 1, (count, 1, 1))
    target = _unit_variance((x @ random.standard_normal((count, inputs, 1)))[:, :, 0])
    classes = np.where(random.random((count, points)) < random.uniform(0.2, 0.8, (count, 1)), 1.0, -1.0)
    clouds = random.random((count, 1)) < 0.3
    centre = random.uniform(0.0, 1.5, (count, 1, 1)) * random.standard_normal((count, 1, inputs)) / np.sqrt(inputs)
    x += np.where(clouds[:, :, None], 3.0 * classes[:, :, None] * centre, 0.0)
    target = np.where(clouds, classes, target)
    x /= np.sqrt((x**2).mean(axis=(1, 2), keepdims=True))
    noise = np.where(random.random((count, 1)) < 0.25, 0.0, _log_uniform(random, 0.03, 8.0, (count, 1)))
    target = _unit_variance(target + noise * random.standard_normal((count, points)))
    sign = np.where(target > random.normal(0.0, 0.3, (count, 1)), 1.0, -1.0)
    squared, hinge = (kind >= _SQUARED)[:, None], (kind == _HINGE)[:, None]

    steepest = np.linalg.norm(x, axis=(1, 2)) ** 2 / points
    rate = _log_uniform(random, 0.01, 1.0, count)
    rate *= np.where(squared[:, 0], 1.5 / steepest, _log_uniform(random, 0.1, 2.0, count))
    typical_momentum = np.where(random.random(count) < 0.7, 0.9, random.uniform(0.5, 0.98, count))
    momentum = np.where(kind == _MOMENTUM, typical_momentum, 0.0)[:, None]
    penalty = _log_uniform(random, 1e-5, 1e-2, (count, 1))
    batch = np.where(random.random(count) < 0.65, points, random.integers(8, points, count))[:, None]
    schedule, decay = random.integers(0, 3, count), _log_uniform(random, 0.003, 0.3, count)

    weight, velocity = np.zeros((count, inputs)), np.zeros((count, inputs))
    losses = np.empty((count, length))
    for k in range(length):
        out = (x @ weight[:, :, None])[:, :, 0]
        margin, residual = sign * out, out - target
        by_margin = np.where(hinge, np.maximum(0.0, 1.0 - margin), np.logaddexp(0.0, -margin))
        each = np.where(squared, residual**2, by_margin)
        losses[:, k] = each.mean(axis=1) + (penalty * weight**2).sum(axis=1) / 2.0
        slope = np.where(squared, residual, -sign * np.where(hinge, margin < 1.0, _sigmoid(-margin)))
        chosen = (random.random((count, points)).argsort(axis=1) < batch) / batch
        gradient = ((slope * chosen)[:, None, :] @ x)[:, 0] + penalty * weight
        step_size = rate / np.choose(schedule, [np.ones(count), 1.0 + decay * k, np.sqrt(1.0 + 10.0 * decay * k)])
        velocity = momentum * velocity - step_size[:, None] * gradient
        weight = np.clip(weight + velocity, -_WEIGHT_BOUND, _WEIGHT_BOUND)
    return losses


def boosting(length: int, count: int, random: Generator) -> Floats:
    """Gradient boosting (Friedman 2001) of trees of depth 1 to 6 on squared or logistic loss, on all points or samples.

    Trees are grown greedily; leaves of the logistic loss make a Newton step. Returns (count, length) losses on the
    sample of each round.
    """
    share = -(-count // 6)
    return np.concatenate([_gradient_boosting(length, share, depth, random) for depth in range(1, 7)])[:count]


def _gradient_boosting(length: int, count: int, depth: int, random: Generator) -> Floats:
    points, inputs, cuts = 144, 8, 48
    x = random.standard_normal((count, points, inputs))
    feature = random.integers(0, inputs, (count, 1, cuts))
    right = np.take_along_axis(x, feature, axis=2) > random.standard_normal((count, 1, cuts))
    sides = np.concatenate([right, np.ones((count, points, 1))], axis=2).astype(np.float32)
    waves = np.sin(x * random.uniform(0.3, 2.0, (count, 1, inputs))) @ random.standard_normal((count, inputs, 1))
    target = _unit_variance(waves[:, :, 0]) + random.uniform(0.0, 1.0, (count, 1)) * x[:, :, 0] * x[:, :, 1]
    noise = _log_uniform(random, 0.02, 2.0, (count, 1)) * random.standard_normal((count, points))
    target = _unit_variance(_unit_variance(target) + noise)
    logistic = (np.arange(count) % 2 == 1)[:, None]
    target = np.where(
        logistic, target > random.normal(0.0, 0.4, (count, 1)), target - target.mean(axis=1, keepdims=True)
    )
    rate = _log_uniform(random, 0.02, 0.5, (count, 1))
    present = np.arange(points) < random.integers(60, points + 1, (count, 1))
    share = np.where(random.random((count, 1)) < 0.5, 1.0, random.uniform(0.5, 0.9, (count, 1)))
    tried_share = random.choice([1.0, 0.3, 0.6], (count, 1, 1))

    row, column = np.arange(count)[:, None], np.arange(points)
    score, losses = np.zeros((count, points)), np.empty((count, length))
    for k in range(length):
        sample = present & (random.random((count, points)) < share)
        sample[:, 0] = True
        chance = _sigmoid(score)
        residual = target - np.where(logistic, chance, score)
        leaf = np.zeros((count, points), dtype=np.int64)
        for level in range(depth):
            member = (leaf[:, None, :] == np.arange(2**level)[:, None]) & sample[:, None, :]
            sums = np.concatenate([member * residual[:, None, :], member], axis=1).astype(np.float32) @ sides
            best = _best_cuts(sums, random.random((count, 2**level, cuts)) < tried_share)
            leaf = 2 * leaf + right[row, column, best[row, leaf]]
        cell = (row * 2**depth + leaf)[sample]
        curvature = np.where(logistic, chance * (1.0 - chance), 1.0)
        gradient, hessian = (np.bincount(cell, of[sample], count * 2**depth) for of in (residual, curvature))
        step = np.clip(gradient / np.maximum(hessian, 1e-9), -8.0, 8.0).reshape(count, -1)
        score = score + rate * step[row, leaf]
        each = np.where(logistic, np.logaddexp(0.0, score) - target * score, (target - score) ** 2)
        losses[:, k] = (each * sample).sum(axis=1) / sample.sum(axis=1)
    return losses


def _best_cuts(sums: NDArray[np.float32], allowed: Bools) -> Ints:
    """(n, leaves) index of the cut that lowers the squared error of each leaf most.

    sums: (n, 2 * leaves, cuts + 1) for each leaf the sum of the residuals of its points right of each cut, and of all
    its points; then the counts of the same.
    """
    leaves = sums.shape[1] // 2
    residuals, counts = sums[:, :leaves], sums[:, leaves:]
    right, right_count = residuals[:, :, :-1], counts[:, :, :-1]
    left, left_count = residuals[:, :, -1:] - right, counts[:, :, -1:] - right_count
    gain = right**2 / np.maximum(right_count, 1.0) + left**2 / np.maximum(left_count, 1.0)
    return np.asarray(np.where((right_count > 0) & (left_count > 0) & allowed, gain, -1.0).argmax(axis=2))


def clustering(length: int, count: int, random: Generator) -> Floats:
    """k-means by Lloyd's algorithm. Returns (count, length) losses, constant after convergence."""
    return np.stack([_lloyd(length, random) for _ in range(count)])


def _lloyd(length: int, random: Generator) -> Floats:
    """(length,) mean squared distance to the nearest centre; centres start at points, points lie about a few
    sources."""
    points, inputs, clusters = 400, int(random.integers(2, 17)), int(random.choice(_CLUSTERS))
    sources = random.uniform(0.0, 3.0) * random.standard_normal((int(random.integers(2, 30)), inputs))
    x = random.standard_normal((points, inputs)) * np.arange(1.0, inputs + 1) ** -random.uniform(0.0, 1.0)
    x += sources[random.integers(0, len(sources), points)]
    centres = x[random.permutation(points)[:clusters]]
    losses = np.empty(length)
    for k in range(length):
        distance = (x**2).sum(axis=1)[:, None] - 2.0 * x @ centres.T + (centres**2).sum(axis=1)
        assignment = distance.argmin(axis=1)[:, None] == np.arange(clusters)
        losses[k:] = distance.min(axis=1).mean()
        if k and losses[k] >= losses[k - 1] * (1.0 - 1e-12):
            break
        centres = np.where(
            assignment.any(axis=0)[:, None], assignment.T @ x / np.maximum(assignment.sum(axis=0), 1)[:, None], centres
        )
    return losses


def networks(length: int, count: int, random: Generator) -> Floats:
    """Softmax classification with one hidden layer, by Adam or momentum on three mini-batches an epoch.

    The learning rate is constant, dropped once, or annealed. Returns (count, length) mean losses of the epochs.
    """
    points, inputs, hidden, classes, batches = 96, 10, 16, 4, 3
    x = random.standard_normal((count, points, inputs))
    teacher = np.tanh(x @ random.standard_normal((count, inputs, hidden)) / 2.0)
    teacher = teacher @ random.standard_normal((count, hidden, classes))
    teacher += _log_uniform(random, 0.05, 2.0, (count, 1, 1)) * random.standard_normal(teacher.shape)
    label = np.eye(classes)[teacher.argmax(axis=2)]
    weights = [
        random.standard_normal((count, inputs, hidden)) / np.sqrt(inputs), np.zeros((count, 1, hidden)),
        random.standard_normal((count, hidden, classes)) / (2.0 * np.sqrt(hidden)), np.zeros((count, 1, classes)),
    ]  # fmt: skip
    mean, square = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    adam = random.random((count, 1, 1)) < 0.5
    rate = np.where(
        adam, _log_uniform(random, 3e-4, 3e-2, (count, 1, 1)), _log_uniform(random, 2e-3, 0.15, (count, 1, 1))
    )
    schedule = random.choice(3, (count, 1, 1), p=[0.65, 0.2, 0.15])
    dropped = length * random.uniform(0.2, 0.8, (count, 1, 1))

    losses = np.zeros((count, length))
    for k in range(length):
        annealed = 0.5 * (1.0 + np.cos(np.pi * k / length))
        factor = np.where(schedule == 1, np.where(k < dropped, 1.0, 0.1), np.where(schedule == 2, annealed, 1.0))
        step_size = rate * factor
        for rows in random.permutation(points).reshape(batches, -1):
            loss, gradients = _loss_and_gradients(x[:, rows], label[:, rows], weights)
            losses[:, k] += loss / batches
            for i, gradient in enumerate(gradients):
                mean[i] = 0.9 * mean[i] + np.where(adam, 0.1, 1.0) * gradient
                square[i] = 0.99 * square[i] + 0.01 * gradient**2
                weights[i] = weights[i] - step_size * mean[i] / np.where(adam, np.sqrt(square[i]) + 1e-8, 1.0)
    return losses


def _loss_and_gradients(x: Floats, label: Floats, weights: list[Floats]) -> tuple[Floats, tuple[Floats, ...]]:
    """(count,) mean cross entropy of each network, and its gradients by the weights."""
    active = np.maximum(x @ weights[0] + weights[1], 0.0)
    out = active @ weights[2] + weights[3]
    share = np.exp(out - out.max(axis=2, keepdims=True))
    share /= share.sum(axis=2, keepdims=True)
    loss = -np.log(np.maximum((share * label).sum(axis=2), 1e-12)).mean(axis=1)
    residual = (share - label) / x.shape[1]
    back = (residual @ weights[2].transpose(0, 2, 1)) * (active > 0)
    return loss, (
        x.transpose(0, 2, 1) @ back, back.sum(axis=1, keepdims=True),
        active.transpose(0, 2, 1) @ residual, residual.sum(axis=1, keepdims=True),
    )  # fmt: skip


def _unit_variance(values: Floats) -> Floats:
    return np.asarray(values / values.std(axis=1, keepdims=True))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(x, -50.0, 50.0))))


def _log_uniform(random: Generator, low: float, high: float, shape: int | tuple[int, ...]) -> Floats:
    """Draws whose logarithms are uniform."""
    return np.exp(random.uniform(np.log(low), np.log(high), shape))
