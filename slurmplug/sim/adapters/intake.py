"""From the simulated cluster to snapshots, in columns, without rows of text between them.

It tells what `slurmplug.intake.intake` would make of the same cluster's readings, for many thousand jobs.
"""

from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any

import numpy as np

from policies.snapshot import Curves, JobKey, Jobs, Nodes, Snapshot
from predictors.arrays import Bools, Floats, Ints
from slurmplug.cluster.port import Reading
from slurmplug.intake.job_record import Changes, JobFacts, JobRecord
from slurmplug.sim.engine.engine import PENDING, RUNNING, Engine

SEEDS = 1_000_003
"""distance between the seeds of two runs, each of whose cycles has one"""
_ALMOST = 1e-9


class SimIntake:
    """Looks at the engine in place of the reading's rows."""

    def __init__(self, engine: Engine, labels: Floats, priority: Floats, seed: int = 0) -> None:
        """labels, priority: (rows,) of all jobs, as the launcher keeps them."""
        self._engine, self._labels, self._priority, self._seed = engine, labels, priority, seed
        self._live: Ints = np.zeros(0, dtype=np.int64)
        self._training = self._live
        self._lasting: dict[str, Any] = {}
        """columns of the live rows that never change"""
        self._columns: dict[str, Any] = {}
        """those that change only with what holds what and who waits, besides"""
        self._seen = -1
        self._nodes: Nodes
        self._fits = np.ones((1, len(engine.nodes)), dtype=bool)
        self._runs_on = np.zeros((0, 3), dtype=np.int64)
        self._place = np.full(len(engine.state), -1)
        self._first = 0
        rows = engine.table.first_row
        self._first_row = rows[:-1][engine.table.training]
        self._points = np.diff(engine.table.reports.starts)
        """of the curve of each training"""

    @property
    def known(self) -> Collection[int]:
        """Scripts are never read."""
        return ()

    @property
    def alive(self) -> Collection[int]:
        """Nothing is looked up in an accounting."""
        return ()

    def set_labels(self, labels: Mapping[JobKey, float]) -> None:
        """The launcher keeps them."""

    def set_admissions(self, admissions: Mapping[JobKey, str]) -> None:
        """Nothing is held for admission."""

    def absorb(self, reading: Reading, cycle: int) -> tuple[Snapshot, Changes]:
        """The cluster as it is."""
        engine, before = self._engine, self._live
        if self._seen != engine.changes:
            self._seen = engine.changes
            self._look()
        snapshot = Snapshot(
            cycle=cycle,
            now=reading.now,
            seed=self._seed * SEEDS + cycle,
            jobs=self._jobs(),
            nodes=self._nodes,
            fits=self._fits,
            runs_on=self._runs_on,
        )
        return snapshot, Changes(reading.now, self._changed(before))

    def _changed(self, before: Ints) -> tuple[JobRecord, ...]:
        """The jobs that came, and those that ended, in the few facts that the ledger asks of them."""
        if before is self._live:
            return ()
        state = self._engine.state
        came = self._live[self._live > (before[-1] if len(before) else -1)]
        ended = before[(state[before] != PENDING) & (state[before] != RUNNING)]
        return tuple(self._record(row) for row in (*came.tolist(), *ended.tolist()))

    def _record(self, row: int) -> JobRecord:
        engine = self._engine
        training = int(engine.table.training[row])
        job, story = engine.table.jobs[training], engine.stories[training]
        facts = JobFacts(
            job_id=row + 1, array_id=0, array_task=-1, elements=1, het_id=0, uid=0, user=job.user, account=job.account,
            qos=job.qos, partition=job.partition, state=story.state, reason="None", name=job.name, comment="",
            dependency="", features="", reservation="", node_list="", batch=True, restarts=int(engine.restarts[row]),
            submit=job.submit, eligible=job.submit, start=None, end=None, time_limit=None, nodes=0, cpus=0, memory=0.0,
            gpus=int(engine.gpus[row]), gpu_type="", exit_code=0,
        )  # fmt: skip
        return JobRecord(engine.table.keys[row], facts)

    def _look(self) -> None:
        """All that changes only with what holds what and who waits."""
        engine = self._engine
        self._look_who()
        live, there, used = self._live, engine.nodes, np.maximum(engine.nodes.used, 0.0)
        self._nodes = Nodes(
            names=there.names,
            up=np.ones(len(there), dtype=bool),
            capacity=there.capacity,
            used=used,
            load=_load(used, there.capacity, there.threshold),
            load_age=np.zeros(len(there)),
            network=np.clip(there.network / there.bandwidth, 0.0, 1.0),
        )
        self._runs_on = self._allocations()
        running, gpus = engine.state[live] == RUNNING, engine.gpus[live]
        self._running = running
        self._columns = self._lasting | {
            "restarts": engine.restarts[live],
            "state": np.where(running, "running", "pending"),
            "started": engine.started[live],
            "gpus": gpus,
            "demand": engine.table.per_gpu[live] * np.maximum(gpus, 1)[:, None],
        }

    def _look_who(self) -> None:
        """Which rows live; their columns that never change are taken once."""
        state = self._engine.state
        window = state[self._first : self._engine.arrived]
        live = np.flatnonzero((window == PENDING) | (window == RUNNING)) + self._first
        self._first = int(live[0]) if len(live) else self._engine.arrived
        if self._lasting and np.array_equal(live, self._live):
            return
        self._live = live
        table = self._engine.table
        self._training = table.training[live]
        self._place[live] = np.arange(len(live))
        self._lasting = {name: column[live] for name, column in table.columns.items()}
        self._lasting["keys"] = tuple(table.keys[live])
        self._lasting["ml_job"] = self._place[self._first_row[live]]
        self._lasting["checkpointed"] = np.full(len(live), np.nan)
        alive = np.zeros(len(state), dtype=bool)
        if len(table.edges):
            alive[live] = True
            edges = table.edges[alive[table.edges[:, 0]]]
            self._lasting["parents"] = self._place[edges]
        else:
            self._lasting["parents"] = table.edges

    def _jobs(self) -> Jobs:
        engine, live, training, running = self._engine, self._live, self._training, self._running
        now, waits_since, gpus = engine.now, engine.waits_since[live], self._columns["gpus"]
        waits = np.where(running, 0.0, np.maximum(now - waits_since, 0.0))
        held = np.where(running, gpus * (now - np.where(running, self._columns["started"], now)), 0.0)
        progress, rate = engine.progress(training), engine.rate[training]
        taken_up = engine.run_iteration[training]
        managed = ~np.isnan(self._columns["max_iterations"])
        iteration = np.where(managed, np.floor(progress + _ALMOST), 0.0)
        paced = managed & running & (rate > 0) & (iteration - np.ceil(taken_up - _ALMOST) >= 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            told = engine.anchor[training] + (iteration - engine.iteration[training]) / rate
            pace = np.where(paced, 1.0 / rate, np.nan)
        losses, accuracies = self._curves(training, iteration)
        return Jobs(
            **self._columns,
            expected=np.full(len(live), np.nan),
            reason=np.where(running, "None", np.where(waits_since > now, "BeginTime", "Resources")),
            waited=engine.waited[live] + waits,
            attained=engine.attained[live] + held,
            priority=self._priority[live],
            label=self._labels[live],
            iteration=iteration,
            iteration_time=pace,
            checkpoint=self._checkpoints(training, progress, managed),
            resumed=np.where(iteration > taken_up, np.floor(taken_up) + 1, np.nan),
            reported=np.where((iteration > 0) & (rate > 0), np.minimum(told, now), np.nan),
            traffic=np.where(rate > 0, engine.sent[training] * _slowed(engine, training, rate), np.nan),
            losses=losses,
            accuracies=accuracies,
        )

    def _checkpoints(self, training: Ints, progress: Floats, managed: Bools) -> Floats:
        """(n,) NaN before the first: of a training that saves when it is asked to, what it took up from."""
        engine = self._engine
        taken_up = engine.run_iteration[training]
        every = engine.table.checkpoint_every[training]
        trained = np.maximum(engine.now - engine.run_since[training], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where((every > 0) & (trained > 0), np.floor(trained / every) * every / trained, 0.0)
        kept = np.floor(taken_up + share * np.maximum(progress - taken_up, 0.0) + _ALMOST)
        kept = np.fmax(kept, np.where(engine.save_at[training] <= progress, engine.save_at[training], np.nan))
        return np.where(managed & (kept > 0), kept, np.nan)

    def _curves(self, training: Ints, iteration: Floats) -> tuple[Curves, Curves]:
        reports = self._engine.table.reports
        counts = np.floor(iteration / reports.step[training]).astype(np.int64)
        counts = np.minimum(counts, self._points[training])
        starts, losses, accuracies = (
            reports.starts[training],
            reports.has_loss[training],
            reports.has_accuracy[training],
        )
        of_loss = _prefixes(starts, np.where(losses, counts, 0))
        alike = np.array_equal(losses, accuracies)
        of_accuracy = of_loss if alike else _prefixes(starts, np.where(accuracies, counts, 0))
        at = reports.iterations[of_loss[0]]
        return (
            Curves(at, reports.losses[of_loss[0]], of_loss[1]),
            Curves(
                at if alike else reports.iterations[of_accuracy[0]], reports.accuracies[of_accuracy[0]], of_accuracy[1]
            ),
        )

    def _allocations(self) -> Ints:
        holds = self._engine.holds
        rows = np.repeat(list(holds), [len(where) for where in holds.values()]).astype(np.int64)
        flat = chain.from_iterable(chain.from_iterable(holds.values()))
        shares = np.fromiter(flat, dtype=np.int64).reshape(-1, 2)
        return np.column_stack([self._place[rows], shares])[np.argsort(rows, kind="stable")]


def _load(used: Floats, capacity: Floats, threshold: float) -> Floats:
    """(nodes, resources) what is in use; where it is contended for, as much more as what waits for its turn."""
    most = threshold * capacity
    crowding = np.divide(used, most, out=np.ones_like(used), where=most > 0)
    load = used * np.maximum(crowding, 1.0)
    load[:, 0] = np.nan
    return load


def _slowed(engine: Engine, training: Ints, rate: Floats) -> Floats:
    """(n,) the share of its full speed at which each trains."""
    nominal = engine.nominal[training]
    return np.divide(rate, nominal, out=np.ones_like(rate), where=nominal > 0)


def _prefixes(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The positions of the first `counts` points of each row's, and where each row begins among them."""
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if not ends[-1]:
        return np.zeros(0, dtype=np.int64), ends
    return np.repeat(starts - ends[:-1], counts) + np.arange(ends[-1]), ends
