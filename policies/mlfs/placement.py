"""MLF-H's choice of servers: the node most like an ideal one, among those that the job does not overload.

Wang, Liu, Shen: Job Scheduling for Large-Scale Machine Learning Clusters (MLFS), CoNEXT 2020, section 3.3.2. What the
paper leaves to a cluster without exclusive allocation is chosen here: Slurm gives GPUs, CPUs and memory to one job
alone, so of these a node has room or has not, and a full node is not overloaded. Overloaded is one where what is shared
is measured to be contended for. The paper's q, what a move costs the job, is the same for every node and left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np

from policies.placement.space import Placement, Space
from policies.snapshot import RESOURCES, Snapshot
from predictors.arrays import Bools, Floats, Ints

Ideal: TypeAlias = Literal["tight", "least"]
GPUS, CPUS = RESOURCES.index("gpus"), RESOURCES.index("cpus")

At: TypeAlias = int | slice
EVERYWHERE = slice(None)
"""One node, or all."""
ROUNDING = 1e-9
"""A share of what is on a node that is less is what adding up left over."""


@dataclass(frozen=True)
class PlacementSettings:
    """How a node is chosen.

    overload: h_r, the share in use of a shared resource above which a node is overloaded, in (0, 1]. ideal: the ideal
    node has the `least` in use of everything, as in the paper; or of what is shared only, and the most of what is
    allocated (`tight`), so that whole nodes stay free for gangs. use_bandwidth: jobs of an ML job are put together,
    by u_BW.
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
    """The nodes as they fill up while jobs are placed and moved: a working copy of one decision.

    `space`: what is free. `load`, `network` (nodes,): CPUs in use, and the share of the network, as measured and as
    jobs are taken and given; 0 where nothing tells it.
    """

    def __init__(self, snapshot: Snapshot, settings: PlacementSettings) -> None:
        nodes = snapshot.nodes
        self.snapshot, self.settings = snapshot, settings
        self.load: Floats = np.nan_to_num(nodes.load[:, CPUS])
        self.network: Floats = np.nan_to_num(nodes.network)
        self._full = nodes.used[:, GPUS] > nodes.capacity[:, GPUS]
        self._mates: dict[int, Floats] = {}

    # What only placing and moving jobs ask for is worked out when they do.

    @cached_property
    def space(self) -> Space:
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
    def _sends(self) -> Floats:
        return network_shares(self.snapshot)

    @cached_property
    def _family(self) -> Ints:
        return np.bincount(self.snapshot.jobs.ml_job, minlength=len(self.snapshot.jobs))

    @cached_property
    def _on_by_family(self) -> Mapping[int, list[list[int]]]:
        """What the jobs hold of those ML jobs that have several: the job, the node, GPUs."""
        ml_job, on = self.snapshot.jobs.ml_job, self.snapshot.runs_on
        on = on[self._family[ml_job[on[:, 0]]] > 1]
        found: dict[int, list[list[int]]] = {}
        for family, held in zip(ml_job[on[:, 0]].tolist(), on.tolist(), strict=True):
            found.setdefault(family, []).append(held)
        return found

    def overloaded(self) -> Bools:
        """(nodes,) u_m > h_r of what is shared: the network, and CPUs where more are in use than are allocated.

        GPUs are where more are held than there are. Memory is not: what Slurm tells of it counts the page cache.
        """
        busy = self.load > self.settings.overload * self.snapshot.nodes.capacity[:, CPUS]
        return self.overfull() | self._crowded(0.0) if busy.any() else self.overfull()

    def contended(self, node: int) -> Bools:
        """(3,) which resource makes a node overloaded: GPUs, CPUs, network."""
        return np.array([self._full[node], self._crowded(0.0, node), self.network[node] > self.settings.overload])

    def overfull(self) -> Bools:
        """(nodes,) overloaded by more than CPUs, whose crowding slows and starves nobody."""
        return np.asarray(self._full | (self.network > self.settings.overload))

    def overfull_without(self, gone: Bools) -> Bools:
        """(nodes,) the same, whichever of these running jobs (n,) hold nothing there any longer."""
        on = self.snapshot.runs_on
        theirs = np.bincount(on[:, 1], np.where(gone, self._sends, 0.0)[on[:, 0]], len(self.network))
        return np.asarray(self._full | (self.network - theirs > self.settings.overload + ROUNDING))

    def bears(self, row: int) -> Bools:
        """(nodes,) where all CPUs of the job and those in use are no more than h_r."""
        capacity = self.snapshot.nodes.capacity[:, CPUS]
        return np.asarray(self.load + self.snapshot.jobs.demand[row, CPUS] <= self.settings.overload * capacity + 1e-9)

    def find(self, row: int, nodes: Bools | None = None) -> Placement | None:
        """Where the job goes: the one node most like the ideal, else over as few nodes as will do; None without room.

        `nodes` (nodes,): only these.
        """
        suits = self._suits(row) if nodes is None else self._suits(row) & nodes
        if suits.any():
            return self._on_one(row, np.flatnonzero(suits))
        return self._spread(row, self._bears_part(row) if nodes is None else self._bears_part(row) & nodes)

    def find_on(self, row: int, freed: Sequence[int]) -> Placement | None:
        """The same, where the job found no place before there was more room on these nodes, which are in order."""
        here = [node for node in freed if self._suits(row, node)]
        if here:
            return self._on_one(row, np.array(here))
        return self._spread(row, self._bears_part(row)) if any(self._bears_part(row, node) for node in freed) else None

    def take(self, row: int, place: Placement) -> None:
        """The job holds this, and bears on it."""
        self._bear(row, place, self.space.take(row, place), 1.0)

    def give(self, row: int, place: Placement) -> None:
        """The job holds this no longer."""
        self._bear(row, place, self.space.give(row, place), -1.0)

    def mates(self, row: int) -> Floats:
        """(nodes,) the volume of communication of the job with each node: of the jobs of its ML job that are there."""
        family = int(self.snapshot.jobs.ml_job[row])
        if family not in self._mates:
            mates = self._mates[family] = np.zeros(len(self.load))
            for each, node, gpus in self._on_by_family.get(family, ()):
                mates[node] += self._volume[each] * (gpus / max(int(self.snapshot.jobs.gpus[each]), 1))
        return self._mates[family]

    def talk(self, row: int, node: int) -> float:
        """The volume of communication of a job with the others of its ML job on a node where it runs."""
        place = self.space.place(row)
        own = place.shares[place.nodes.index(node)] / max(sum(place.shares), 1)
        all_there = float(self.mates(row)[node])
        others = all_there - float(self._volume[row]) * own
        return others if others > ROUNDING * all_there else 0.0

    def network_of(self, row: int, place: Placement) -> float:
        """The share of the network of each of these nodes that the job takes; a job all on one node talks to itself."""
        sends = float(self._sends[row])
        if not sends or len(place.nodes) > 1 or place == self.space.place(row):
            return sends
        return sends if self._family[self.snapshot.jobs.ml_job[row]] > 1 else 0.0

    def _bear(self, row: int, place: Placement, held: Sequence[tuple[int, Floats]], sign: float) -> None:
        sends = self.network_of(row, place)
        for node, each in held:
            self.load[node] = max(self.load[node] + sign * each[CPUS], 0.0)
            if sends:
                self.network[node] = max(self.network[node] + sign * sends, 0.0)
        if self._family[self.snapshot.jobs.ml_job[row]] > 1:
            mates, total = self.mates(row), max(float(sum(place.shares)), 1.0)
            for node, share in zip(*place, strict=True):
                mates[node] += sign * self._volume[row] * share / total

    def _suits(self, row: int, at: At = EVERYWHERE) -> Bools:
        """(nodes,) where there is room for the whole job, which overloads nothing there."""
        jobs = self.snapshot.jobs
        demand = jobs.demand[row]
        sends = self._sends[row] if self._family[jobs.ml_job[row]] > 1 else 0.0
        room = (self.space.free[at] + 1e-9 >= demand).all(axis=-1)
        suits: Bools = self._allowed[jobs.placement[row], at] & room & ~self._overloaded(demand[CPUS], sends, at)
        return suits

    def _bears_part(self, row: int, at: At = EVERYWHERE) -> Bools:
        """(nodes,) where a job over several nodes overloads no network."""
        allowed: Bools = self._allowed[self.snapshot.jobs.placement[row], at]
        return allowed & ~self._overloaded(0.0, self._sends[row], at)

    def _overloaded(self, cpus: float, network: float, at: At = EVERYWHERE) -> Bools:
        """(nodes,) with so many CPUs, and such a share of the network, more in use."""
        return self._full[at] | self._crowded(cpus, at) | (self.network[at] + network > self.settings.overload)

    def _crowded(self, cpus: float, at: At = EVERYWHERE) -> Bools:
        """(nodes,) whether more CPUs than the threshold allows are in use, and more than are allocated."""
        capacity, load = self.snapshot.nodes.capacity[at, CPUS], self.load[at] + cpus
        held = capacity - self.space.free[at, CPUS] + cpus
        return (load > self.settings.overload * capacity) & (load > held + 1e-6)

    def _on_one(self, row: int, candidates: Ints) -> Placement | None:
        """The job's place on one of these nodes, if there are any."""
        if not len(candidates):
            return None
        node = self._most_like_the_ideal(row, candidates) if len(candidates) > 1 else int(candidates[0])
        return Placement((node,), (int(self.snapshot.jobs.gpus[row]),))

    def _spread(self, row: int, nodes: Bools) -> Placement | None:
        """The job's place over as few of these nodes (nodes,) as will do."""
        return self.space.fit(row, int(self.snapshot.jobs.gpus[row]), nodes=nodes)

    def _most_like_the_ideal(self, row: int, candidates: Ints) -> int:
        """The candidate with min ||U_s - V||; every dimension of U within [0, 1]."""
        unit = self._unit[candidates]
        allocated = 1.0 - self.space.free[candidates] * unit
        load, network = self.load[candidates] * unit[:, CPUS], self.network[candidates]
        ideal = allocated.max(axis=0) if self.settings.ideal == "tight" else allocated.min(axis=0)
        away = ((allocated - ideal) ** 2).sum(axis=1)
        away += (load - load.min()) ** 2 + (network - network.min()) ** 2
        if self.settings.use_bandwidth and self._family[self.snapshot.jobs.ml_job[row]] > 1:
            volume = np.maximum(self.mates(row), 0.0)  # what was taken off again leaves a rounding below 0
            away += (1.0 - volume[candidates] / max(float(volume.max()), 1e-300)) ** 2
        return int(candidates[away.argmin()])


def volumes(snapshot: Snapshot) -> Floats:
    """(n,) how much each job communicates, where the jobs of one ML job are compared.

    Their traffic if all of them told it, else the parameters they hold; one that names none has the mean of the others.
    """
    jobs, n = snapshot.jobs, len(snapshot.jobs)
    silent = np.bincount(jobs.ml_job, ~(jobs.traffic > 0), minlength=n)[jobs.ml_job] > 0
    volume = np.where(silent, jobs.params, jobs.traffic)
    known = volume > 0
    sums = np.bincount(jobs.ml_job, np.where(known, volume, 0.0), minlength=n)
    counts = np.bincount(jobs.ml_job, known, minlength=n)
    mean = np.divide(sums, counts, out=np.ones(n), where=counts > 0)
    return np.where(known, volume, mean[jobs.ml_job])


def network_shares(snapshot: Snapshot) -> Floats:
    """(n,) the share of the network of each of its nodes that a job takes.

    By its traffic, in the proportion in which the traffic told on all nodes makes their networks busy. Of jobs that
    tell none, those over several nodes take what is left of these nodes' networks, by their GPUs.
    """
    jobs, on, nodes = snapshot.jobs, snapshot.runs_on, snapshot.nodes
    n, there = len(jobs), len(nodes.names)
    row, node, network = on[:, 0], on[:, 1], np.nan_to_num(nodes.network)
    told = np.where(jobs.traffic > 0, jobs.traffic, 0.0)
    sent = np.bincount(node, told[row], minlength=there)
    both = (sent > 0) & (network > 0)
    shares = told * (network[both].sum() / sent[both].sum() if both.any() else 0.0)
    spans = np.bincount(row, minlength=n)
    silent = (told[row] == 0) & (spans[row] > 1)
    weights = np.where(silent, on[:, 2], 0.0)
    left = np.maximum(network - np.bincount(node, shares[row], minlength=there), 0.0)
    whole = np.bincount(node, weights, minlength=there)[node]
    each = np.divide(left[node] * weights, whole, out=np.zeros(len(on)), where=whole > 0)
    return shares + np.bincount(row, each, minlength=n) / np.maximum(spans, 1)
