"""What a scheduling pass of the simulated Slurm sees: the queue, what running jobs hold, and the nodes."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.sim.engine.workload_table import units

Demand: TypeAlias = tuple[float, ...]
"""Of each resource, what one of the equal parts of a request needs."""


@dataclass(frozen=True, eq=False)
class Pending:
    """The queue, a column a property (n,), in order of submission; times are seconds.

    nodes: it requests this number, and as much of each; up to 1: as few as can hold it. demand: (n, resources) of each
    of its GPUs, the first being the GPU itself, or of each of its nodes where `gpus` is 0. eligible: since when it has
    waited. begin: not before. reservation: its name, or empty. user, account: empty where nothing goes by them. whole:
    it gets whole nodes, None if no job does; else the last of the resources is the node itself. assoc: the priority of
    its association, from 0 to 1, None if none has any.
    """

    gpus: Ints
    nodes: Ints
    demand: Floats
    time_limit: Floats
    eligible: Floats
    begin: Floats
    qos: Texts
    partition: Texts
    reservation: Texts
    nice: Floats
    site_factor: Floats
    user: Texts = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    account: Texts = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    whole: Bools | None = None
    assoc: Floats | None = None

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def units(self) -> Ints:
        """(n,) what a job requests so many times `demand` of: its GPUs, else its nodes."""
        return units(self.gpus, self.nodes)


@dataclass(frozen=True, eq=False)
class HeldResources:
    """What running jobs hold, an entry (k,) a job and node: amounts (k, resources), and until when by time limit."""

    node: Ints
    amount: Floats
    until: Floats


@dataclass(frozen=True, eq=False)
class NodeResources:
    """Nodes: what is free (m, resources), all there is (m, resources), the name of the reservation on each or empty.

    A node that takes no job has nothing free and is not `up`.
    """

    free: Floats
    total: Floats
    reservation: Texts
    up: Bools


@dataclass(frozen=True)
class Start:
    """The job of that row starts on `nodes` with `shares` GPUs each."""

    row: int
    nodes: tuple[int, ...]
    shares: tuple[int, ...]


def joined(held: HeldResources, nodes: Ints, amounts: Floats, until: Floats) -> HeldResources:
    """What is held, and these amounts (k, resources) of these nodes (k,) until then (k,)."""
    return HeldResources(
        node=np.concatenate([held.node, nodes]),
        amount=np.concatenate([held.amount, amounts]),
        until=np.concatenate([held.until, until]),
    )
