"""Which shape a job may have with another number of GPUs, and where there is room for it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from policies.placement.gpu_types import gpu_capacity
from policies.placement.space import Space
from policies.plan import Reason
from policies.snapshot import Snapshot
from predictors.arrays import Bools, Floats, Ints
from slurmplug.cluster.limits import ResourceUse
from slurmplug.cluster.port import JobRows
from slurmplug.operations.values import Observation
from slurmplug.rules.sizes import MAX_NODES


class ActionImpossible(Exception):
    """The action cannot be carried out; `reason` says why, by its rule and facts."""

    def __init__(self, rule: str, **facts: float | str) -> None:
        super().__init__(rule)
        self.reason = Reason(rule, facts)


class Shape(NamedTuple):
    """The number of nodes, and of GPUs on each."""

    nodes: int
    gpus_per_node: int


@dataclass(frozen=True)
class PlacedShape:
    """A shape, and nodes that have room for it now."""

    shape: Shape
    nodes: tuple[str, ...]


def find_place(
    observation: Observation,
    row: int,
    gpus: int,
    *,
    requested: Sequence[str] = (),
    excluded: Sequence[str] = (),
    node_count: int = 0,
    time_limit: float | None = None,
) -> PlacedShape:
    """Find room for `gpus` GPUs of a running job, as if it had released its own.

    `requested`: only on these nodes, where any are named; `excluded`: not on these. `node_count`: on exactly so many
    nodes; 0 keeps the job's number of nodes where it can. Several nodes have GPUs of one type (`Space.together`). The
    job's own nodes come first, then the fullest that suffice.

    Nodes that are reserved before the job's time limit would end are left out: Slurm starts no such job there.
    `time_limit`: the one in seconds that it gets; None for its own.

    Raises:
        ActionImpossible: `no place`, there is no room now; `maintenance`, there is room only on nodes that are down,
            drained or reserved; `no nodes`, none could ever serve it.
    """
    snapshot = observation.snapshot
    everywhere = replace(snapshot.nodes, up=np.ones(len(snapshot.nodes.up), dtype=bool))
    space = Space(replace(snapshot, nodes=everywhere))
    present = space.place(row)
    space.give(row, present)
    names = snapshot.nodes.names
    allowed = ~np.isin(names, list(excluded))
    if requested:
        allowed &= np.isin(names, list(requested))
    own = np.isin(np.arange(len(names)), list(present.nodes))
    shapes = _even_shapes(snapshot, row, gpus, max(1, len(present.nodes)), node_count or len(requested))
    room = np.where(allowed, space.room(row), 0.0)
    in_service = np.where(_in_service(observation, row, time_limit), room, 0.0)
    sets = sorted(Space(snapshot).together(row, gpus), key=lambda each: -int((each & own).sum()))
    for shape in shapes:
        if found := _sufficient(shape, in_service, sets):
            chosen = found[0][np.lexsort((found[0], in_service[found[0]], ~own[found[0]]))][: shape.nodes]
            return PlacedShape(shape, tuple(names[node] for node in sorted(chosen.tolist())))
    if any(_sufficient(shape, room, sets) for shape in shapes):
        raise ActionImpossible("maintenance", gpus=gpus)
    raise ActionImpossible("no place", gpus=gpus)


def _sufficient(shape: Shape, room: Floats, sets: Sequence[Bools]) -> list[Ints]:
    """Of each of these sets of nodes the nodes with room (nodes,) for a part of this shape, where they are enough; of
    all sets together for a shape of one node."""
    together = sets if shape.nodes > 1 else [np.logical_or.reduce(sets)]
    found = [np.flatnonzero(each & (room >= shape.gpus_per_node)) for each in together]
    return [nodes for nodes in found if len(nodes) >= shape.nodes]


def feasible_shape(
    observation: Observation, row: int, gpus: int, nodes: int, *, node_count: int = 0, time_limit: float | None = None
) -> Shape:
    """The shape of `gpus` GPUs for a pending job: on `nodes` nodes where some could serve it, else on the fewest.

    `node_count`: on exactly so many, 0 for any. `time_limit`: the one in seconds that it gets; None for its own.

    Raises:
        ActionImpossible: `no nodes`, none could ever serve it; `maintenance`, those that could are down, drained, or
            reserved before the job's time limit would end.
    """
    snapshot = observation.snapshot
    shapes = _even_shapes(snapshot, row, gpus, nodes, node_count)
    in_service = np.where(_in_service(observation, row, time_limit), _capacity(snapshot, row), 0.0)
    found = next((each for each in shapes if (in_service >= each.gpus_per_node).sum() >= each.nodes), None)
    if found is None:
        raise ActionImpossible("maintenance", gpus=gpus)
    return found


def _in_service(observation: Observation, row: int, time_limit: float | None) -> Bools:
    """(nodes,) whether Slurm starts the job there today, for as long as its time limit: up, and not reserved before."""
    snapshot = observation.snapshot
    limit = float(snapshot.jobs.time_limit[row]) if time_limit is None else time_limit
    end = np.inf if np.isnan(limit) else snapshot.now + limit
    begins = np.array([observation.reserved_from.get(name, np.inf) for name in snapshot.nodes.names])
    return np.asarray(snapshot.nodes.up & (begins >= end))


def _even_shapes(snapshot: Snapshot, row: int, gpus: int, nodes: int, node_count: int) -> list[Shape]:
    """The even shapes of `gpus` GPUs that some nodes could serve if they were empty.

    Those on `nodes` nodes come first, then those on the fewest; `node_count`: only those on exactly so many, 0 for any.

    Raises:
        ActionImpossible: there is none.
    """
    capacity = _capacity(snapshot, row)
    others = [n for n in range(1, max(MAX_NODES, nodes) + 1) if n != nodes]
    counts = [node_count] if node_count else [nodes, *others]
    found = [Shape(n, gpus // n) for n in counts if gpus % n == 0 and (capacity >= gpus // n).sum() >= n]
    if not found:
        raise ActionImpossible("no nodes", gpus=gpus)
    return found


def _capacity(snapshot: Snapshot, row: int) -> Floats:
    """(nodes,) The GPUs that the job could have on each node if that were empty; 0 where it may not run."""
    demand, capacity = snapshot.jobs.demand[row], snapshot.nodes.capacity
    units = gpu_capacity(snapshot, int(snapshot.jobs.placement[row]))
    for resource in range(1, capacity.shape[1]):
        if demand[0] > 0 and demand[resource] > 0:
            units = np.minimum(units, capacity[:, resource] * demand[0] / demand[resource])
    return np.asarray(np.floor(units + 1e-9))


def check_limits(observation: Observation, row: int, gpus: int) -> None:
    """Checks the limits of QOS and associations on the resources of the job with `gpus` GPUs.

    Raises:
        ActionImpossible: a limit would keep the job pending, or it is to grow and the limits are not known.
    """
    if observation.limits is None and gpus > observation.snapshot.jobs.gpus[row]:
        raise ActionImpossible("limits not known")
    if limit := _exceeded(observation, row, gpus):
        raise ActionImpossible("limit", limit=limit)


def _exceeded(observation: Observation, row: int, gpus: int) -> str:
    jobs, queue = observation.snapshot.jobs, observation.queue
    if observation.limits is None or queue is None:
        return ""
    before = max(1, int(jobs.gpus[row]))
    running: Bools = np.isin(queue.state, ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"))
    others = [_use(queue, at) for at in np.flatnonzero(running & (queue.job_id != jobs.keys[row].job_id)).tolist()]
    found = np.flatnonzero(queue.job_id == jobs.keys[row].job_id)
    if not len(found):
        return ""
    present = _use(queue, int(found[0]))
    grown: Mapping[str, float] = {
        "gres/gpu": float(gpus),
        "cpu": present.tres["cpu"] * gpus / before,
        "mem": present.tres["mem"] * gpus / before,
        "node": present.tres["node"],
    }
    return observation.limits.exceeded(present._replace(tres=grown), others)


def _use(queue: JobRows, row: int) -> ResourceUse:
    amounts = {"gres/gpu": queue.gpus[row], "cpu": queue.cpus[row], "mem": queue.memory[row], "node": queue.nodes[row]}
    user, account, qos, partition = (str(each[row]) for each in (queue.user, queue.account, queue.qos, queue.partition))
    return ResourceUse(user, account, qos, partition, {name: float(value) for name, value in amounts.items()})
