"""Affinity and migration: jobs of a size side by side, and away from where it is crowded."""

from dataclasses import dataclass

import numpy as np

from policies.allocation import Allocation, allocate, gangs, held_gpus, in_order, movable, placing, ranked
from policies.baselines.common import admitted
from policies.plan import Action, Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats
from predictors.forecast import Forecasts


@dataclass(frozen=True)
class GandivaSettings:
    """overload: share of a node's CPUs, memory or network in use above which it is overloaded. patience: seconds that
    a job runs before it is moved. moves: jobs moved in one cycle at most."""

    overload: float = 0.9
    patience: float = 600.0
    moves: int = 4

    def __post_init__(self) -> None:
        if not self.overload > 0:
            raise ValueError(f"overload is a share greater than 0, not {self.overload}")
        if not self.patience >= 0 or self.moves < 0:
            raise ValueError("patience and moves are numbers not less than 0")


class Gandiva(Policy):
    """First in, first out; on nodes with jobs of as many GPUs; off nodes that are overloaded (Xiao et al., OSDI 2018).

    Section 4.1: a job is put where jobs of its size run (affinity), else on free nodes, else where there is room, and
    what does not fit is overtaken. Section 4.2, and MLFS (CoNEXT 2020, section 2) of it: of an overloaded node the job
    with the fewest GPUs goes to another node, and a job spread over more nodes than it needs is brought together. It
    does not pack two jobs onto one GPU, slice its time or grow jobs into idle ones (3.3, 4.2): Slurm gives GPUs whole.
    """

    name = "gandiva"

    def __init__(self, settings: GandivaSettings | None = None) -> None:
        self.settings: GandivaSettings = settings or GandivaSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 it needs neither
        """Rank by submission, start by affinity, and move from where it is crowded or spread."""
        jobs = snapshot.jobs
        order = in_order(jobs)
        crowded = crowding(snapshot) > self.settings.overload
        on = snapshot.runs_on
        held = held_gpus(snapshot)
        empty = np.bincount(on[:, 1], minlength=len(crowded)) == 0

        def kin(row: int) -> Bools:
            alike = np.zeros(len(crowded), dtype=bool)
            alike[on[held[on[:, 0]] == jobs.gpus[row], 1]] = True
            return np.asarray((alike | empty) & ~crowded)

        allocation = allocate(snapshot, order, gangs(snapshot, order, preempt=False), exact=True, prefer=kin)
        moves = self._moves(snapshot, allocation, crowded)
        return Plan(ranked(jobs, order), actions=(*allocation.actions, *moves, *admitted(jobs)))

    def _moves(self, snapshot: Snapshot, allocation: Allocation, crowded: Bools) -> list[Action]:
        jobs, on, space = snapshot.jobs, snapshot.runs_on, allocation.after()
        held = held_gpus(snapshot)
        settled = movable(jobs) & (snapshot.now - jobs.started >= self.settings.patience)
        spread = np.bincount(on[:, 0], minlength=len(jobs))
        relieved: set[int] = set()
        moves: list[Action] = []
        on_crowded = np.bincount(on[crowded[on[:, 1]], 0], minlength=len(jobs)) > 0
        candidates = np.flatnonzero(settled & (held > 0) & (on_crowded | (spread > 1)))
        for row in candidates[np.lexsort((candidates, held[candidates], ~on_crowded[candidates]))].tolist():
            if len(moves) >= self.settings.moves:
                break
            here = space.place(row)
            troubled = {node for node in here.nodes if crowded[node]} - relieved
            if not troubled and len(here.nodes) == 1:
                continue
            place = space.fit(row, int(held[row]), nodes=~crowded)
            if place is None or not (troubled or len(place.nodes) < len(here.nodes)):
                continue
            space.give(row, here)
            space.take(row, place)
            relieved |= troubled
            moves.append(placing(snapshot, row, place, int(held[row])))
        return moves


def crowding(snapshot: Snapshot) -> Floats:
    """(nodes,) the greatest share in use of what jobs on a node share: CPUs, memory, network; 0 where none is known."""
    nodes = snapshot.nodes
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(nodes.capacity[:, 1:] > 0, nodes.load[:, 1:] / nodes.capacity[:, 1:], np.nan)
    return np.asarray(np.fmax.reduce(np.column_stack([shares, nodes.network]), axis=1, initial=0.0))
