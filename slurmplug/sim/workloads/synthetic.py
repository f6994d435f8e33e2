"""Training that was never measured: learning curves and speeds of plausible shapes, drawn by seed.

Curves come from the eleven families that the learning-curve predictor also knows (Domhan, Springenberg, Hutter, IJCAI
2015), with noise that none of them has; speeds from computation that is shared out, synchronisation within and between
nodes, and a deviation of each point of its own, so that no formula fits them exactly.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import Speed
from slurmplug.sim.workloads.load import WorkloadRequest

MEASURED_GPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MOST_NODES = 64
_DEVIATION = 0.04
"""standard deviation of the logarithm of a point of a speed"""
_SPREAD = 0.5
"""the same of each of a model's shares, where shapes are drawn by seed"""
_LIBRARY = 256
_POINTS = 60
"""at most so many points describe a curve that is shared"""


@dataclass(frozen=True)
class SyntheticModel:
    """How a kind of training behaves: shares of its time on one GPU.

    `serial` is not shared out; `inner` is synchronisation for each further GPU of a node, `outer` each further node.
    """

    name: str
    params: float
    serial: float
    inner: float
    outer: float


MODELS: Mapping[str, SyntheticModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            SyntheticModel("alexnet", 61e6, 0.02, 0.010, 0.060),
            SyntheticModel("resnet50", 25.6e6, 0.01, 0.003, 0.012),
            SyntheticModel("mlp", 5e6, 0.06, 0.006, 0.030),
            SyntheticModel("lstm", 20e6, 0.04, 0.008, 0.040),
            SyntheticModel("svm", 1e5, 0.08, 0.004, 0.010),
            SyntheticModel("vgg16", 138e6, 0.02, 0.014, 0.090),
            SyntheticModel("inception4", 43e6, 0.01, 0.004, 0.016),
            SyntheticModel("transformer", 110e6, 0.02, 0.007, 0.045),
        )
    }
)


def shapes_drawn_by(request: WorkloadRequest) -> int | None:
    """The option `shapes`: `fixed`, or `drawn`, by the workload's seed.

    Raises:
        WorkloadError
    """
    return request.seed if request.options.text("shapes", "fixed", ("fixed", "drawn")) == "drawn" else None


@lru_cache(maxsize=64)
def shape(name: str, gpus_a_node: int = 4, drawn_by: int | None = None) -> Speed:
    """The rate of a model on so many GPUs and nodes, 1 on one GPU; the same at every call, but for other seeds that it
    is drawn by."""
    model, rng = MODELS[name], np.random.default_rng([*name.encode()])
    if drawn_by is not None:
        rng = np.random.default_rng([*name.encode(), drawn_by])
        serial, inner, outer = np.exp(_SPREAD * rng.standard_normal(3)) * (model.serial, model.inner, model.outer)
        model = replace(model, serial=float(serial), inner=float(inner), outer=float(outer))
    places = [
        (gpus, nodes)
        for gpus in MEASURED_GPUS
        for nodes in sorted({math.ceil(gpus / gpus_a_node), min(gpus, 2 * math.ceil(gpus / gpus_a_node)), gpus})
        if nodes <= MOST_NODES
    ]
    gpus, nodes = np.array(places, dtype=np.int64).T
    in_node = np.ceil(gpus / nodes)
    crowded = 1 + 0.01 * (in_node - 1) ** 1.3
    seconds = model.serial + (1 - model.serial) * crowded / gpus
    seconds += model.inner * np.log2(in_node) + model.outer * np.log2(nodes) * (1 + 0.15 * (in_node - 1))
    seconds *= np.exp(_DEVIATION * rng.standard_normal(len(gpus)) * (gpus > 1))
    return Speed(gpus, nodes, 1 / seconds)


def lasting(
    name: str, gpus: int, iterations: int, seconds: float, gpus_a_node: int = 4, *, drawn_by: int | None = None
) -> Speed:
    """The speed of a model of which `iterations` take `seconds` on `gpus` GPUs on as few nodes as hold them; drawn_by:
    as of `shape`."""
    relative, requested = shape(name, gpus_a_node, drawn_by), _requested_speed(name, gpus, gpus_a_node, drawn_by)
    return Speed(relative.gpus, relative.nodes, relative.rate * (iterations / seconds / requested))


@lru_cache(maxsize=4096)
def _requested_speed(name: str, gpus: int, gpus_a_node: int, drawn_by: int | None) -> float:
    """The relative speed on these GPUs, on as few nodes as hold them."""
    return shape(name, gpus_a_node, drawn_by).at(gpus, math.ceil(gpus / gpus_a_node))


def learning(rng: np.random.Generator, points: int) -> tuple[Floats, Floats]:
    """Losses and accuracies (points,) of a training, at equal steps from its first iteration to its last.

    Accuracy rises from 0.05..0.5 to 0.55..0.99, the loss falls as a power of what is missing.
    """
    family = _FAMILIES[rng.integers(len(_FAMILIES))]
    x = np.linspace(1.0, rng.uniform(20, 150), points) if points > 1 else np.ones(1)
    curve = family(x, rng)
    span = curve[-1] - curve[0]
    risen = np.clip((curve - curve[0]) / span, 0, None) if span > 0 else np.ones(points)
    low, high = rng.uniform(0.05, 0.5), rng.uniform(0.55, 0.99)
    noise = rng.uniform(0.001, 0.012) * rng.standard_normal(points) * (0.3 + 0.7 / np.sqrt(x))
    accuracies = np.clip(low + (high - low) * risen + noise, 0.0, 1.0)
    first, floor = rng.uniform(0.7, 4.0), rng.uniform(0.0, 0.3)
    missing = np.clip(1 - 0.97 * risen, 0.0, 1.0) ** rng.uniform(0.8, 1.6)
    losses = first * (floor + (1 - floor) * missing) * np.exp(rng.uniform(0.001, 0.01) * rng.standard_normal(points))
    return losses, accuracies


@lru_cache(maxsize=8)
def library(points: int) -> tuple[tuple[Floats, Floats], ...]:
    """Curves for workloads of so many jobs that each cannot have one of its own."""
    rng = np.random.default_rng([0x637572, points])
    return tuple(learning(rng, points) for _ in range(_LIBRARY))


def sampled(iterations: int) -> Floats:
    """The iterations at which a curve is given: all of them, or as many as describe it, the first and last included."""
    if iterations <= _POINTS:
        return np.arange(1.0, iterations + 1)
    return np.unique(np.rint(np.linspace(1, iterations, _POINTS)))


Family = Callable[[Floats, np.random.Generator], Floats]


def _vapour(x: Floats, rng: np.random.Generator) -> Floats:
    return np.exp(-rng.uniform(0.5, 3) / x + rng.uniform(0.0, 0.03) * np.log(x))


def _pow3(x: Floats, rng: np.random.Generator) -> Floats:
    return -np.power(x, -rng.uniform(0.4, 1.5))


def _pow4(x: Floats, rng: np.random.Generator) -> Floats:
    return -((rng.uniform(0.2, 1) * x + rng.uniform(0, 3)) ** -rng.uniform(0.5, 1.5))


def _log_log(x: Floats, rng: np.random.Generator) -> Floats:
    return np.log(rng.uniform(0.5, 2) * np.log(x) + rng.uniform(0.3, 1.5))


def _hill3(x: Floats, rng: np.random.Generator) -> Floats:
    power = rng.uniform(0.8, 2.5)
    return 1 / (1 + np.power(rng.uniform(2, 12) / x, power))


def _log_power(x: Floats, rng: np.random.Generator) -> Floats:
    return 1 / (1 + (x / rng.uniform(2, 12)) ** -rng.uniform(0.8, 2.0))


def _mmf(x: Floats, rng: np.random.Generator) -> Floats:
    return -1 / (1 + (rng.uniform(0.05, 0.4) * x) ** rng.uniform(0.8, 2.0))


def _exp4(x: Floats, rng: np.random.Generator) -> Floats:
    return -np.exp(-rng.uniform(0.1, 0.6) * x ** rng.uniform(0.5, 0.9))


def _ilog2(x: Floats, rng: np.random.Generator) -> Floats:
    return -1 / np.log(x + rng.uniform(0.5, 2))


def _janoschek(x: Floats, rng: np.random.Generator) -> Floats:
    return -np.exp(-rng.uniform(0.03, 0.3) * x ** rng.uniform(0.7, 1.1))


def _weibull(x: Floats, rng: np.random.Generator) -> Floats:
    return -np.exp(-((rng.uniform(0.03, 0.3) * x) ** rng.uniform(0.6, 1.3)))


_FAMILIES: tuple[Family, ...] = (
    _vapour, _pow3, _pow4, _log_log, _hill3, _log_power, _mmf, _exp4, _ilog2, _janoschek, _weibull,
)  # fmt: skip
