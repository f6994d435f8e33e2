"""From the simulated cluster to snapshots, in columns, without rows of text between them.

The snapshots equal those of `slurmplug.intake.intake`, as a property test holds column by column; it is fast enough for
many thousand jobs.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from policies.snapshot import Curves, JobKey, Jobs, JobServers, Nodes, Snapshot
from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.cluster.port import Reading, Submission
from slurmplug.directives.changes import Change
from slurmplug.intake.eligibility import with_only_type
from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import Changes, JobRecord
from slurmplug.sim.engine.engine import PENDING, RUNNING, Engine
from slurmplug.sim.engine.last_reports import TrainingPaces
from slurmplug.sim.engine.run_log import ALMOST

SEEDS = 1_000_003
"""the seed of a cycle is its run's seed times this, plus its number"""
_ANYWHERE = ("", "", 0)


class SimIntake:
    """Makes snapshots from the engine in place of a reading's rows."""

    def __init__(
        self,
        engine: Engine,
        site_factors: Floats,
        priority: Floats,
        reservations: Mapping[int, str] = MappingProxyType({}),
        seed: int = 0,
        *,
        node_sets: Bools,
        set_of: Ints,
    ) -> None:
        """site_factors, priority: (rows,) of all jobs, of the launcher; reservations: by row, as requested. set_of
        (rows,): a job runs on nodes of this row of node_sets (sets, nodes)."""
        self._engine, self._site_factors, self._priority, self._seed = engine, site_factors, priority, seed
        self._reservations = reservations
        self._node_sets, self._set_of = node_sets, set_of
        self._classes: list[tuple[str, str, int]] = [_ANYWHERE]
        """the reservation, the type of GPU and the set of nodes of each placement class"""
        types = engine.nodes.gpu_type
        self._gpu_types = tuple(sorted(set(types.tolist()) - {""}))
        self._has_type = types[:, None] == np.array(self._gpu_types, dtype=np.str_)
        """(nodes, types)"""
        self._live: Ints = np.zeros(0, dtype=np.int64)
        self._training = self._live
        self._constant: dict[str, Any] = {}
        """columns of the live rows that never change"""
        self._columns: dict[str, Any] = {}
        """those, and the columns that change only when a job starts, ends or waits"""
        self._changes_seen = -1
        self._nodes: Nodes
        self._fits = np.ones((1, len(engine.nodes)), dtype=bool)
        self._runs_on = np.zeros((0, 3), dtype=np.int64)
        self._servers: JobServers | None = None
        self._place = np.full(len(engine.state), -1)
        self._first = 0
        rows = engine.table.first_row
        self._first_row = rows[:-1][engine.table.training]
        self._points = np.diff(engine.table.reports.starts)
        """of the curve of each training"""

    @property
    def known(self) -> Container[Submission]:
        """Empty: scripts are never read."""
        return ()

    @property
    def alive(self) -> Mapping[int, int]:
        """Empty: nothing is looked up in the accounting."""
        return {}

    def set_site_factors(self, site_factors: Mapping[JobKey, float], *, elsewhere: bool = False) -> None:
        """Nothing to do: the launcher keeps them."""

    def set_changed_requests(self, jobs: Collection[JobKey]) -> None:
        """Nothing to do: what Slurm's priority is without a SiteFactor is computed anew."""

    def set_directive_changes(self, changes: Collection[tuple[JobKey, Change]]) -> None:
        """Nothing to do: nobody changes the directives of simulated jobs."""

    def set_admissions(self, admissions: Mapping[JobKey, str]) -> None:
        """Nothing to do: no job is held for admission."""

    def absorb(self, reading: Reading, cycle: int) -> tuple[Snapshot, Changes]:
        """The snapshot of the cluster now, and the jobs that came or ended."""
        engine, before = self._engine, self._live
        if self._changes_seen != engine.changes:
            self._changes_seen = engine.changes
            self._refresh()
        jobs = self._jobs()
        fits = self._fits_of(reading) if reading.reservations or len(self._classes) > 1 else self._fits
        if self._gpu_types:
            jobs = replace(jobs, gpu_type=with_only_type(jobs, fits, self._nodes))
        snapshot = Snapshot(
            cycle=cycle,
            now=reading.now,
            seed=self._seed * SEEDS + cycle,
            jobs=jobs,
            nodes=self._nodes,
            fits=fits,
            runs_on=self._runs_on,
            type_of_class=self._types_of_classes(),
            servers=self._servers,
        )
        return snapshot, Changes(reading.now, self._changed(before))

    def _changed(self, before: Ints) -> tuple[JobRecord, ...]:
        """The jobs that came and those that ended, with the few facts that the ledger needs."""
        if before is self._live:
            return ()
        state = self._engine.state
        came = self._live[self._live > (before[-1] if len(before) else -1)]
        ended = before[(state[before] != PENDING) & (state[before] != RUNNING)]
        return tuple(self._record(row) for row in (*came.tolist(), *ended.tolist()))

    def _record(self, row: int) -> JobRecord:
        engine = self._engine
        training = int(engine.table.training[row])
        job, log = engine.table.jobs[training], engine.logs[training]
        facts = JobFacts(
            job_id=row + 1, array_id=0, array_task=-1, elements=1, het_id=0, uid=0, user=job.user, account=job.account,
            qos=job.qos, partition=job.partition, state=log.state, reason="None", name=job.name, comment="",
            dependency="", features="", reservation="", node_list="", batch=True, restarts=int(engine.restarts[row]),
            submit=job.submit, eligible=job.submit, start=None, end=None, time_limit=None, nodes=0, cpus=0, memory=0.0,
            gpus=int(engine.gpus[row]), gpu_type=job.gpu_type, exit_code=0, gpu_type_held="",
            shards=0,
        )  # fmt: skip
        return JobRecord(engine.table.keys[row], facts)

    def _refresh(self) -> None:
        """Compute again the columns that change only when a job starts, ends or waits."""
        engine = self._engine
        self._refresh_live_rows()
        live, node_use, used = self._live, engine.nodes, np.maximum(engine.nodes.used, 0.0)
        self._nodes = Nodes(
            names=node_use.names,
            up=np.ones(len(node_use), dtype=bool),
            capacity=node_use.capacity,
            used=used,
            load=_load(used, node_use.capacity, node_use.threshold),
            gpu_types=self._gpu_types,
            of_type=self._has_type * node_use.capacity[:, :1],
            of_type_used=self._has_type * np.round(used[:, :1]),
        )
        self._runs_on = self._allocations()
        self._servers = self._servers_of_rows()
        self._first_node = np.full(len(live), len(node_use))
        np.minimum.at(self._first_node, self._runs_on[:, 0], self._runs_on[:, 1])
        running, gpus = engine.state[live] == RUNNING, engine.gpus[live]
        self._running = running
        self._columns = self._constant | {
            "restarts": engine.restarts[live],
            "state": np.where(running, "running", "pending"),
            "started": engine.started[live],
            "gpus": gpus,
            "demand": engine.table.per_gpu[live] * engine.table.units(live, gpus)[:, None],
        }
        requested = self._constant["gpu_type"].tolist()
        reserved = (
            [self._reservations.get(row, "") for row in live.tolist()] if self._reservations else [""] * len(live)
        )
        wanted = list(zip(reserved, requested, self._set_of[live].tolist(), strict=True))
        self._classes = sorted({_ANYWHERE, *wanted})
        if len(self._classes) > 1:
            number = {each: at for at, each in enumerate(self._classes)}
            self._columns["placement"] = np.array([number[each] for each in wanted], dtype=np.int64)
        if self._gpu_types:
            self._columns["gpu_type"] = self._types_of(running)

    def _types_of(self, running: Bools) -> Texts:
        """(n,) the type of GPU of each live row: held, or requested; empty for any, and several."""
        types, on = self._engine.nodes.gpu_type, self._runs_on[self._runs_on[:, 2] > 0]
        every = np.zeros((len(running), len(types)), dtype=bool)
        every[on[:, 0], on[:, 1]] = True
        first = types[every.argmax(axis=1)] if len(types) else np.full(len(running), "")
        alike = ~np.any(every & (types != first[:, None]), axis=1)
        return np.where(running, np.where(alike & every.any(axis=1), first, ""), self._constant["gpu_type"])

    def _refresh_live_rows(self) -> None:
        """Find the live rows, and their columns that never change."""
        state = self._engine.state
        window = state[self._first : self._engine.arrived]
        live = np.flatnonzero((window == PENDING) | (window == RUNNING)) + self._first
        self._first = int(live[0]) if len(live) else self._engine.arrived
        if self._constant and np.array_equal(live, self._live):
            return
        self._live = live
        table = self._engine.table
        self._training = table.training[live]
        self._place[live] = np.arange(len(live))
        self._constant = {name: column[live] for name, column in table.columns.items()}
        self._constant["keys"] = tuple(table.keys[live])
        self._constant["ml_job"] = self._place[self._first_row[live]]
        alive = np.zeros(len(state), dtype=bool)
        if len(table.edges):
            alive[live] = True
            edges = table.edges[alive[table.edges[:, 0]]]
            self._constant["parents"] = self._place[edges]
        else:
            self._constant["parents"] = table.edges

    def _jobs(self) -> Jobs:
        engine, live, training, running = self._engine, self._live, self._training, self._running
        now, waits_since, gpus, started = engine.now, engine.waits_since[live], *self._of("gpus", "started")
        waits = np.where(running, 0.0, np.maximum(now - waits_since, 0.0))
        held = np.where(running, gpus * (now - np.where(running, started, now)), 0.0)
        rate = engine.rate[training]
        iteration, iteration_time, reported = self._progress(training)
        checkpoint, checkpointed = self._checkpoints(training)
        reports = reported > started  # its present run
        losses, accuracies = self._curves(training, iteration)
        return Jobs(
            **self._columns,
            expected=np.full(len(live), np.nan),
            reason=np.where(running, "None", np.where(waits_since > now, "BeginTime", "Resources")),
            waited=engine.waited[live] + waits,
            attained=engine.attained[live] + held,
            priority=self._priority[live],
            site_factor=self._site_factors[live],
            factor_by_others=np.zeros(len(live), dtype=bool),
            nice=np.zeros(len(live), dtype=np.int64),
            surplus=np.zeros(len(live)),
            taken_out=np.zeros(len(live), dtype=bool),
            iteration=iteration,
            iteration_time=iteration_time,
            checkpoint=checkpoint,
            checkpointed=checkpointed,
            resumed=np.where(reports, np.floor(engine.resumed_at[live] + ALMOST) + 1, np.nan),
            reported=reported,
            network=np.where(reports, self._network(), np.nan),
            traffic=np.where(reports, engine.traffic_rate[training] * _slowed(engine, training, rate), np.nan),
            losses=losses,
            accuracies=accuracies,
            validation_losses=Curves(np.empty(0), np.empty(0), np.zeros(len(live) + 1, dtype=np.int64)),
        )

    def _of(self, *names: str) -> list[Any]:
        return [self._columns[name] for name in names]

    def _progress(self, training: Ints) -> tuple[Floats, Floats, Floats]:
        """(n,) the last iteration that was reported, the seconds that one takes, and when that was."""
        engine, reports = self._engine, self._engine.reports
        managed = ~np.isnan(self._columns["max_iterations"])
        rows = np.flatnonzero(managed & ((engine.rate[training] > 0) | (reports.iteration[training] > 0)))
        of = training[rows]
        pace = TrainingPaces(engine.anchor[of], engine.iteration[of], engine.rate[of], engine.progress(of))
        since = np.nan_to_num(self._columns["started"][rows])
        seen = reports.seen(of, pace, since)
        iteration = np.zeros(len(training))
        iteration_time, time = np.full(len(training), np.nan), np.full(len(training), np.nan)
        iteration[rows], iteration_time[rows] = seen.iteration, seen.iteration_time
        time[rows] = np.minimum(seen.time, engine.now)
        return iteration, iteration_time, time

    def _checkpoints(self, training: Ints) -> tuple[Floats, Floats]:
        """(n,) the iteration of the last checkpoint that was reported, and when; NaN before the first."""
        engine = self._engine
        found, when = engine.checkpoint[training], engine.checkpointed[training]
        saves = (engine.table.checkpoint_every[training] > 0) | ~np.isnan(engine.save_at[training])
        for row in np.flatnonzero(saves & (engine.rate[training] > 0)).tolist():
            found[row], when[row] = engine.last_checkpoint(int(training[row]))
        return found, when

    def _network(self) -> Floats:
        """(n,) the share of the network of its first node in use; NaN for a job that has none."""
        nodes = self._engine.nodes
        share = np.clip(nodes.network / nodes.bandwidth, 0.0, 1.0)
        return np.asarray(np.append(share, np.nan)[self._first_node])

    def _types_of_classes(self) -> Ints:
        found = [self._gpu_types.index(kind) if kind in self._gpu_types else -1 for _, kind, _ in self._classes]
        return np.array(found if max(found) >= 0 else [], dtype=np.int64)

    def _fits_of(self, reading: Reading) -> Bools:
        """(placement classes, nodes) every node of the set with GPUs of the type but those set aside for others."""
        names = self._engine.nodes.names
        aside = {each.name: each.nodes for each in reading.reservations if each.start <= reading.now < each.end}
        taken = frozenset().union(*aside.values())
        fits = np.ones((len(self._classes), len(names)), dtype=bool)
        for row, (reservation, gpu_type, nodes) in enumerate(self._classes):
            inside = aside.get(reservation, frozenset())
            fits[row] = self._node_sets[nodes] & [
                name in inside if reservation else name not in taken for name in names
            ]
            if gpu_type:
                fits[row] &= self._engine.nodes.gpu_type == gpu_type
        return fits

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
        holds = self._engine.allocations.holds
        rows = np.repeat(list(holds), [len(where) for where in holds.values()]).astype(np.int64)
        flat = chain.from_iterable(chain.from_iterable(holds.values()))
        shares = np.fromiter(flat, dtype=np.int64).reshape(-1, 2)
        return np.column_stack([self._place[rows], shares])[np.argsort(rows, kind="stable")]

    def _servers_of_rows(self) -> JobServers | None:
        """The parameter servers of the live rows, where any row has some."""
        allocations, rows = self._engine.allocations, self._engine.table.servers
        if rows is None:
            return None
        held = [allocations.servers.get(row, (0,) * len(where)) for row, where in sorted(allocations.holds.items())]
        on = np.fromiter(chain.from_iterable(held), dtype=np.int64)
        live = self._live
        return JobServers(rows.most[live], rows.cpus[live], rows.sampled[live], on)


def _load(used: Floats, capacity: Floats, threshold: float) -> Floats:
    """(nodes, resources) the load: resources in use, and above the threshold also the demand that waits for them."""
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
