"""Affinity and migration: jobs of equal size share nodes, and jobs leave overloaded nodes."""

from dataclasses import dataclass

import numpy as np

from policies.placement.allocation import (
    Allocation,
    allocate,
    gang_gpus,
    held_gpus,
    movable,
    placement_action,
    queue_order,
    score_from_order,
)
from policies.placement.network import NetworkReports
from policies.placement.plans import admission_releases
from policies.plan import Action, Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats
from predictors.forecast import Forecasts


@dataclass(frozen=True)
class GandivaSettings:
    """overload: share of a node's CPUs, memory or network in use above which it is overloaded. patience: seconds that
    a job runs before it may be migrated. moves: most migrations in one cycle."""

    overload: float = 0.9
    patience: float = 600.0
    moves: int = 4

    def __post_init__(self) -> None:
        if not self.overload > 0:
            raise ValueError(f"overload is a share greater than 0, not {self.overload}")
        if not self.patience >= 0 or self.moves < 0:
            raise ValueError("patience and moves are numbers not less than 0")


class Gandiva(Policy):
    """First in, first out, with affinity and migration (Xiao et al., OSDI 2018).

    Section 4.1: a job is placed where jobs of its size run (affinity), else on free nodes, else where there is room,
    and jobs that fit overtake one that does not. Section 4.2, as MLFS (CoNEXT 2020, section 2) describes it: from an
    overloaded node the job with the fewest GPUs migrates, and a job on more nodes than it needs is consolidated. It
    does not pack two jobs onto one GPU, share its time or grow jobs into idle ones (3.3, 4.2): Slurm allocates whole
    GPUs.
    """

    name = "gandiva"

    def __init__(self, settings: GandivaSettings | None = None) -> None:
        self.settings: GandivaSettings = settings or GandivaSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by submission, place by affinity, and migrate jobs off overloaded nodes or onto fewer nodes."""
        jobs = snapshot.jobs
        order = queue_order(jobs)
        measured = measured_load(snapshot) > self.settings.overload
        reports = NetworkReports(snapshot)
        overloaded = measured | (reports.by_anyone > self.settings.overload)
        on = snapshot.runs_on
        held = held_gpus(snapshot)
        empty = np.bincount(on[:, 1], minlength=len(overloaded)) == 0

        def affine_nodes(row: int) -> Bools:
            alike = np.zeros(len(overloaded), dtype=bool)
            alike[on[held[on[:, 0]] == jobs.gpus[row], 1]] = True
            return np.asarray((alike | empty) & ~overloaded)

        allocation = allocate(
            snapshot, order, gang_gpus(snapshot, order, preempt=False), exact=True, prefer=affine_nodes
        )
        moves = self._migrations(snapshot, allocation, measured, reports)
        return Plan(score_from_order(jobs, order), actions=(*allocation.actions, *moves, *admission_releases(jobs)))

    def _migrations(
        self, snapshot: Snapshot, allocation: Allocation, measured: Bools, reports: NetworkReports
    ) -> list[Action]:
        """measured (nodes,): overloaded as Slurm measures it; a job that reports so of its network leaves, too."""
        jobs, on, space = snapshot.jobs, snapshot.runs_on, allocation.after()
        held = held_gpus(snapshot)
        settled = movable(jobs) & (snapshot.elapsed >= self.settings.patience)
        spread = np.bincount(on[:, 0], minlength=len(jobs))
        relieved: set[int] = set()
        moves: list[Action] = []
        complains = jobs.network > self.settings.overload
        on_overloaded = complains | (np.bincount(on[measured[on[:, 1]], 0], minlength=len(jobs)) > 0)
        candidates = np.flatnonzero(settled & (held > 0) & (on_overloaded | (spread > 1)))
        for row in candidates[np.lexsort((candidates, held[candidates], ~on_overloaded[candidates]))].tolist():
            if len(moves) >= self.settings.moves:
                break
            here = space.place(row)
            relieves = {node for node in here.nodes if measured[node] or complains[row]} - relieved
            if not relieves and len(here.nodes) == 1:
                continue
            own = reports.by_user(str(jobs.user[row])) > self.settings.overload
            place = space.fit(row, int(held[row]), nodes=~(measured | own))
            if place is None or not (relieves or len(place.nodes) < len(here.nodes)):
                continue
            space.give(row, here)
            space.take(row, place)
            relieved |= relieves
            moves.append(placement_action(snapshot, row, place, int(held[row])))
        return moves


def measured_load(snapshot: Snapshot) -> Floats:
    """(nodes,) the greater share in use of a node's CPUs and memory; 0 where neither is known."""
    nodes = snapshot.nodes
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(nodes.capacity[:, 1:] > 0, nodes.load[:, 1:] / nodes.capacity[:, 1:], np.nan)
    return np.asarray(np.fmax.reduce(shares, axis=1, initial=0.0))
