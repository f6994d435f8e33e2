"""OASiS' settings, the bid of each job, and the auction that collects them from a snapshot (section III).

A bid is what a job brings to the auction: its work, its workers and the utility of its completion in each slot. A
worker is one GPU with its share of the job's CPUs and memory. Parameter servers are the jobs of the same ML job with
the role ps, on the nodes without GPUs. Identical nodes form one pool with their joint capacity. Resources are in units
of the largest server's capacity, so that the prices of two resources compare.

T slots, H servers (or pools) for workers, K for parameter servers, R resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from policies.marginal_gain.training_forecast import TrainingForecast
from policies.placement.allocation import held_gpus, movable, startable
from policies.snapshot import RESOURCES, Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Fan, Forecasts

JobName: TypeAlias = tuple[int, int]
"""Job id and first submission, which identify a job: a snapshot holds the jobs of one cluster."""
Ceiling: TypeAlias = Literal["paper", "work"]
"""The upper price bound U takes a job's utility for one worker-slot (equation 23), or for each that its work needs."""
NEGLIGIBLE = 1e-3
"""The lower price bound takes a job's utility for at least this share of th1 (a steep sigmoid is e^-360 and less)."""


@dataclass(frozen=True)
class OASiSSettings:
    """The settings of OASiS. slot, restart: seconds. horizon: the slots that a schedule may span."""

    slot: float = 600.0
    horizon: int = 100
    restart: float = 0.0
    """seconds of a slot that are lost when the number of GPUs changes"""
    speed: Literal["work", "forecast"] = "work"
    """by GPUs: every worker contributes the same, as in the paper, or as forecast where a forecast exists"""
    ceiling: Ceiling = "work"
    """the upper price bound: "paper" takes a job's utility for one worker-slot, which leaves the last part of a
    cluster unsold, "work" for each of those that its work takes"""
    revisions: int = 120
    """offers made at most to find a plan of more utility under contention; 0: admissions and rejections are final, as
    published"""
    backfill: bool = True
    """GPUs that no schedule uses in this slot are lent: to admitted jobs, then to rejected ones"""
    pool: bool = True
    """identical nodes are one server; otherwise each has its own prices"""
    remember: int = 500
    """jobs that the price bounds are computed from"""

    def __post_init__(self) -> None:
        if self.slot <= 0 or self.horizon < 1 or self.remember < 1:
            raise ValueError("slot, horizon and remember are positive")
        if not 0 <= self.restart < self.slot:
            raise ValueError("a restart takes less than a slot")
        if self.ceiling not in ("paper", "work"):
            raise ValueError(f"ceiling is paper or work, not {self.ceiling!r}")
        if self.speed not in ("work", "forecast"):
            raise ValueError(f"speed is work or forecast, not {self.speed!r}")
        if self.revisions < 0:
            raise ValueError("revisions is not negative")


def utility(th: Floats, latency: ArrayLike) -> Floats:
    """f(x) = th1 / (1 + exp(th2 (x - th3))) for a latency x in the unit of th3 (section V-A); th: these three."""
    return np.asarray(th[0] * expit(-th[1] * (np.asarray(latency, dtype=np.float64) - th[2])))


@dataclass(frozen=True, eq=False)
class ParameterServers:
    """The parameter servers of a job: the demand (R,) of each (beta), and how many a worker needs (b / B)."""

    demand: Floats
    per_worker: float


@dataclass(frozen=True, eq=False)
class Bid:
    """One job, in slots counted from the present one.

    work: units to do. progress (N + 1,): units that 0, 1, .. N workers do in a slot, not falling; work is counted in
    worker-slots where `progress[1]` is 1. value (T,): the utility of completion in each slot. demand (R,): of a worker
    (alpha). hosts (H,): the servers that may host its workers. upper_value, lower_value: the utility that the upper and
    the lower price bound take for it. min_workers: the fewest at a time. slot_left: the share of the present slot that
    is left.
    """

    work: float
    progress: Floats
    value: Floats
    demand: Floats
    hosts: Bools
    upper_value: float
    lower_value: float
    min_workers: int = 1
    slot_left: float = 1.0
    parameter_servers: ParameterServers | None = None

    @property
    def max_workers(self) -> int:
        """The most workers at a time (N_i, one for each data chunk)."""
        return len(self.progress) - 1

    @cached_property
    def worker_slots(self) -> float:
        """ceil(E N M (tau + 2 e / b)): slots of one worker that the work takes."""
        return max(1.0, float(np.ceil(self.work / self.progress[1] - 1e-9)))

    @cached_property
    def linear(self) -> bool:
        """Whether progress is proportional to the number of workers, from one on and without parameter servers."""
        straight = self.progress[1] * np.arange(len(self.progress))
        return (
            self.parameter_servers is None
            and self.min_workers <= 1
            and bool(np.allclose(self.progress, straight, rtol=1e-6, atol=0.0))
        )


@dataclass(frozen=True, eq=False)
class ServerPools:
    """Identical servers joined to H pools.

    names: identify the pools from cycle to cycle. capacity (H, R): in units of the largest pool. unit (R,): that unit.
    of (nodes,): the pool of each node, -1 for none. hosts (placement classes, H): the pools that a job may use.
    """

    names: tuple[str, ...]
    capacity: Floats
    unit: Floats
    of: Ints
    hosts: Bools

    @classmethod
    def of_nodes(cls, snapshot: Snapshot, which: Bools, joined: bool) -> ServerPools:
        """The pools of the nodes in `which` (nodes,) that are up; a pool for each node unless `joined`."""
        nodes = snapshot.nodes
        rows = np.flatnonzero(which & nodes.up)
        kinds = np.concatenate([nodes.capacity[rows], snapshot.fits[:, rows].T], axis=1)
        if joined and len(rows):
            _, first, of_row = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        else:
            first, of_row = np.arange(len(rows)), np.arange(len(rows))
        pool_of = np.full(len(nodes.names), -1)
        pool_of[rows] = of_row.ravel()
        capacity = np.stack(
            [np.bincount(of_row.ravel(), column, len(first)) for column in nodes.capacity[rows].T], axis=1
        )
        unit = np.where(capacity.max(axis=0, initial=0) > 0, capacity.max(axis=0, initial=0), 1.0)
        return cls(
            names=tuple(nodes.names[row] for row in rows[first]),
            capacity=capacity.reshape(-1, len(RESOURCES)) / unit,
            unit=unit,
            of=pool_of,
            hosts=snapshot.fits[:, rows[first]],
        )


def bidders(jobs: Jobs) -> Ints:
    """Rows of the jobs with a utility that wait for admission or for a start, or that run and can be resized."""
    bids = ~np.isnan(jobs.utility).any(axis=1) & jobs.managed & (jobs.role != "ps") & (jobs.gpus > 0)
    waits = startable(jobs) | (jobs.awaits & jobs.pending)
    return np.flatnonzero(bids & (waits | movable(jobs)))


@dataclass(frozen=True, eq=False)
class Auction:
    """The input of a decision: the bids of a snapshot's jobs, and the pools of servers that they bid for.

    slot: the number of the present slot. held (n,): GPUs that each job holds. pools, ps_pools: the servers for workers
    and for parameter servers. bids, names: by row of the snapshot.
    """

    snapshot: Snapshot
    forecasts: Forecasts
    settings: OASiSSettings
    held: Ints
    slot: int
    pools: ServerPools
    ps_pools: ServerPools
    bids: Mapping[int, Bid]
    names: Mapping[int, JobName]

    @classmethod
    def of(cls, snapshot: Snapshot, forecasts: Forecasts, settings: OASiSSettings) -> Auction:
        """The auction among the jobs of a snapshot."""
        jobs, held = snapshot.jobs, held_gpus(snapshot)
        gpu_nodes = snapshot.nodes.capacity[:, 0] > 0
        pools = ServerPools.of_nodes(snapshot, gpu_nodes, settings.pool)
        ps_pools = ServerPools.of_nodes(snapshot, ~gpu_nodes, settings.pool)
        slot = int(np.floor(snapshot.now / settings.slot + 1e-9))
        without_bids = cls(snapshot, forecasts, settings, held, slot, pools, ps_pools, {}, {})
        rows = bidders(jobs)
        bids = without_bids.bids_of(rows) if len(rows) and len(pools.names) else {}
        names = {row: (jobs.keys[row].job_id, jobs.keys[row].first_submit) for row in bids}
        return replace(without_bids, bids=bids, names=names)

    @property
    def slot_start(self) -> float:
        """The start of the present slot, in seconds since the epoch."""
        return self.slot * self.settings.slot

    def bids_of(self, rows: Ints) -> dict[int, Bid]:
        """The bids by row, of those of these rows whose duration is known.

        A job works for a whole slot, less a restart; without a forecast of its speed its progress is proportional to
        its GPUs. Utilities are those of completion at the end of each slot, by the time since submission.
        """
        jobs, config = self.snapshot.jobs, self.settings
        known = self.forecasts
        if config.speed == "work":
            known = replace(known, speed=Fan.unknown(len(jobs)))
        training = TrainingForecast.of(self.snapshot, known, rows, self.held, config.slot)
        left = jobs.max_iterations[rows] - training.at
        seconds = self.forecasts.remaining.median[rows]
        by_time = seconds * np.maximum(np.where(self.held > 0, self.held, jobs.gpus)[rows], 1)
        paced = ~np.isnan(training.speed[:, 0]) | (jobs.iteration_time[rows] > 0) | self.forecasts.total.known[rows]
        counted = np.isfinite(left) & paced
        work = np.maximum(np.where(counted, left, by_time), 1e-9)
        most = np.maximum(jobs.gpus_max, np.maximum(jobs.gpus_min, 1))[rows]
        count = np.arange(1.0, most.max() + 1)[None, :].repeat(len(rows), axis=0)
        rates = np.where(counted[:, None], training.rate(np.arange(len(rows)), count), count)
        known_rows = np.flatnonzero(np.isfinite(work)).tolist()
        seconds_a_slot = max(config.slot - config.restart, config.slot / 2)
        progress = np.concatenate([np.zeros((len(rows), 1)), rates * seconds_a_slot], axis=1)
        ends = self.slot_start + config.slot * (1.0 + np.arange(config.horizon))
        th = jobs.utility[rows].T[:, :, None]
        value = utility(th, ends - jobs.submitted[rows, None])
        demand = jobs.demand[rows] / np.maximum(jobs.demand[rows, :1], 1.0) / self.pools.unit
        return {
            int(rows[i]): self._bid(int(rows[i]), float(work[i]), progress[i, : most[i] + 1], value[i], demand[i])
            for i in known_rows
        }

    def _bid(self, row: int, work: float, progress: Floats, value: Floats, demand: Floats) -> Bid:
        jobs, config = self.snapshot.jobs, self.settings
        shortest = int(np.ceil(work / progress[-1] - 1e-9)) - 1
        least_value = NEGLIGIBLE * float(jobs.utility[row, 0])
        return Bid(
            work=work,
            progress=progress,
            value=value,
            demand=demand,
            hosts=self.pools.hosts[jobs.placement[row]],
            upper_value=max(float(value[min(max(shortest, 0), len(value) - 1)]), least_value),
            lower_value=max(float(value[-1]), least_value),
            min_workers=max(int(jobs.gpus_min[row]), 1),
            slot_left=min(1.0, 1.0 - (self.snapshot.now - self.slot_start) / config.slot),
            parameter_servers=self._parameter_servers(row, len(progress) - 1),
        )

    @cached_property
    def _ps_rows(self) -> dict[int, list[int]]:
        """The rows of parameter servers, by the ML job that they belong to."""
        jobs, found = self.snapshot.jobs, dict[int, list[int]]()
        for row in np.flatnonzero(jobs.role == "ps").tolist():
            found.setdefault(int(jobs.ml_job[row]), []).append(row)
        return found

    def ps_rows_of(self, row: int) -> list[int]:
        """The rows of the job's parameter servers."""
        return self._ps_rows.get(int(self.snapshot.jobs.ml_job[row]), [])

    def _parameter_servers(self, row: int, workers: int) -> ParameterServers | None:
        ps_rows = self.ps_rows_of(row)
        if not ps_rows or not len(self.ps_pools.names):
            return None
        demand = self.snapshot.jobs.demand[ps_rows].max(axis=0) / self.ps_pools.unit
        return ParameterServers(demand, len(ps_rows) / workers)
