"""The bids of a snapshot's jobs, and the pools of servers that they bid for.

A worker is one GPU with its share of the job's CPUs and memory; parameter servers are the jobs of the same ML job with
the role ps, on the nodes without GPUs. Nodes that are alike are one pool of their joint capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from policies.marginal_gain.training_forecast import TrainingForecast
from policies.oasis.agenda import Name
from policies.oasis.bid import Bid, Servers, utility
from policies.oasis.settings import OASiSSettings
from policies.placement.allocation import held_gpus, movable, startable
from policies.snapshot import RESOURCES, Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints
from predictors.forecast import Fan, Forecasts

WORTH_NOTICE = 1e-3
"""of th1: the least that the lower bound of prices takes a job's utility for (a steep sigmoid is e^-360 and less)"""


@dataclass(frozen=True, eq=False)
class Pools:
    """Servers that are alike, joined: capacity (H, R), in units of the largest.

    names: what each is known by in the cycles to come. of (nodes,): the pool of each node, -1 for one that is away.
    """

    names: tuple[str, ...]
    capacity: Floats
    unit: Floats
    of: Ints
    hosts: Bools

    @classmethod
    def of_nodes(cls, snapshot: Snapshot, which: Bools, joined: bool) -> Pools:
        """Of these nodes (nodes,), as far as they are up; `hosts` (placement classes, H)."""
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
    """Rows with a utility that wait to be admitted or to start, or run and can be resized."""
    told = ~np.isnan(jobs.utility).any(axis=1) & jobs.managed & (jobs.role != "ps") & (jobs.gpus > 0)
    waits = startable(jobs) | (jobs.awaits & jobs.pending)
    return np.flatnonzero(told & (waits | movable(jobs)))


@dataclass(frozen=True, eq=False)
class Scene:
    """What a decision goes by: `slot` is the present one's number, `bids` and `names` are by row of the snapshot."""

    snapshot: Snapshot
    forecasts: Forecasts
    settings: OASiSSettings
    held: Ints
    slot: int
    pools: Pools
    beside: Pools
    bids: Mapping[int, Bid]
    names: Mapping[int, Name]

    @classmethod
    def of(cls, snapshot: Snapshot, forecasts: Forecasts, settings: OASiSSettings) -> Scene:
        """The scene of a snapshot."""
        jobs, held = snapshot.jobs, held_gpus(snapshot)
        gpu_nodes = snapshot.nodes.capacity[:, 0] > 0
        pools = Pools.of_nodes(snapshot, gpu_nodes, settings.pool)
        beside = Pools.of_nodes(snapshot, ~gpu_nodes, settings.pool)
        slot = int(np.floor(snapshot.now / settings.slot + 1e-9))
        nothing = cls(snapshot, forecasts, settings, held, slot, pools, beside, {}, {})
        rows = bidders(jobs)
        found = nothing.bids_of(rows) if len(rows) and len(pools.names) else {}
        names = {row: (jobs.keys[row].job_id, jobs.keys[row].first_submit) for row in found}
        return replace(nothing, bids=found, names=names)

    @property
    def began(self) -> float:
        """When the present slot began."""
        return self.slot * self.settings.slot

    def bids_of(self, rows: Ints) -> dict[int, Bid]:
        """By row, of those of which it is known how long they take.

        A job works in a slot for as long as it lasts, less a restart; one whose rate by GPUs is not forecast works in
        proportion. Utilities are of the end of each slot, counted from submission.
        """
        jobs, config = self.snapshot.jobs, self.settings
        known = self.forecasts
        if config.speed == "work":
            known = replace(known, speed=Fan.unknown(len(jobs)))
        outlook = TrainingForecast.of(self.snapshot, known, rows, self.held, config.slot)
        left = jobs.max_iterations[rows] - outlook.at
        seconds = self.forecasts.remaining.median[rows]
        by_time = seconds * np.maximum(np.where(self.held > 0, self.held, jobs.gpus)[rows], 1)
        paced = ~np.isnan(outlook.speed[:, 0]) | (jobs.iteration_time[rows] > 0) | self.forecasts.total.known[rows]
        counted = np.isfinite(left) & paced
        work = np.maximum(np.where(counted, left, by_time), 1e-9)
        most = np.maximum(jobs.gpus_max, np.maximum(jobs.gpus_min, 1))[rows]
        count = np.arange(1.0, most.max() + 1)[None, :].repeat(len(rows), axis=0)
        rates = np.where(counted[:, None], outlook.rate(np.arange(len(rows)), count), count)
        told = np.flatnonzero(np.isfinite(work)).tolist()
        seconds_a_slot = max(config.slot - config.restart, config.slot / 2)
        done = np.concatenate([np.zeros((len(rows), 1)), rates * seconds_a_slot], axis=1)
        ends = self.began + config.slot * (1.0 + np.arange(config.horizon))
        worth = jobs.utility[rows].T[:, :, None]
        value = utility(worth, ends - jobs.submitted[rows, None])
        demand = jobs.demand[rows] / np.maximum(jobs.demand[rows, :1], 1.0) / self.pools.unit
        return {
            int(rows[i]): self._bid(int(rows[i]), float(work[i]), done[i, : most[i] + 1], value[i], demand[i])
            for i in told
        }

    def _bid(self, row: int, work: float, done: Floats, value: Floats, demand: Floats) -> Bid:
        jobs, config = self.snapshot.jobs, self.settings
        shortest = int(np.ceil(work / done[-1] - 1e-9)) - 1
        least_value = WORTH_NOTICE * float(jobs.utility[row, 0])
        return Bid(
            work=work,
            done=done,
            value=value,
            demand=demand,
            hosts=self.pools.hosts[jobs.placement[row]],
            best=max(float(value[min(max(shortest, 0), len(value) - 1)]), least_value),
            floor=max(float(value[-1]), least_value),
            least=max(int(jobs.gpus_min[row]), 1),
            first=min(1.0, 1.0 - (self.snapshot.now - self.began) / config.slot),
            servers=self._servers(row, len(done) - 1),
        )

    @cached_property
    def _by_ml_job(self) -> dict[int, list[int]]:
        """The rows of parameter servers, by the ML job that they belong to."""
        jobs, found = self.snapshot.jobs, dict[int, list[int]]()
        for row in np.flatnonzero(jobs.role == "ps").tolist():
            found.setdefault(int(jobs.ml_job[row]), []).append(row)
        return found

    def servers_of(self, row: int) -> list[int]:
        """Rows of the job's parameter servers."""
        return self._by_ml_job.get(int(self.snapshot.jobs.ml_job[row]), [])

    def _servers(self, row: int, workers: int) -> Servers | None:
        of_ps = self.servers_of(row)
        if not of_ps or not len(self.beside.names):
            return None
        return Servers(self.snapshot.jobs.demand[of_ps].max(axis=0) / self.beside.unit, len(of_ps) / workers)
