"""What Slurm and the spool would show of a simulated cluster: the engine's jobs as rows, scripts and report files."""

import json
from collections.abc import Container, Iterator
from dataclasses import fields, replace
from itertools import pairwise
from math import floor, isnan
from typing import Any

import numpy as np

from slurmplug.cluster.held_types import with_held_types
from slurmplug.cluster.port import JobRows, NodeRows, Reading, Submission
from slurmplug.sim.adapters.cluster import SimCluster
from slurmplug.sim.engine.engine import PENDING, RUNNING, Engine
from slurmplug.sim.engine.run_log import ALMOST

TEXTS = ("array_tasks", "name", "comment", "dependency", "features", "reservation", "node_list", "partition")


class RenderedCluster:
    """Readings of a simulated cluster, in order of time.

    A job reports each iteration that it has done, some with the quantities of its curve, and its load beside; it says
    when it saved a checkpoint. One without checkpoints of its own saves when it loses its GPUs. Commands are carried
    out right after a reading, as a cycle does it.
    """

    def __init__(self, port: SimCluster, *, all_managed: bool) -> None:
        self._port, self._all_managed = port, all_managed
        rows = len(port.engine.state)
        self._restarts = np.zeros(rows, dtype=np.int64)
        self._submitted = port.engine.table.columns["submitted"].copy()
        self._written = np.zeros(len(port.engine.table.jobs), dtype=np.int64)
        """reports of iterations, of each training"""
        self._asked_saves: set[tuple[int, float, float]] = set()
        self._in_run: dict[int, int] = {}
        """by row: the restart in which it reported last"""
        self._before = 0.0
        self._done_before = np.zeros(len(port.engine.table.jobs))
        self._trained_before = np.zeros(len(port.engine.table.jobs), dtype=bool)

    def reading(self, known: Container[Submission]) -> Reading:
        """The cluster now; known: the submissions whose scripts are not wanted."""
        engine = self._port.engine
        again = engine.restarts > self._restarts
        self._submitted[again] = self._before
        live = np.flatnonzero((engine.state == PENDING) | (engine.state == RUNNING))
        jobs = self._jobs(live)
        submissions = zip(jobs.job_id.tolist(), jobs.submit.astype(int).tolist(), strict=True)
        wanted = [job_id for job_id, submit in submissions if (job_id, submit) not in known]
        nodes = self._nodes()
        seen = replace(
            self._port.read((), {}),
            jobs=with_held_types(jobs, nodes),
            nodes=nodes,
            scripts={job_id: script(engine, job_id - 1, self._all_managed) for job_id in wanted},
            reports=self._reports(live, again),
        )
        trainings = np.arange(len(engine.table.jobs))
        self._restarts, self._before = engine.restarts.copy(), engine.now
        self._done_before, self._trained_before = engine.progress(trainings), engine.rate > 0
        return seen

    def _jobs(self, live: Any) -> JobRows:
        engine, columns = self._port.engine, self._port.engine.table.columns
        held, names = engine.allocations.holds, engine.nodes.names
        running, count = engine.state[live] == RUNNING, len(live)
        waits = engine.waits_since[live]
        demand = engine.table.per_gpu[live] * np.maximum(engine.gpus[live], 1)[:, None]
        parents = [[f"after:{parent + 1}" for parent in engine.table.parents.get(row, ())] for row in live.tolist()]
        values: dict[str, Any] = {
            "job_id": live + 1, "array_id": np.zeros(count, int), "array_task": np.full(count, -1),
            "elements": np.ones(count, int), "array_tasks": [""] * count, "het_id": np.zeros(count, int),
            "uid": np.full(count, 1000),
            **{name: columns[name][live] for name in ("user", "account", "qos", "partition", "name", "time_limit")},
            "state": np.where(running, "RUNNING", "PENDING"),
            "reason": np.where(running, "None", np.where(waits > engine.now, "BeginTime", "Resources")),
            "comment": [""] * count, "dependency": [",".join(each) for each in parents], "features": [""] * count,
            "reservation": [self._port.reservations.get(row, "") for row in live.tolist()],
            "node_list": [",".join(names[n] for n, _ in sorted(held.get(row, ()))) for row in live.tolist()],
            "batch": np.ones(count, bool), "restarts": engine.restarts[live], "submit": self._submitted[live],
            "eligible": waits, "start": np.where(running, engine.started[live], np.nan),
            "expected": np.full(count, np.nan), "end": np.full(count, np.nan), "priority": self._port.priority[live],
            "nice": np.zeros(count, int),
            "nodes": np.ones(count, int), "cpus": demand[:, 1], "memory": demand[:, 2], "gpus": engine.gpus[live],
            "gpu_type": columns["gpu_type"][live], "gpu_type_held": np.full(count, ""), "shards": np.zeros(count, int),
            "exit_code": np.zeros(count, int), "suspended": np.zeros(count),
        }  # fmt: skip
        return JobRows(
            **{
                each.name: np.array(values[each.name], dtype=object if each.name in TEXTS else None)
                for each in fields(JobRows)
            }
        )

    def _nodes(self) -> NodeRows:
        nodes, partitions = self._port.engine.nodes, frozenset(self._port.engine.table.columns["partition"].tolist())
        count, used, types = len(nodes), np.maximum(nodes.used, 0.0), nodes.gpu_type.tolist()
        most = nodes.threshold * nodes.capacity
        load = used * np.maximum(np.divide(used, most, out=np.ones_like(used), where=most > 0), 1.0)
        return NodeRows(
            name=nodes.names,
            state=(frozenset({"mixed"}),) * count,
            partitions=(partitions,) * count,
            features=(frozenset(),) * count,
            gpus=tuple({kind: int(each)} for kind, each in zip(types, nodes.capacity[:, 0], strict=True)),
            gpus_used=tuple({kind: round(each)} for kind, each in zip(types, used[:, 0].tolist(), strict=True)),
            cpus=nodes.capacity[:, 1].astype(int),
            cpus_used=used[:, 1],  # a share of a GPU's CPUs may be none of whole CPUs
            cpu_load=load[:, 1],
            memory=nodes.capacity[:, 2],
            memory_used=used[:, 2],
            memory_free=nodes.capacity[:, 2] - load[:, 2],
        )

    # --- reports ----------------------------------------------------------------------------------------------------

    def _reports(self, live: Any, again: Any) -> dict[int, bytes]:
        engine = self._port.engine
        lines: dict[int, list[dict[str, Any]]] = {}
        for training in dict.fromkeys(engine.table.training[live].tolist()):
            if engine.table.jobs[training].managed:
                rows = engine.table.rows_of(training)
                lines[training] = [*self._iterations(training), *self._checkpoints(training, bool(again[rows].any()))]
        found = {}
        for row in live.tolist():
            training = int(engine.table.training[row])
            written = lines.get(training, [])
            if any("iteration" in line for line in written):
                self._in_run[row] = int(engine.restarts[row])
            written = sorted(written, key=lambda line: float(line["time"]))
            if row in engine.allocations.holds and self._in_run.get(row) == engine.restarts[row]:
                written.append(self._load(row, training))
            if written:
                found[row + 1] = b"".join(json.dumps(line).encode() + b"\n" for line in written)
        return found

    def _iterations(self, training: int) -> Iterator[dict[str, Any]]:
        engine, reports = self._port.engine, self._port.engine.table.reports
        done = list(self._reached(training))
        for time, iteration in done[self._written[training] :]:
            line = {"time": min(time, engine.now), "iteration": iteration}
            at = iteration / reports.step[training]
            points = int(reports.starts[training + 1] - reports.starts[training])
            if at == floor(at) and at <= points:
                point = int(reports.starts[training] + at - 1)
                has = {"loss": reports.has_loss, "accuracy": reports.has_accuracy}
                values = {"loss": reports.losses, "accuracy": reports.accuracies}
                line |= {name: float(values[name][point]) for name in values if has[name][training]}
            yield line
        self._written[training] = len(done)

    def _reached(self, training: int) -> Iterator[tuple[float, int]]:
        """When it came to each iteration, one that it did again more than once."""
        engine = self._port.engine
        log = engine.logs[training]
        corners = list(zip(log.times, log.iterations, strict=True))
        if engine.rate[training] and engine.now > engine.anchor[training]:
            corners.append((engine.now, engine.iterations_done(training)))
        for (start, low), (end, high) in pairwise(corners):
            for iteration in range(floor(low + ALMOST) + 1, floor(high + ALMOST) + 1):
                share = min((iteration - low) / (high - low), 1.0)
                yield start + (end - start) * share, iteration

    def _checkpoints(self, training: int, again: bool) -> Iterator[dict[str, Any]]:
        engine, job, before = self._port.engine, self._port.engine.table.jobs[training], self._before
        if again and not job.checkpoint_every and self._trained_before[training]:
            saved = floor(self._done_before[training] + ALMOST)
            if saved:
                yield {"time": before, "checkpoint": saved}
        if not engine.rate[training]:
            return
        since, asked = float(engine.run_since[training]), float(engine.save_at[training])
        if job.checkpoint_every:
            for count in range(1, floor((engine.now - since) / job.checkpoint_every) + 1):
                time = since + count * job.checkpoint_every
                saved = max((k for at, k in self._reached(training) if at <= time + ALMOST and at > since), default=0)
                saved = saved or floor(float(engine.logs[training].resumed_from) + ALMOST)
                if time > before and saved:
                    yield {"time": time, "checkpoint": saved}
        if not isnan(asked) and (training, since, asked) not in self._asked_saves:
            times = [at for at, k in self._reached(training) if k == asked and at >= since]
            if times:
                self._asked_saves.add((training, since, asked))
                yield {"time": min(times[-1], engine.now), "checkpoint": asked}

    def _load(self, row: int, training: int) -> dict[str, Any]:
        engine = self._port.engine
        first = min(node for node, _ in engine.allocations.holds[row])
        nominal = float(engine.nominal[training])
        share = float(np.clip(engine.nodes.network[first] / engine.nodes.bandwidth[first], 0.0, 1.0))
        sent = float(engine.traffic_rate[training]) * (float(engine.rate[training]) / nominal if nominal else 1.0)
        return {"time": engine.now, "load": {"network": share, "sent": sent}}


def script(engine: Engine, row: int, all_managed: bool) -> bytes:
    """The batch script of a row, with its directives."""
    training = int(engine.table.training[row])
    job, columns = engine.table.jobs[training], engine.table.columns
    if not job.managed:
        return b"#!/bin/sh\n#PLUG --stop=iterations\n" if all_managed else b"#!/bin/sh\n"
    given: dict[str, Any] = {"max-iterations": job.iterations, "checkpoint": "file"}
    if job.stop != "iterations":
        given["stop"] = job.stop
    if not isnan(job.target):
        given["target"] = f"accuracy>={job.target:.12f}"
    given |= {"allow-downgrade": job.downgrade} if job.downgrade else {}
    given |= {"type": job.kind} if job.kind else {}
    given |= {"urgency": f"{job.urgency:g}"} if not isnan(job.urgency) else {}
    params = [f"{columns['params'][row]:.9g}"] if not isnan(job.params) else []
    given |= {"params": ",".join([*params, job.work] if job.work else params)} if params or job.work else {}
    given |= {"deadline": f"{int(job.deadline) - int(job.submit)}s"} if not isnan(job.deadline) else {}
    given |= {"role": str(columns["role"][row])} if columns["role"][row] else {}
    if job.utility:
        worth, steepness, target = job.utility
        given["utility"] = f"{worth:.9f},{steepness * 3600.0:.12f},{target / 3600.0:.12f}"
    if job.gpus_min and not job.parts:
        given["gpus"] = f"{job.gpus_min}..{job.gpus_max}"
    if job.parts:
        given["ml-job"] = f"ml-{training}"
    return ("#!/bin/sh\n" + "".join(f"#PLUG --{name}={value}\n" for name, value in given.items())).encode()
