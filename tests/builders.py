"""Small snapshots for tests: every column has a default, so that a test says only what matters.

    snapshot(jobs(3, urgency=[1, 5, 9], deadline=NOW + 3600), nodes(2, used=[[4, 0, 0], [0, 0, 0]]))

A column is given as one value for all rows or as one a row; curves as a list of values for each row.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from policies.snapshot import RESOURCES, Curves, JobKey, Jobs, JobServers, Nodes, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Forecast, Forecasts

NOW = 1_700_000_000.0
CLUSTER = "testing"

_COLUMNS: dict[str, tuple[type, Any]] = {
    "elements": (np.int64, 1),
    "restarts": (np.int64, 0),
    "state": (np.str_, "pending"),
    "reason": (np.str_, "None"),
    "managed": (np.bool_, True),
    "held": (np.bool_, False),
    "interactive": (np.bool_, False),
    "user": (np.str_, "ada"),
    "account": (np.str_, "lab"),
    "qos": (np.str_, "normal"),
    "partition": (np.str_, "gpu"),
    "name": (np.str_, "train"),
    "kind": (np.str_, ""),
    "role": (np.str_, ""),
    "submitted": (np.float64, NOW),
    "started": (np.float64, np.nan),
    "suspended": (np.float64, 0.0),
    "expected": (np.float64, np.nan),
    "time_limit": (np.float64, np.nan),
    "waited": (np.float64, 0.0),
    "attained": (np.float64, 0.0),
    "priority": (np.float64, 1.0),
    "site_factor": (np.float64, np.nan),
    "factor_by_others": (np.bool_, False),
    "nice": (np.int64, 0),
    "surplus": (np.float64, 0.0),
    "taken_out": (np.bool_, False),
    "gpus": (np.int64, 1),
    "placement": (np.int64, 0),
    "gpu_type": (np.str_, ""),
    "part_of_gpu": (np.bool_, False),
    "urgency": (np.float64, np.nan),
    "deadline": (np.float64, np.nan),
    "target": (np.float64, np.nan),
    "unit_mismatch": (np.str_, ""),
    "not_finite": (np.int64, 0),
    "requires_target": (np.bool_, False),
    "quantity": (np.str_, "accuracy"),
    "sign": (np.float64, 1.0),
    "max_iterations": (np.float64, np.nan),
    "params": (np.float64, np.nan),
    "work": (np.str_, ""),
    "stop": (np.str_, "iterations"),
    "trials": (np.str_, ""),
    "downgrade": (np.str_, ""),
    "signal": (np.str_, ""),
    "signal_to": (np.str_, ""),
    "grace": (np.float64, 60.0),
    "restartable": (np.bool_, False),
    "awaits": (np.bool_, False),
    "traffic": (np.float64, np.nan),
    "network": (np.float64, np.nan),
    "gpus_used": (np.float64, np.nan),
    "iteration": (np.float64, 0.0),
    "iteration_time": (np.float64, np.nan),
    "checkpoint": (np.float64, np.nan),
    "checkpointed": (np.float64, np.nan),
    "resumed": (np.float64, np.nan),
    "reported": (np.float64, np.nan),
}


def jobs(n: int = 1, **columns: Any) -> Jobs:
    """n jobs: pending, managed, of one GPU, with no directives, each an ML job of its own, unless said otherwise.

    `losses`, `accuracies` and `validation_losses`: a sequence of values for each row, at the iterations 1, 2, ...
    `parents`: pairs of a row and the row that it depends on. `keys`: JobKeys, or else the job ids 1, 2, ...
    """
    unknown = columns.keys() - {field.name for field in fields(Jobs)}
    if unknown:
        raise TypeError(f"no such columns of Jobs: {', '.join(sorted(unknown))}")
    given = {name: _column(columns.get(name, default), kind, n) for name, (kind, default) in _COLUMNS.items()}
    gpus = given["gpus"]
    return Jobs(
        keys=columns.get("keys", tuple(JobKey(CLUSTER, row + 1, int(NOW)) for row in range(n))),
        ml_job=_column(columns.get("ml_job", np.arange(n)), np.int64, n),
        gpus_min=_column(columns.get("gpus_min", gpus), np.int64, n),
        gpus_max=_column(columns.get("gpus_max", gpus), np.int64, n),
        demand=_table(columns.get("demand", np.stack([gpus, np.ones(n), np.zeros(n)], axis=1)), n, len(RESOURCES)),
        requested=_table(
            columns.get("requested", columns.get("demand", np.stack([gpus, np.ones(n), np.zeros(n)], axis=1))),
            n,
            len(RESOURCES),
        ),
        utility=_table(columns.get("utility", np.nan), n, 3),
        losses=curves(columns.get("losses", [[]] * n)),
        accuracies=curves(columns.get("accuracies", [[]] * n)),
        validation_losses=curves(columns.get("validation_losses", [[]] * n)),
        parents=np.asarray(columns.get("parents", []), dtype=np.int64).reshape(-1, 2),
        **given,
    )


def curves(rows: Sequence[ArrayLike]) -> Curves:
    """A curve for each row, from its values at the iterations 1, 2, ..."""
    values = [np.asarray(row, dtype=np.float64) for row in rows]
    lengths = np.array([len(row) for row in values], dtype=np.int64)
    return Curves(
        iterations=np.concatenate([np.arange(1.0, length + 1) for length in lengths] or [np.zeros(0)]),
        values=np.concatenate(values or [np.zeros(0)]),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    )


def nodes(n: int = 1, **columns: Any) -> Nodes:
    """n idle nodes of four GPUs, 32 CPUs and 128 GiB; `capacity`, `used` and `load` are (n, resources) or one row, as
    are `of_type` and `of_type_used` (n, types)."""
    types = columns.get("gpu_types", ())
    return Nodes(
        names=columns.get("names", tuple(f"n{node + 1}" for node in range(n))),
        up=_column(columns.get("up", True), np.bool_, n),
        capacity=_table(columns.get("capacity", [4.0, 32.0, 131_072.0]), n, len(RESOURCES)),
        used=_table(columns.get("used", 0.0), n, len(RESOURCES)),
        load=_table(columns.get("load", 0.0), n, len(RESOURCES)),
        gpu_types=types,
        of_type=_table(columns.get("of_type", 0.0), n, len(types)),
        of_type_used=_table(columns.get("of_type_used", 0.0), n, len(types)),
    )


def on_networks(of_jobs: Jobs, networks: ArrayLike, runs_on: Ints) -> Jobs:
    """The jobs, each of which reports the greatest share of its nodes' networks in use; networks (nodes,): shares."""
    shares, reported = np.asarray(networks, dtype=np.float64), np.full(len(of_jobs), np.nan)
    np.fmax.at(reported, runs_on[:, 0], shares[runs_on[:, 1]])
    return replace(of_jobs, network=reported)


def snapshot(
    of_jobs: Jobs | None = None,
    on_nodes: Nodes | None = None,
    *,
    cycle: int = 1,
    now: float = NOW,
    seed: int = 0,
    fits: Bools | None = None,
    runs_on: Ints | None = None,
    type_of_class: Ints | None = None,
    servers: JobServers | None = None,
) -> Snapshot:
    """A snapshot of these jobs and nodes; every job fits everywhere and holds nothing, unless said otherwise."""
    of_jobs = jobs(0) if of_jobs is None else of_jobs
    on_nodes = nodes() if on_nodes is None else on_nodes
    classes = int(of_jobs.placement.max(initial=0)) + 1
    return Snapshot(
        cycle=cycle,
        now=now,
        seed=seed,
        jobs=of_jobs,
        nodes=on_nodes,
        fits=np.ones((classes, len(on_nodes.names)), dtype=np.bool_) if fits is None else fits,
        runs_on=np.zeros((0, 3), dtype=np.int64) if runs_on is None else runs_on,
        type_of_class=np.zeros(0, dtype=np.int64) if type_of_class is None else type_of_class,
        servers=servers,
    )


def servers(n: int, **columns: Any) -> JobServers:
    """Up to four parameter servers of two CPUs each for each of n jobs, none held, with one and with one worker a
    second an iteration of which half is shared out, unless said otherwise."""
    return JobServers(
        most=_column(columns.get("most", 4), np.int64, n),
        cpus=_column(columns.get("cpus", 2.0), np.float64, n),
        times=_table(columns.get("times", [0.5, 0.1, 0.4, 0.0, 0.0]), n, 5),
        on=np.asarray(columns.get("on", []), dtype=np.int64),
    )


def forecasts(
    n: int, *, total: ArrayLike = np.nan, remaining: ArrayLike = np.nan, final: Forecast | None = None
) -> Forecasts:
    """Forecasts of n jobs: certain run times in seconds, NaN where unknown, and the target quantity at the end."""
    nothing = Forecasts.unknown(n)
    return Forecasts(
        total=_certain(total, n),
        remaining=_certain(remaining, n),
        final=nothing.final if final is None else final,
        accuracy=nothing.accuracy,
        loss=nothing.loss,
        speed=nothing.speed,
    )


def _certain(seconds: ArrayLike, n: int) -> Forecast:
    values = np.broadcast_to(np.asarray(seconds, dtype=np.float64), (n,))
    return Forecast.certain(values, np.where(np.isnan(values), "", "test"))


def _column(value: ArrayLike, kind: type, n: int) -> Any:
    return np.array(np.broadcast_to(np.asarray(value, dtype=kind), (n,)))


def _table(value: ArrayLike, n: int, width: int) -> Floats:
    return np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), (n, width)))
