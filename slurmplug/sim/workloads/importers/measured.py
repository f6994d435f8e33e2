"""Training as it was measured for Pollux and Sia: step times by placement, validation curves by batch size.

The columns are those of `throughput_placements.csv`, `throughput_scalability.csv` and `validation_curves.csv`. How a
batch becomes steps is what Qiao et al. (Pollux, OSDI 2021) describe: a batch that a GPU cannot hold is gathered over
several passes without synchronisation (section 2.1), and an epoch is a fixed amount of progress, steps times their
statistical efficiency (section 3.1).
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import QhullError

from predictors.arrays import Floats, Ints
from slurmplug.sim.engine.job import Speed
from slurmplug.sim.workloads.rows import WorkloadError, comma_separated

PLACEMENTS, SCALABILITY, CURVES = "throughput_placements.csv", "throughput_scalability.csv", "validation_curves.csv"
MOST_GPUS = 64
MOST_NODES = 16
"""where the measurements end"""
_METRIC = {"bert": "percent", "deepspeech2": "percent wrong", "yolov3": "loss"}
"""what a model's validation metric is; of the others the share of right answers"""


@dataclass(frozen=True)
class StepTimes:
    """Step and synchronisation times (k, 2) in seconds, by the number of samples that a GPU takes at once (k,)."""

    nodes: int
    gpus: int
    local: Floats
    seconds: Floats


@dataclass(frozen=True)
class ValidationCurve:
    """Training at one batch size, a value an epoch (e,)."""

    progress: Floats
    metric: Floats
    grad_sqr: Floats
    grad_var: Floats


@dataclass(frozen=True, eq=False)
class MeasuredModel:
    """One model as it was measured on one kind of GPU; its curves by batch size, in order."""

    name: str
    placed: tuple[StepTimes, ...]
    scaled: Floats
    """(k, 5): nodes, GPUs, samples a GPU at once, step and synchronisation seconds"""
    curves: Mapping[int, ValidationCurve]
    gpus_a_node: int

    @property
    def epochs(self) -> int:
        """The number of epochs that every curve has."""
        return min(len(curve.progress) for curve in self.curves.values())

    @cached_property
    def least_local(self) -> int:
        """The fewest samples that a GPU was measured with."""
        return int(min(each.local.min() for each in self.placed))

    @cached_property
    def most_local(self) -> int:
        """The most samples that a GPU holds at once."""
        return 8 if self.name == "yolov3" else int(max(each.local.max() for each in self.placed))

    def speed(self, batch: int, most_gpus: int) -> Speed:
        """Epochs a second with this batch size on 1 to `most_gpus` GPUs, however many nodes hold them.

        Raises:
            WorkloadError: where the profiles have none
        """
        shapes = [
            (gpus, nodes)
            for gpus in range(1, min(most_gpus, MOST_GPUS) + 1)
            for nodes in range(math.ceil(gpus / self.gpus_a_node), min(gpus, MOST_NODES) + 1)
        ]
        gpus, nodes = np.array(shapes, dtype=np.int64).T
        passes = {each: self._passes(batch, each) for each in set(gpus.tolist())}
        local = np.array([passes[each][0] for each in gpus.tolist()])
        gathered = np.array([passes[each][1] for each in gpus.tolist()])
        work = {each: self._steps(each * size * (extra + 1)) for each, (size, extra) in passes.items()}
        steps = np.array([work[each] for each in gpus.tolist()])
        step, sync = self._step_seconds(nodes, gpus, local)
        seconds = steps * (step + gathered * (step - sync))
        known = np.isfinite(seconds) & (seconds > 0)
        if not known.any():
            raise WorkloadError(f"the profiles of {self.name} have no step time for a batch of {batch}")
        return Speed(gpus[known], nodes[known], self.epochs / seconds[known])

    def steps_an_epoch(self, batch: int) -> float:
        """The mean number of steps in an epoch with this batch size."""
        return self._steps(batch) / self.epochs

    def learning(self, batch: int) -> tuple[Floats, Floats]:
        """Losses and accuracies (epochs,) at a batch size, linear between those measured.

        Where only accuracy was measured, the loss is the share of wrong answers. Where only a loss was, the accuracy is
        the least one that any batch size came to, over the loss.
        """
        low, high, weight = self._around(batch)
        mixed = (1 - weight) * low.metric + weight * high.metric
        metric = mixed[: self.epochs]
        kind = _METRIC.get(self.name, "share")
        if kind == "loss":
            return metric, min(float(each.metric.min()) for each in self.curves.values()) / metric
        right = {"percent": metric / 100, "percent wrong": 1 - metric / 100}.get(kind, metric)
        return 1 - right, right

    def _passes(self, batch: int, gpus: int) -> tuple[int, int]:
        """Samples that a GPU takes at once, and passes that are gathered before the one that synchronises."""
        sizes = list(self.curves)
        share = math.ceil(batch / gpus - 1e-8)
        gathered = math.ceil(share / self.most_local - 1e-8) - 1
        if gpus == 1 and batch > sizes[0]:
            gathered = max(gathered, 1)  # the noise scale cannot be measured from one gradient
        local = math.ceil(share / (gathered + 1) - 1e-8)
        return min(local, sizes[-1] // (gpus * (gathered + 1))), gathered

    def _steps(self, batch: int) -> float:
        """Steps of the whole training, each worth its statistical efficiency (equation 7) times its samples."""
        low, high, weight = self._around(batch)
        n = self.epochs
        first = next(iter(self.curves))
        sqr = ((1 - weight) * low.grad_sqr[:n]) + weight * high.grad_sqr[:n]
        var = ((1 - weight) * low.grad_var[:n]) + weight * high.grad_var[:n]
        gain = (var + sqr) / (var / (max(batch, first) / first) + sqr)
        progress = np.min([curve.progress[:n] for curve in self.curves.values()], axis=0)
        return float((np.diff(progress, prepend=0.0) / gain).sum())

    def _around(self, batch: int) -> tuple[ValidationCurve, ValidationCurve, float]:
        """The curves of the batch sizes next below and above, and the weight of the latter."""
        sizes = list(self.curves)
        at = min(max(batch, sizes[0]), sizes[-1])
        low = max(size for size in sizes if size <= at)
        high = min(size for size in sizes if size >= at)
        return self.curves[low], self.curves[high], (at - low) / (high - low) if high > low else 0.0

    def _step_seconds(self, nodes: Ints, gpus: Ints, local: Ints) -> tuple[Floats, Floats]:
        """As measured where the GPUs were so spread, in the mean over how; else linear between what was measured."""
        alike: dict[tuple[int, int], list[StepTimes]] = defaultdict(list)
        for each in self.placed:
            alike[each.nodes, each.gpus].append(each)
        seconds = np.full((len(gpus), 2), np.nan)
        for row, key in enumerate(zip(nodes.tolist(), gpus.tolist(), strict=True)):
            if measured := alike.get(key):
                at = float(local[row])
                seconds[row] = np.mean(
                    [[np.interp(at, each.local, each.seconds[:, i]) for i in range(2)] for each in measured], axis=0
                )
        missing = np.isnan(seconds[:, 0])
        if missing.any():
            with suppress(QhullError):  # too few points to lie between
                seconds[missing] = self._between(np.column_stack([nodes, gpus, local])[missing].astype(np.float64))
        return seconds[:, 0], seconds[:, 1]

    @cached_property
    def _between(self) -> LinearNDInterpolator:
        """Raises QhullError."""
        known = self._known_points()
        return LinearNDInterpolator(known[:, :3], known[:, 3:])

    def _known_points(self) -> Floats:
        """(k, 5): nodes, GPUs, samples a GPU, and the two times; the mean over placements of as many nodes and GPUs."""
        times: dict[tuple[float, float, float], list[Floats]] = defaultdict(list)
        for each in self.placed:
            for size, seconds in zip(each.local.tolist(), each.seconds, strict=True):
                times[each.nodes, each.gpus, size].append(seconds)
        placed = np.array([[*key, *np.mean(values, axis=0)] for key, values in times.items()])
        return np.vstack([placed, self.scaled]) if len(self.scaled) else placed


@lru_cache(maxsize=4)
def models(folder: Path, gpu_type: str) -> Mapping[str, MeasuredModel]:
    """Every model of the folder's profiles that has curves and was measured on GPUs of the type.

    Raises:
        WorkloadError: where a file is missing, or a row of it is malformed
    """
    curves = _curves(_existing_file(folder, CURVES))
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for row in comma_separated(
        _existing_file(folder, PLACEMENTS),
        ("model", "gpu_type", "placement", "local_bsz", "step_time_s", "sync_time_s"),
    ):
        if row.cells.get("gpu_type") == gpu_type and row.cells.get("model") in curves:
            placement = row.text("placement")
            if not placement.isdigit() or len(placement) > MOST_NODES:
                raise row.bad("placement", "is not the GPUs of each node, a digit a node")
            rows[row.text("model"), placement].append(
                (row.number("local_bsz"), row.number("step_time_s"), row.number("sync_time_s"))
            )
    scaled: dict[str, list[list[float]]] = defaultdict(list)
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time_s", "sync_time_s")
    for row in comma_separated(_existing_file(folder, SCALABILITY), ("model", "gpu_type", *columns)):
        if row.cells.get("gpu_type") == gpu_type:
            scaled[row.text("model")].append([row.number(column) for column in columns])
    placed: dict[str, list[StepTimes]] = defaultdict(list)
    for (model, placement), values in rows.items():
        table = np.array(sorted(values))
        placed[model].append(StepTimes(len(placement), sum(map(int, placement)), table[:, 0], table[:, 1:]))
    if not placed:
        raise WorkloadError(f"{folder}: no model was measured on GPUs of the type {gpu_type!r}")
    a_node = max(each.gpus for values in placed.values() for each in values if each.nodes == 1)
    return {
        name: MeasuredModel(name, tuple(values), np.array(scaled.get(name, [])).reshape(-1, 5), curves[name], a_node)
        for name, values in placed.items()
    }


def _curves(path: Path) -> dict[str, dict[int, ValidationCurve]]:
    values: dict[str, dict[int, list[tuple[float, ...]]]] = defaultdict(lambda: defaultdict(list))
    columns = ("epoch", "progress", "metric", "grad_sqr", "grad_var")
    for row in comma_separated(path, ("model", "batch_size", *columns)):
        values[row.text("model")][row.integer("batch_size", least=1)].append(tuple(map(row.number, columns)))
    curves: dict[str, dict[int, ValidationCurve]] = {}
    for name, sizes in values.items():
        tables = {size: np.array(sorted(points)).T for size, points in sorted(sizes.items())}
        curves[name] = {size: ValidationCurve(*table[1:]) for size, table in tables.items()}
    return curves


def _existing_file(folder: Path, name: str) -> Path:
    for path in (folder / f"{name}.gz", folder / name):
        if path.is_file():
            return path
    raise WorkloadError(f"{folder} has no {name}, nor {name}.gz: --data names the folder of the measured profiles")


def folder(data: Path | None, beside: Path) -> Path:
    """Where the profiles lie: in `data`, or in a folder `profiles` beside the workload or above it.

    Raises:
        WorkloadError
    """
    above = [parent / "profiles" for parent in beside.resolve().parents]
    candidates = [data / "profiles", data] if data is not None else above
    for each in candidates:
        if any((each / f"{CURVES}{packed}").is_file() for packed in ("", ".gz")):
            return each
    where = f"in {data}" if data is not None else "in a folder profiles beside it or above"
    raise WorkloadError(
        f"{beside}: no measured profiles ({PLACEMENTS}, {SCALABILITY}, {CURVES}) {where}: name their folder with --data"
    )
