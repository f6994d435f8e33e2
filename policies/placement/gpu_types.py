"""GPUs by type: what a job that requests one type can have on each node."""

import numpy as np

from policies.snapshot import Nodes, Snapshot
from predictors.arrays import Bools, Floats, Ints


def gpu_capacity(snapshot: Snapshot, placement: int) -> Floats:
    """(nodes,) the GPUs that a job of this placement class could have on each node if that were empty."""
    wanted = int(snapshot.type_of_class[placement]) if len(snapshot.type_of_class) else -1
    capacity = snapshot.nodes.capacity[:, 0] if wanted < 0 else snapshot.nodes.of_type[:, wanted]
    return np.where(snapshot.fits[placement], capacity, 0.0)


def nodes_by_type(nodes: Nodes) -> tuple[Bools, ...]:
    """The nodes (nodes,) of each type of GPU; empty where all have the same. Several types on a node, and GPUs without
    one, are each a type of their own."""
    if not nodes.gpu_types:
        return ()
    with_gpus = nodes.capacity[:, 0] > 0
    if not with_gpus.any():
        return ()
    untyped = nodes.capacity[:, :1] > nodes.of_type.sum(axis=1, keepdims=True)
    has = np.concatenate([nodes.of_type > 0, untyped], axis=1)
    if (has[with_gpus] == has[with_gpus.argmax()]).all():
        return ()
    return tuple((has == each).all(axis=1) for each in np.unique(has[with_gpus], axis=0))


def counted_types(snapshot: Snapshot) -> Ints:
    """The types of GPU, by their place in `Nodes.gpu_types`, that jobs request and that share a node with others.

    Of those alone GPUs have to be counted by type: elsewhere `Snapshot.fits` says where a job that requests one fits.
    """
    if not len(snapshot.type_of_class):
        return np.zeros(0, dtype=np.int64)
    requested = np.unique(snapshot.type_of_class[snapshot.type_of_class >= 0])
    shared = np.any((snapshot.nodes.of_type > 0) & _several(snapshot.nodes)[:, None], axis=0)
    return np.intersect1d(requested, np.flatnonzero(shared))


def split_by_type(snapshot: Snapshot, free: Floats, back: Ints) -> tuple[Bools, Floats]:
    """`Snapshot.fits` and the free GPUs of the nodes that are up, where a node with GPUs of several types, of which
    jobs request one, counts as one node for each type: (placement classes, parts) and (parts,).

    free: (nodes,) free GPUs, with those of `back` (k, 3), allocations that jobs may lose.
    """
    nodes, wanted = snapshot.nodes, snapshot.type_of_class
    if not len(counted_types(snapshot)):
        return snapshot.fits[:, nodes.up], free[nodes.up]
    several = _several(nodes)
    free_of_type = nodes.of_type - nodes.of_type_used
    given = wanted[snapshot.jobs.placement[back[:, 0]]]
    np.add.at(free_of_type, (back[given >= 0, 1], given[given >= 0]), back[given >= 0, 2])
    fits, parts = [snapshot.fits[:, nodes.up & ~several]], [free[nodes.up & ~several]]
    several &= nodes.up
    rest = free[several]
    for place in range(len(nodes.gpu_types)):
        part = np.clip(free_of_type[several, place], 0.0, rest)
        rest = rest - part
        fits.append(snapshot.fits[:, several] & ((wanted < 0) | (wanted == place))[:, None])
        parts.append(part)
    fits.append(snapshot.fits[:, several] & (wanted < 0)[:, None])
    return np.concatenate(fits, axis=1), np.concatenate([*parts, rest])


def _several(nodes: Nodes) -> Bools:
    """(nodes,) whether not all GPUs of the node are of one type."""
    return np.asarray(nodes.of_type.max(axis=1, initial=0.0) < nodes.capacity[:, 0])
