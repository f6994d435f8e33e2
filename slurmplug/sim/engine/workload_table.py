"""A workload in columns: the properties of its jobs that never change.

A training is a `SimJob`; a row is one Slurm job of it, and most trainings have one. Trainings are in order of
submission, and so are the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.snapshot import JobKey
from predictors.arrays import Bools, Floats, Ints
from slurmplug.sim.engine.job import Part, SimJob

CLUSTER = "simulated"
MOST_REPORTS = 200
"""The most reports of a job, evenly spread over its iterations."""


@dataclass(frozen=True, eq=False)
class ReportCurves:
    """What each training reports as it progresses: at every `step` (trainings,) iterations, by the pooled points.

    Training j has the points `[starts[j]:starts[j + 1]]`; `has_loss` and `has_accuracy` say which quantities.
    """

    step: Floats
    iterations: Floats
    losses: Floats
    accuracies: Floats
    starts: Ints
    has_loss: Bools
    has_accuracy: Bools


@dataclass(frozen=True, eq=False)
class RowServers:
    """The parameter servers of the rows: most (rows,), 0 for none; cpus (rows,) of each; sampled (rows, 5)."""

    most: Ints
    cpus: Floats
    sampled: Floats


@dataclass(frozen=True, eq=False)
class WorkloadTable:
    """The columns of a workload.

    `columns`: those of `Jobs` that never change, by name, an entry a row. training: (rows,) the training of each.
    first_row: (trainings + 1,) a training's rows are `[first_row[j]:first_row[j + 1]]`. requested: (rows,) GPUs.
    per_gpu: (rows, resources) demand a GPU, or a node where a row requests none. nodes: (rows,) of each row, as
    `SimJob.nodes`; 0 where policies place the jobs. exclusive: (trainings,) as `SimJob.exclusive`. edges: (edges, 2) a
    row and the row that it depends on; parents: the same by row. checkpoint_every: (trainings,) seconds. servers: of
    the rows; None where no job has parameter servers.
    """

    jobs: tuple[SimJob, ...]
    keys: NDArray[np.object_]
    columns: dict[str, NDArray[Any]]
    training: Ints
    first_row: Ints
    submit: Floats
    requested: Ints
    per_gpu: Floats
    nodes: Ints
    exclusive: Bools
    edges: Ints
    parents: Mapping[int, Sequence[int]]
    checkpoint_every: Floats
    reports: ReportCurves
    servers: RowServers | None = None

    def units(self, rows: Ints | int, gpus: Ints | int) -> Ints:
        """What rows with so many GPUs hold so many times `per_gpu` of: their GPUs, else their nodes."""
        return units(gpus, self.nodes[rows])

    def rows_of(self, training: int) -> range:
        """The rows of a training."""
        return range(int(self.first_row[training]), int(self.first_row[training + 1]))


def units(gpus: Ints | int, nodes: Ints | int) -> Ints:
    """Of how many equal parts a request consists: GPUs, or nodes where it has no GPUs."""
    return np.asarray(np.where(np.asarray(gpus) > 0, gpus, np.maximum(nodes, 1)))


def workload_table(jobs: Sequence[SimJob], *, all_managed: bool) -> WorkloadTable:
    """The columns of these jobs, in order of submission.

    all_managed: a policy that places jobs itself is given every job; those that the workload does not call managed
    cannot be requeued.
    """
    ordered = tuple(sorted(jobs, key=lambda job: job.submit))
    parts = [job.parts or (Part(job.gpus, job.cpus + _server_cpus(job), job.memory),) for job in ordered]
    counts = np.array([len(each) for each in parts], dtype=np.int64)
    first_row = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    training = np.repeat(np.arange(len(ordered)), counts)
    columns = _columns(ordered, parts, training, all_managed=all_managed)
    requested = columns["requested"][:, 0].astype(np.int64)
    nodes = np.array([0 if all_managed or job.parts else job.nodes for job in ordered], dtype=np.int64)[training]
    keys = np.empty(len(training), dtype=object)
    for row, j in enumerate(training.tolist()):
        keys[row] = JobKey(CLUSTER, row + 1, int(ordered[j].submit))
    edges = _edges(parts, first_row)
    return WorkloadTable(
        jobs=ordered,
        keys=keys,
        columns=columns,
        training=training,
        first_row=first_row,
        submit=np.array([job.submit for job in ordered], dtype=np.float64),
        requested=requested,
        per_gpu=columns["requested"] / units(requested, nodes)[:, None],
        nodes=nodes,
        exclusive=np.array([job.exclusive for job in ordered], dtype=bool),
        edges=edges,
        parents=_by_child(edges),
        checkpoint_every=np.array([job.checkpoint_every for job in ordered], dtype=np.float64),
        reports=_reports(ordered),
        servers=_servers(ordered, training),
    )


def _columns(
    jobs: Sequence[SimJob], parts: Sequence[Sequence[Part]], training: Ints, *, all_managed: bool
) -> dict[str, NDArray[Any]]:
    """The columns of `Jobs` that stay the same while a simulation runs, by name, a row for each part of each training.

    jobs, parts: by training. training: (rows,) of each row.
    """
    flat = [part for each in parts for part in each]
    requested = np.array([part.gpus for part in flat], dtype=np.int64)
    demand = np.array([[part.gpus, part.cpus, part.memory] for part in flat], dtype=np.float64).reshape(-1, 3)

    def column(value: Callable[[SimJob], Any], dtype: Any = np.float64) -> NDArray[Any]:
        return np.array([value(job) for job in jobs], dtype=dtype)[training]

    elastic = np.array([len(each) == 1 for each in parts], dtype=bool)[training]
    least = column(lambda job: job.gpus_min, np.int64)
    most = column(lambda job: job.gpus_max, np.int64)
    shares = np.array([part.share for part in flat], dtype=np.float64)
    managed = column(lambda job: job.managed, bool)
    return {
        "elements": np.ones(len(flat), dtype=np.int64),
        "managed": np.ones(len(flat), dtype=bool) if all_managed else managed,
        "held": np.zeros(len(flat), dtype=bool),
        "interactive": np.zeros(len(flat), dtype=bool),
        "user": column(lambda job: job.user, np.str_),
        "account": column(lambda job: job.account, np.str_),
        "qos": column(lambda job: job.qos, np.str_),
        "partition": column(lambda job: job.partition, np.str_),
        "name": column(lambda job: job.name, np.str_),
        "kind": column(lambda job: job.kind, np.str_),
        "role": np.array([part.role for part in flat], dtype=np.str_),
        "submitted": column(lambda job: int(job.submit)),
        "suspended": np.zeros(len(flat)),
        "time_limit": column(lambda job: job.time_limit),
        "gpus_min": np.where(elastic & (least > 0), least, requested),
        "gpus_max": np.where(elastic & (most > 0), most, requested),
        "requested": demand,
        "placement": np.zeros(len(flat), dtype=np.int64),
        "gpu_type": column(lambda job: job.gpu_type, np.str_),
        "part_of_gpu": np.zeros(len(flat), dtype=bool),
        "urgency": column(lambda job: job.urgency),
        "deadline": column(lambda job: job.deadline),
        "target": column(lambda job: job.target),
        "unit_mismatch": np.full(len(flat), "", dtype=np.str_),
        "not_finite": np.zeros(len(flat), dtype=np.int64),
        "requires_target": np.zeros(len(flat), dtype=bool),
        "quantity": np.full(len(flat), "accuracy"),
        "sign": np.ones(len(flat)),
        "max_iterations": column(lambda job: job.stated if job.managed else np.nan),
        "params": column(lambda job: job.params) * shares,
        "work": column(lambda job: job.work, np.str_),
        "utility": column(lambda job: job.utility or (np.nan,) * 3).reshape(-1, 3),
        "stop": column(lambda job: job.stop, np.str_),
        "trials": np.full(len(flat), "", dtype=np.str_),
        "downgrade": column(lambda job: job.downgrade, np.str_),
        "signal": np.full(len(flat), "", dtype=np.str_),
        "signal_to": np.where(managed, "steps", ""),
        "grace": np.full(len(flat), np.nan),
        "restartable": managed,
        "awaits": np.zeros(len(flat), dtype=bool),
        "gpus_used": np.full(len(flat), np.nan),
    }


def _server_cpus(job: SimJob) -> int:
    """The CPUs of as many parameter servers as the job has GPUs; 0 for a job without servers."""
    return job.gpus * job.servers.cpus if job.servers else 0


def _servers(jobs: Sequence[SimJob], training: Ints) -> RowServers | None:
    if not any(job.servers for job in jobs):
        return None
    return RowServers(
        most=np.array([job.servers.most if job.servers else 0 for job in jobs], dtype=np.int64)[training],
        cpus=np.array([job.servers.cpus if job.servers else 0 for job in jobs], dtype=np.float64)[training],
        sampled=np.array([job.servers.sampled if job.servers else np.full(5, np.nan) for job in jobs])[training],
    )


def _edges(parts: Sequence[tuple[Part, ...]], first_row: Ints) -> Ints:
    edges = [
        (first + at, first + parent)
        for each, first in zip(parts, first_row.tolist(), strict=False)
        for at, part in enumerate(each)
        for parent in part.parents
    ]
    return np.array(edges, dtype=np.int64).reshape(-1, 2)


def _by_child(edges: Ints) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row, parent in edges.tolist():
        found.setdefault(row, []).append(parent)
    return found


def _reports(jobs: Sequence[SimJob]) -> ReportCurves:
    iterations, losses, accuracies, starts = [], [], [], [0]
    step = np.array([max(1, -(-job.iterations // MOST_REPORTS)) for job in jobs], dtype=np.float64)
    for job, every in zip(jobs, step.tolist(), strict=True):
        at = np.arange(every, job.iterations + 0.5, every) if len(job.curve_at) else np.empty(0)
        nothing = np.full(len(at), np.nan)
        iterations.append(at)
        losses.append(np.interp(at, job.curve_at, job.losses) if len(job.losses) else nothing)
        accuracies.append(np.interp(at, job.curve_at, job.accuracies) if len(job.accuracies) else nothing)
        starts.append(starts[-1] + len(at))
    empty = [np.empty(0)]
    return ReportCurves(
        step=step,
        iterations=np.concatenate(iterations + empty),
        losses=np.concatenate(losses + empty),
        accuracies=np.concatenate(accuracies + empty),
        starts=np.array(starts, dtype=np.int64),
        has_loss=np.array([len(job.losses) > 0 for job in jobs], dtype=bool),
        has_accuracy=np.array([len(job.accuracies) > 0 for job in jobs], dtype=bool),
    )
