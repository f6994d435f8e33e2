"""The workloads of Pollux (Qiao et al., OSDI 2021) and Sia: `time,name,application,num_replicas,batch_size`.

An iteration is an epoch. Each job runs at its own batch size, on its `num_replicas` GPUs or, where the policy resizes,
on as many as the batch fills. Times come from the measured profiles; see `measured`.
"""

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.workloads.directives import with_directives
from slurmplug.sim.workloads.importers import measured
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, collect, comma_separated

RESTART = 30.0
"""seconds, at the first start too (Pollux, section 5.3)"""
NODES = 16
_PARAMS = {"bert": 110e6, "cifar10": 11.2e6, "deepspeech2": 38e6, "imagenet": 25.6e6, "ncf": 31.8e6, "yolov3": 61.9e6}
"""of BERT-base, ResNet-18, DeepSpeech2, ResNet-50, NeuMF and YOLOv3, as they are published"""
_BYTES = 8
"""a ring all-reduce sends each of the gradient's 4-byte numbers about twice"""


@dataclass(frozen=True, eq=False)
class _Training:
    """What jobs of one model and batch size share."""

    epochs: int
    speed: Speed
    most_gpus: int
    losses: Floats
    accuracies: Floats
    traffic: float


def workload(request: WorkloadRequest) -> Workload:
    """`?gpu=` names the type of GPU in the profiles, `aws` (Pollux's T4) by default.

    Raises:
        WorkloadError
    """
    gpu_type = request.options.text("gpu", "aws")
    models = measured.models(measured.folder(request.data, request.path), gpu_type)
    trainings: dict[tuple[str, int, int], _Training] = {}

    def job(row: Row) -> SimJob:
        name, batch = row.text("application", longest=64), row.integer("batch_size", least=1, most=10**7)
        gpus = row.integer("num_replicas", least=1, most=measured.MOST_GPUS)
        if name not in models:
            raise row.bad("application", f"{name} is not in the profiles: they have {', '.join(sorted(models))}")
        model = models[name]
        most = min(max(batch // model.least_local, gpus), measured.MOST_GPUS)
        key = (name, batch, most)
        if key not in trainings:
            trainings[key] = _training(model, batch, most)
        training = trainings[key]
        return SimJob(
            name=row.text("name"),
            submit=row.number("time", most=1e10),
            gpus=gpus,
            iterations=training.epochs,
            speed=training.speed,
            kind=name,
            gpus_min=1,
            gpus_max=max(gpus, 1 if name == "ncf" else training.most_gpus),
            curve_at=np.arange(1.0, training.epochs + 1),
            losses=training.losses,
            accuracies=training.accuracies,
            params=_PARAMS.get(name, float("nan")),
            traffic=training.traffic,
            restart=RESTART,
            startup=RESTART,
        )

    rows = comma_separated(request.path, ("time", "name", "application", "num_replicas", "batch_size"))
    jobs, skipped = collect(rows, job, skip_bad=request.skip_bad)
    a_node = next(iter(models.values())).gpus_a_node
    jobs.sort(key=lambda each: each.submit)
    return Workload(str(request.path), with_directives(jobs, request.seed, gpus_a_node=a_node), NODES, a_node, skipped)


def _training(model: measured.MeasuredModel, batch: int, most_gpus: int) -> _Training:
    losses, accuracies = model.learning(batch)
    traffic = _BYTES * _PARAMS.get(model.name, 0.0) * model.steps_an_epoch(batch)
    return _Training(model.epochs, model.speed(batch, most_gpus), most_gpus, losses, accuracies, traffic)
