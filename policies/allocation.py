"""Deprecated: the earlier place of `policies.placement`, kept for sites' own policies."""

import warnings

from policies.placement.allocation import Allocation, allocate, elastic, held_gpus, movable, startable
from policies.placement.allocation import gang_gpus as _gang_gpus
from policies.placement.allocation import group_gangs as teams
from policies.placement.allocation import grow_elastic as grown
from policies.placement.allocation import leftover_gpus as left_over
from policies.placement.allocation import managed_score as within
from policies.placement.allocation import placement_action as placing
from policies.placement.allocation import queue_order as in_order
from policies.placement.allocation import score_from_order as ranked
from policies.placement.space import Packing, Space
from policies.placement.space import Placement as Place
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Ints

__all__ = [
    "Allocation",
    "Packing",
    "Place",
    "Space",
    "allocate",
    "elastic",
    "gangs",
    "grown",
    "held_gpus",
    "in_order",
    "left_over",
    "movable",
    "placing",
    "ranked",
    "startable",
    "teams",
    "within",
]

warnings.warn(
    "policies.allocation is deprecated: import from policies.placement.allocation and policies.placement.space",
    DeprecationWarning,
    stacklevel=2,
)


def gangs(snapshot: Snapshot, order: Ints, *, preempt: Bools | bool, asked: Ints | None = None) -> Ints:
    """As `policies.placement.allocation.gang_gpus`, whose `requested` was called `asked`."""
    return _gang_gpus(snapshot, order, preempt=preempt, requested=asked)
