"""MLF-H's choice of servers: the node closest to an ideal one, among those that the job does not overload.

Wang, Liu, Shen: Job Scheduling for Large-Scale Machine Learning Clusters (MLFS), CoNEXT 2020, section 3.3.2. The
paper assumes a cluster without exclusive allocation. Slurm allocates GPUs, CPUs and memory exclusively, so a node has
room for a job or has not, and a full node is not overloaded: a node is overloaded if its shared resources are measured
to be contended. Slurm measures CPUs only. The use of a network is what jobs report, so it bears on the job that reports
it (`policies.placement.network`). The paper's q, the cost of a migration to the job, is the same for every node and
left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np

from policies.mlfs.preferences import ByNode
from policies.placement.network import NetworkReports
from policies.placement.space import Placement, Space
from policies.snapshot import RESOURCES, Snapshot
from predictors.arrays import Bools, Floats, Ints

Ideal: TypeAlias = Literal["tight", "least"]
GPUS, CPUS = RESOURCES.index("gpus"), RESOURCES.index("cpus")

NodeIndex: TypeAlias = int | slice
ALL_NODES = slice(None)
"""One node, or all."""
ROUNDING = 1e-9
"""A smaller share of what is on a node is a rounding error."""


@dataclass(frozen=True)
class PlacementSettings:
    """How a node is chosen.

    overload: h_r, the share in use of a shared resource above which a node is overloaded, in (0, 1]. ideal: the ideal
    node has the `least` of everything in use, as in the paper; or the least of shared resources only, and the most of
    allocated ones (`tight`), so that whole nodes stay free for gangs. use_bandwidth: jobs of an ML job are placed
    together, by u_BW.
    """

    overload: float = 0.9
    ideal: Ideal = "tight"
    use_bandwidth: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.overload <= 1:
            raise ValueError(f"overload is greater than 0 and at most 1, not {self.overload}")
        if self.ideal not in get_args(Ideal):
            raise ValueError(f"ideal is {' or '.join(get_args(Ideal))}, not {self.ideal!r}")


class Servers:
    """The nodes while jobs are placed and moved in one decision, as a working copy.

    `space`: what is free. `load` (nodes,): CPUs in use, as measured and then updated by `take` and `give`; 0 where
    unknown.
    """

    def __init__(self, snapshot: Snapshot, settings: PlacementSettings, preference: ByNode | None = None) -> None:
        """preference: subtracted from the distance of each node to the ideal one; None for nothing."""
        nodes = snapshot.nodes
        self.snapshot, self.settings, self._preference = snapshot, settings, preference
        self.load: Floats = np.nan_to_num(nodes.load[:, CPUS])
        self._network = NetworkReports(snapshot)
        self._network_taken: Floats = np.zeros(len(nodes.names))
        """the share of each network that `take` added and `give` subtracted"""
        self.gpus_overcommitted: Bools = nodes.used[:, GPUS] > nodes.capacity[:, GPUS]
        self._communication: dict[int, Floats] = {}

    # Computed on demand: a decision that places and moves no job needs none of these.

    @cached_property
    def space(self) -> Space:
        """What is free on each node."""
        return Space(self.snapshot)

    @cached_property
    def _allowed(self) -> Bools:
        return self.snapshot.fits & self.snapshot.nodes.up

    @cached_property
    def _unit(self) -> Floats:
        capacity = self.snapshot.nodes.capacity
        return np.asarray(1.0 / np.where(capacity > 0, capacity, np.inf))

    @cached_property
    def _volume(self) -> Floats:
        return volumes(self.snapshot)

    @cached_property
    def _network_use(self) -> Floats:
        return network_shares(self.snapshot)

    @cached_property
    def _gang_size(self) -> Ints:
        return np.bincount(self.snapshot.jobs.ml_job, minlength=len(self.snapshot.jobs))

    @cached_property
    def _allocations_by_gang(self) -> Mapping[int, list[list[int]]]:
        """The allocations (job, node, GPUs) of each ML job that has several jobs."""
        ml_job, on = self.snapshot.jobs.ml_job, self.snapshot.runs_on
        on = on[self._gang_size[ml_job[on[:, 0]]] > 1]
        found: dict[int, list[list[int]]] = {}
        for gang, held in zip(ml_job[on[:, 0]].tolist(), on.tolist(), strict=True):
            found.setdefault(gang, []).append(held)
        return found

    def overloaded(self) -> Bools:
        """(nodes,) u_m > h_r of CPUs, if more are in use than allocated, or more GPUs are held than exist.

        Memory is not considered: Slurm's figure includes the page cache.
        """
        busy = self.load > self.settings.overload * self.snapshot.nodes.capacity[:, CPUS]
        return self.gpus_overcommitted | self._cpus_contended(0.0) if busy.any() else self.gpus_overcommitted

    def closed(self) -> Bools:
        """(nodes,) where nothing is placed in this decision, whatever leaves: more GPUs are held than exist."""
        return self.gpus_overcommitted

    def contended(self, node: int) -> Bools:
        """(2,) which resources that Slurm measures make a node overloaded: GPUs, CPUs."""
        return np.array([self.gpus_overcommitted[node], self._cpus_contended(0.0, node)])

    def reports_overload(self) -> Bools:
        """(n,) u_m > h_r of the network of its nodes, as the job itself reports it."""
        return np.asarray(self.snapshot.jobs.network > self.settings.overload)

    def network_overloaded(self, row: int, node: int) -> bool:
        """Whether the network of a node is overloaded by the job's own report, after what was taken and given."""
        return bool(self.snapshot.jobs.network[row] + self._network_taken[node] > self.settings.overload)

    def _network_for(self, row: int, at: NodeIndex = ALL_NODES) -> Floats:
        """(nodes,) the share of the networks in use that closes a node to the job: by reports of its user's jobs."""
        reported = self._network.by_user(str(self.snapshot.jobs.user[row]))[at]
        return np.asarray(np.maximum(reported + self._network_taken[at], 0.0))

    def has_idle_cpus(self, row: int) -> Bools:
        """(nodes,) where the CPUs in use and all CPUs of the job are at most h_r."""
        capacity = self.snapshot.nodes.capacity[:, CPUS]
        return np.asarray(self.load + self.snapshot.jobs.demand[row, CPUS] <= self.settings.overload * capacity + 1e-9)

    def find(self, row: int, nodes: Bools | None = None) -> Placement | None:
        """A placement for the job: the one node closest to the ideal, else as few nodes as possible; None without room.

        nodes (nodes,): only these.
        """
        fits = self._fits_whole(row) if nodes is None else self._fits_whole(row) & nodes
        if fits.any():
            return self._on_one(row, np.flatnonzero(fits))
        return self._spread(row, self._fits_part(row) if nodes is None else self._fits_part(row) & nodes)

    def find_on(self, row: int, freed: Sequence[int]) -> Placement | None:
        """As `find`, for a job that had no placement before there was room on the nodes `freed`, in order of rows."""
        here = [node for node in freed if self._fits_whole(row, node)]
        if here:
            return self._on_one(row, np.array(here))
        return self._spread(row, self._fits_part(row)) if any(self._fits_part(row, node) for node in freed) else None

    def take(self, row: int, place: Placement) -> None:
        """Allocate this placement to the job, and add its load."""
        self._add_load(row, place, self.space.take(row, place), 1.0)

    def give(self, row: int, place: Placement) -> None:
        """Free this placement of the job, and subtract its load."""
        self._add_load(row, place, self.space.give(row, place), -1.0)

    def missing_gpus(self, rows: Sequence[int]) -> int:
        """The GPUs that these jobs request beyond all that are free; negative if more are free."""
        return sum(int(self.snapshot.jobs.gpus[row]) for row in rows) - self.space.gpus

    def allocate_all(self, rows: Sequence[int]) -> list[Placement] | None:
        """Allocate placements to all of these jobs, or to none and return None."""
        places: list[Placement] = []
        for row in rows:
            place = self.find(row)
            if place is None:
                for before, there in zip(rows, places, strict=False):
                    self.give(before, there)
                return None
            self.take(row, place)
            places.append(place)
        return places

    def allocate_all_on(self, rows: Sequence[int], freed: Sequence[int]) -> list[Placement] | None:
        """As `allocate_all`, for jobs that had no placements until there was more room on the nodes `freed`."""
        if len(rows) > 1:
            return self.allocate_all(rows) if self.missing_gpus(rows) <= 0 else None
        place = self.find_on(rows[0], freed)
        if place is None:
            return None
        self.take(rows[0], place)
        return [place]

    def communication(self, row: int) -> Floats:
        """(nodes,) the communication volume of the job with each node: that of the jobs of its ML job there."""
        ml_job = int(self.snapshot.jobs.ml_job[row])
        if ml_job not in self._communication:
            communication = self._communication[ml_job] = np.zeros(len(self.load))
            for each, node, gpus in self._allocations_by_gang.get(ml_job, ()):
                communication[node] += self._volume[each] * (gpus / max(int(self.snapshot.jobs.gpus[each]), 1))
        return self._communication[ml_job]

    def communication_on(self, row: int, node: int) -> float:
        """The communication volume of a job with the others of its ML job on a node where it runs."""
        place = self.space.place(row)
        own = place.shares[place.nodes.index(node)] / max(sum(place.shares), 1)
        total = float(self.communication(row)[node])
        others = total - float(self._volume[row]) * own
        return others if others > ROUNDING * total else 0.0

    def network_share(self, row: int, place: Placement) -> float:
        """The share of each node's network that the job uses in this placement; a job alone on one new node uses
        none."""
        network_use = float(self._network_use[row])
        if not network_use or len(place.nodes) > 1 or place == self.space.place(row):
            return network_use
        return network_use if self._gang_size[self.snapshot.jobs.ml_job[row]] > 1 else 0.0

    def _add_load(self, row: int, place: Placement, held: Sequence[tuple[int, Floats]], sign: float) -> None:
        network_use = self.network_share(row, place)
        for node, each in held:
            self.load[node] = max(self.load[node] + sign * each[CPUS], 0.0)
            if network_use:
                self._network_taken[node] += sign * network_use
        if self._gang_size[self.snapshot.jobs.ml_job[row]] > 1:
            communication, total = self.communication(row), max(float(sum(place.shares)), 1.0)
            for node, share in zip(place.nodes, place.shares, strict=True):
                communication[node] += sign * self._volume[row] * share / total

    def _fits_whole(self, row: int, at: NodeIndex = ALL_NODES) -> Bools:
        """(nodes,) where the whole job has room and overloads nothing."""
        jobs = self.snapshot.jobs
        demand = jobs.demand[row]
        network_use = self._network_use[row] if self._gang_size[jobs.ml_job[row]] > 1 else 0.0
        fits: Bools = self._allowed[jobs.placement[row], at] & self.space.whole_fits(row, at)
        return fits & ~self._overloaded(row, demand[CPUS], network_use, at) if fits.any() else fits

    def _fits_part(self, row: int, at: NodeIndex = ALL_NODES) -> Bools:
        """(nodes,) where a part of the job overloads no network."""
        allowed: Bools = self._allowed[self.snapshot.jobs.placement[row], at]
        return allowed & ~self._overloaded(row, 0.0, self._network_use[row], at)

    def _overloaded(self, row: int, cpus: float, network: float, at: NodeIndex = ALL_NODES) -> Bools:
        """(nodes,) overloaded for the job with this many more CPUs and this share more of the network in use."""
        return (
            self.gpus_overcommitted[at]
            | self._cpus_contended(cpus, at)
            | (self._network_for(row, at) + network > self.settings.overload)
        )

    def _cpus_contended(self, cpus: float, at: NodeIndex = ALL_NODES) -> Bools:
        """(nodes,) whether, with `cpus` more, more CPUs are in use than the threshold allows and than are allocated."""
        capacity, load = self.snapshot.nodes.capacity[at, CPUS], self.load[at] + cpus
        held = capacity - self.space.free[at, CPUS] + cpus
        return (load > self.settings.overload * capacity) & (load > held + 1e-6)

    def _on_one(self, row: int, candidates: Ints) -> Placement | None:
        """A placement on one of these nodes, if there are any."""
        if not len(candidates):
            return None
        node = self._closest_to_ideal(row, candidates) if len(candidates) > 1 else int(candidates[0])
        return Placement((node,), (int(self.snapshot.jobs.gpus[row]),))

    def _spread(self, row: int, nodes: Bools) -> Placement | None:
        """A placement over as few of these nodes (nodes,) as possible."""
        return self.space.fit(row, int(self.snapshot.jobs.gpus[row]), nodes=nodes)

    def _closest_to_ideal(self, row: int, candidates: Ints) -> int:
        """The candidate with min ||U_s - V||; every dimension of U within [0, 1]."""
        unit = self._unit[candidates]
        allocated = 1.0 - self.space.free[candidates] * unit
        load = self.load[candidates] * unit[:, CPUS]
        network = np.maximum(self._network.by_anyone[candidates] + self._network_taken[candidates], 0.0)
        ideal = allocated.max(axis=0) if self.settings.ideal == "tight" else allocated.min(axis=0)
        distance = ((allocated - ideal) ** 2).sum(axis=1)
        distance += (load - load.min()) ** 2 + (network - network.min()) ** 2
        if self.settings.use_bandwidth and self._gang_size[self.snapshot.jobs.ml_job[row]] > 1:
            volume = np.maximum(self.communication(row), 0.0)  # rounding may leave less than 0
            distance += (1.0 - volume[candidates] / max(float(volume.max()), 1e-300)) ** 2
        if self._preference is not None:
            distance -= self._preference(row, candidates)
        return int(candidates[distance.argmin()])


def volumes(snapshot: Snapshot) -> Floats:
    """(n,) the communication volume of each job, comparable within its ML job.

    Their traffic if all of them reported it, else their parameters; a job without a figure gets the mean of the others.
    """
    jobs, n = snapshot.jobs, len(snapshot.jobs)
    unreported = np.bincount(jobs.ml_job, ~(jobs.traffic > 0), minlength=n)[jobs.ml_job] > 0
    volume = np.where(unreported, jobs.params, jobs.traffic)
    known = volume > 0
    sums = np.bincount(jobs.ml_job, np.where(known, volume, 0.0), minlength=n)
    counts = np.bincount(jobs.ml_job, known, minlength=n)
    mean = np.divide(sums, counts, out=np.ones(n), where=counts > 0)
    return np.where(known, volume, mean[jobs.ml_job])


def network_shares(snapshot: Snapshot) -> Floats:
    """(n,) the mean share of its nodes' networks that a job uses.

    Of what it reports its nodes' networks to carry, its part by traffic. A job on several nodes that reports no traffic
    uses a part, by GPUs among such jobs, of what those that do leave of it. A job that reports no network uses none.
    """
    jobs, on = snapshot.jobs, snapshot.runs_on
    n, there = len(jobs), len(snapshot.nodes.names)
    row, node = on[:, 0], on[:, 1]
    network = np.nan_to_num(jobs.network[row])
    traffic = np.where(jobs.traffic > 0, jobs.traffic, 0.0)[row]
    by_traffic = network * _parts(traffic, node, there)
    spans = np.bincount(row, minlength=n)
    silent = (traffic == 0) & (spans[row] > 1)
    left = np.maximum(network - np.bincount(node, by_traffic, minlength=there)[node], 0.0)
    by_gpus = left * _parts(np.where(silent, on[:, 2], 0.0), node, there)
    return np.bincount(row, by_traffic + by_gpus, minlength=n) / np.maximum(spans, 1)


def _parts(weights: Floats, node: Ints, there: int) -> Floats:
    """(allocations,) the part that each has in the sum of these weights on its node; 0 where that is 0."""
    whole = np.bincount(node, weights, minlength=there)[node]
    return np.divide(weights, whole, out=np.zeros(len(weights)), where=whole > 0)
