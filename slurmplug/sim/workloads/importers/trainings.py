"""Measured trainings as jobs: one model at one batch size, as fast as it was measured or as long as a log says.

A job can train on 1 GPU to as many as its batch fills, at most `measured.MOST_GPUS`; NeuMF (`ncf`), which more GPUs do
not speed up, on no more than it requests.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import Speed
from slurmplug.sim.workloads.importers.measured import MOST_GPUS, MeasuredModel

_PARAMS = {"bert": 110e6, "cifar10": 11.2e6, "deepspeech2": 38e6, "imagenet": 25.6e6, "ncf": 31.8e6, "yolov3": 61.9e6}
"""of BERT-base, ResNet-18, DeepSpeech2, ResNet-50, NeuMF and YOLOv3, as they are published"""
_BYTES = 8
"""a ring all-reduce sends each of the gradient's 4-byte numbers about twice"""


@dataclass(frozen=True, eq=False)
class Training:
    """What jobs of one model and batch size share."""

    model: str
    epochs: int
    speed: Speed
    most_gpus: int
    gpus_a_node: int
    losses: Floats
    accuracies: Floats
    traffic: float

    def fields(self, gpus: int) -> dict[str, Any]:
        """Those of a `SimJob` that requests so many GPUs; one with more than were measured is not elastic."""
        elastic = gpus <= MOST_GPUS
        return {
            "kind": self.model,
            "gpus": gpus,
            "iterations": self.epochs,
            "speed": self.speed,
            "gpus_min": 1 if elastic else 0,
            "gpus_max": max(gpus, 1 if self.model == "ncf" else self.most_gpus) if elastic else 0,
            "curve_at": np.arange(1.0, self.epochs + 1),
            "losses": self.losses,
            "accuracies": self.accuracies,
            "params": _PARAMS.get(self.model, math.nan),
            "traffic": self.traffic,
        }

    def fields_lasting(self, gpus: int, seconds: float) -> dict[str, Any]:
        """The same where it takes so long on these GPUs, on as few nodes as hold them: as much as measured, more often.

        Its speed is the measured one times a factor, and the bytes that an iteration sends are divided by it.
        """
        measured = self.speed.at(gpus, math.ceil(gpus / self.gpus_a_node))
        factor = self.epochs / seconds / measured
        speed = Speed(self.speed.gpus, self.speed.nodes, self.speed.rate * factor)
        return {**self.fields(gpus), "speed": speed, "traffic": self.traffic / factor}


class Trainings:
    """The trainings of measured models, each made once."""

    def __init__(self, models: Mapping[str, MeasuredModel]) -> None:
        self.models = models
        self._made: dict[tuple[str, int, int], Training] = {}

    @property
    def gpus_a_node(self) -> int:
        """GPUs of the nodes that they were measured on."""
        return next(iter(self.models.values())).gpus_a_node

    def of(self, name: str, batch: int, gpus: int) -> Training:
        """The training of a job that requests so many GPUs.

        Raises:
            WorkloadError: where the profiles have no time of it
        """
        model = self.models[name]
        most = min(max(batch // model.least_local, gpus), MOST_GPUS)
        key = (name, batch, most)
        if key not in self._made:
            self._made[key] = _training(model, batch, most)
        return self._made[key]

    def filling(self, name: str, gpus: int) -> int:
        """The largest measured batch size that these GPUs hold at once, or the smallest that gives each enough."""
        model = self.models[name]
        sizes = list(model.curves)
        enough = [size for size in sizes if size >= gpus * model.least_local] or sizes[-1:]
        return max((size for size in enough if size <= gpus * model.most_local), default=enough[0])


def _training(model: MeasuredModel, batch: int, most_gpus: int) -> Training:
    losses, accuracies = model.learning(batch)
    traffic = _BYTES * _PARAMS.get(model.name, 0.0) * model.steps_an_epoch(batch)
    speed = model.speed(batch, most_gpus)
    return Training(model.name, model.epochs, speed, most_gpus, model.gpus_a_node, losses, accuracies, traffic)
