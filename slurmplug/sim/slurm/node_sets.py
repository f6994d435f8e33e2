"""Sets of nodes as integers with a bit for each node, which are faster than arrays for a few hundred or thousand."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from predictors.arrays import Bools, Ints

NodeSet: TypeAlias = int
"""Bit n is set for node n."""


def node_set(nodes: Bools) -> NodeSet:
    """The set of these nodes (m,)."""
    return int.from_bytes(np.packbits(nodes, bitorder="little").tobytes(), "little")


def all_of(nodes: int) -> NodeSet:
    """The set of so many nodes."""
    return (1 << nodes) - 1


def numbers(nodes: NodeSet) -> Ints:
    """Those of the nodes of a set (k,), in order."""
    return np.flatnonzero(flags(nodes, nodes.bit_length()))


def flags(nodes: NodeSet, count: int) -> Bools:
    """(count,) whether each of so many nodes is in a set of them."""
    packed = np.frombuffer(nodes.to_bytes(-(-count // 8), "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)


def each_of(nodes: NodeSet) -> Iterator[int]:
    """The nodes of a set, in order; faster than `numbers` for a few."""
    while nodes:
        node = (nodes & -nodes).bit_length() - 1
        yield node
        nodes &= nodes - 1


def first_of(nodes: NodeSet, count: int) -> NodeSet:
    """The first so many nodes of a set that has as many."""
    left = nodes
    for _ in range(count):
        left &= left - 1
    return nodes ^ left
