"""When the nodes have room for a job that is not submitted yet, if nothing but what runs now is in its way.

Resources that are spread over nodes do not add up: four nodes with one free GPU each cannot hold a part of a job that
needs four GPUs of one node.
"""

from dataclasses import dataclass

import numpy as np

from policies.placement.parts import parts_on
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Parts:
    """A job in `count` equal parts, each on one node, and if they are `apart` no two on the same. needs: (resources,)
    of one part."""

    count: int
    apart: bool
    needs: Floats


def room_at(snapshot: Snapshot, nodes: Bools, running: Ints, ends: Floats, parts: Parts) -> Floats:
    """(samples,) the seconds from now until the nodes (n,) have room for all parts; infinite where they never do.

    running: (k,) rows of jobs, and ends: (k, samples) the seconds until each ends. A node on which nothing runs any
    more is free as a whole.
    """
    samples = ends.shape[1]
    place = np.full(len(snapshot.jobs), -1)
    place[running] = np.arange(len(running))
    on = snapshot.runs_on[place[snapshot.runs_on[:, 0]] >= 0]
    held = snapshot.jobs.demand[on[:, 0]] / np.bincount(on[:, 0], minlength=len(snapshot.jobs))[on[:, 0], None]
    held[:, 0] = on[:, 2]
    by_jobs = np.zeros_like(snapshot.nodes.used)
    np.add.at(by_jobs, on[:, 1], held)
    free = snapshot.nodes.capacity - np.maximum(snapshot.nodes.used, by_jobs)
    times, more = [], []
    for node in np.flatnonzero(nodes & snapshot.nodes.up).tolist():
        here = np.flatnonzero(on[:, 1] == node)
        at = ends[place[on[here, 0]]]
        order = np.argsort(at, axis=0, kind="stable")
        then = free[node] + np.cumsum(held[here][order], axis=0)
        then[-1:] = snapshot.nodes.capacity[node]
        now = np.broadcast_to(free[node], (1, samples, free.shape[1]))
        room = np.maximum(parts_on(np.concatenate([now, then]), parts.needs), 0.0)
        room = np.minimum(room, 1 if parts.apart else parts.count)
        times.append(np.concatenate([np.zeros((1, samples)), np.take_along_axis(at, order, axis=0)]))
        more.append(np.diff(room, axis=0, prepend=0.0))
    if not times:
        return np.full(samples, np.inf)
    every, added = np.concatenate(times), np.concatenate(more)
    order = np.argsort(every, axis=0, kind="stable")
    enough = np.cumsum(np.take_along_axis(added, order, axis=0), axis=0) >= parts.count
    first = np.take_along_axis(np.take_along_axis(every, order, axis=0), enough.argmax(axis=0)[None], axis=0)[0]
    return np.where(enough.any(axis=0), first, np.inf)
