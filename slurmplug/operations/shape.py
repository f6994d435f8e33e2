"""What a job of another number of GPUs asks for, and where there is room for it. Pure.

Slurm lets a waiting job's GPUs for each node be changed, its nodes, tasks, CPUs and memory (scontrol(1), update), but
not what it asked by job, socket or task, nor its tasks for each node. So the shape changes in whole nodes or GPUs for
each node, and everything else in proportion.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from policies.placement.space import Space
from policies.plan import Reason
from policies.snapshot import Snapshot
from predictors.arrays import Bools
from slurmplug.cluster import tres
from slurmplug.cluster.limits import Use
from slurmplug.cluster.port import Asked, JobRows
from slurmplug.operations.values import Sight

MOST_NODES = 64
"""A job is spread over no more nodes than this by a resize, or than it has."""


class Refused(Exception):
    """The action cannot be carried out; the argument is the reason."""

    def __init__(self, rule: str, **facts: float | str) -> None:
        super().__init__(rule)
        self.reason = Reason(rule, facts)


class Shape(NamedTuple):
    """So many nodes of so many GPUs."""

    nodes: int
    gpus_a_node: int


def fields(asked: Asked, shape: Shape) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of the update that gives a job this shape, and of the one that gives its own back.

    Tasks go with the GPUs where there is one for each, else with the nodes; CPUs and memory with the GPUs.

    Raises:
        Refused: it asked in a way that cannot be changed.
    """
    kind, per_node = _gpus_a_node(asked)
    if Shape(asked.nodes, per_node) == shape:
        return {}, {}
    tasks, tasks_after = _tasks(asked, per_node, shape)
    new: dict[str, int | str] = {"Gres": _gres(kind, shape.gpus_a_node)}
    old: dict[str, int | str] = {"Gres": _gres(kind, per_node)}
    if shape.nodes != asked.nodes:
        new["NumNodes"], old["NumNodes"] = f"{shape.nodes}-{shape.nodes}", f"{asked.nodes}-{asked.nodes}"
    if tasks_after != tasks:
        new["NumTasks"], old["NumTasks"] = tasks_after, tasks
    growth = shape.nodes * shape.gpus_a_node / asked.gpus
    if not asked.cpus_by_gpu:
        cpus_a_task = max(1, round(asked.cpus_a_task * growth * tasks / tasks_after))
        cpus = max(cpus_a_task * tasks_after, math.ceil(asked.cpus * growth))
        fewest = max(1, round(asked.fewest_cpus * shape.gpus_a_node / per_node))
        for name, before, after in (
            ("MinCPUsNode", asked.fewest_cpus, fewest),
            ("CPUsPerTask", asked.cpus_a_task, cpus_a_task),
            ("NumCPUs", asked.cpus, cpus),
        ):
            if before != after:
                new[name], old[name] = after, before
    if asked.memory_asked and shape.gpus_a_node != per_node:
        mine = asked.memory / asked.nodes
        new["MinMemoryNode"] = max(1, math.ceil(mine * shape.gpus_a_node / per_node))
        old["MinMemoryNode"] = max(1, math.ceil(mine))
    return {name: str(value) for name, value in new.items()}, {name: str(value) for name, value in old.items()}


def _gpus_a_node(asked: Asked) -> tuple[str, int]:
    found = tres.gpus(asked.gres)
    if asked.gpus_otherwise or len(found) != 1 or "," in asked.gres:
        raise Refused("shape", asked="GPUs otherwise than for each node")
    [(kind, per_node)] = found.items()
    if asked.nodes < 1 or per_node < 1 or asked.nodes * per_node != asked.gpus:
        raise Refused("shape", asked="nodes or GPUs that may vary")
    return kind, per_node


def _gres(kind: str, gpus: int) -> str:
    return f"gpu:{kind}:{gpus}" if kind else f"gpu:{gpus}"


def _tasks(asked: Asked, per_node: int, shape: Shape) -> tuple[int, int]:
    """The tasks before and after."""
    tasks = max(1, asked.tasks)
    if asked.tasks_a_node:
        if asked.tasks_a_node > 1 and shape.gpus_a_node != per_node:
            raise Refused("shape", asked="several tasks for each node")
        return tasks, asked.tasks_a_node * shape.nodes
    if tasks == asked.gpus and tasks > 1:
        return tasks, shape.nodes * shape.gpus_a_node
    if tasks % asked.nodes:
        raise Refused("shape", asked="tasks that nodes cannot share evenly")
    return tasks, tasks // asked.nodes * shape.nodes


@dataclass(frozen=True)
class Place:
    """A shape, and the nodes where there is room for it now."""

    shape: Shape
    nodes: tuple[str, ...]


def place(
    sight: Sight, row: int, gpus: int, *, wanted: Sequence[str] = (), without: Sequence[str] = (), exactly: int = 0
) -> Place:
    """Where a running job, its own GPUs given up, finds room for so many; on the `wanted` nodes, where any are named.

    `exactly`: on so many nodes. Else it keeps its number of nodes where it can. Its nodes come before others, then the
    fullest that suffice.

    Raises:
        Refused: `no place`: there is no room now; `no nodes`: none could ever serve it.
    """
    snapshot = sight.snapshot
    space = Space(snapshot)
    mine = space.place(row)
    space.give(row, mine)
    names = snapshot.nodes.names
    allowed = ~np.isin(names, list(without))
    if wanted:
        allowed &= np.isin(names, list(wanted))
    allowed &= ~np.isin(names, sorted(sight.set_aside))  # reservations do not overlap
    room = np.where(allowed & snapshot.nodes.up, space.room(row), 0.0)
    own = np.isin(np.arange(len(names)), list(mine.nodes))
    for shape in shapes(snapshot, row, gpus, max(1, len(mine.nodes)), exactly or len(wanted)):
        enough = np.flatnonzero(room >= shape.gpus_a_node)
        if len(enough) >= shape.nodes:
            chosen = enough[np.lexsort((enough, room[enough], ~own[enough]))][: shape.nodes]
            return Place(shape, tuple(names[node] for node in sorted(chosen.tolist())))
    raise Refused("no place", gpus=gpus)


def shapes(snapshot: Snapshot, row: int, gpus: int, nodes: int, exactly: int = 0) -> list[Shape]:
    """Even shapes of so many GPUs that some nodes could serve if they were empty: of as many nodes first, then fewest.

    Raises:
        Refused: there is none.
    """
    capacity = np.where(snapshot.fits[snapshot.jobs.placement[row]], _capacity(snapshot, row), 0.0)
    counts = [exactly] if exactly else [nodes, *(n for n in range(1, max(MOST_NODES, nodes) + 1) if n != nodes)]
    found = [Shape(n, gpus // n) for n in counts if gpus % n == 0 and (capacity >= gpus // n).sum() >= n]
    if not found:
        raise Refused("no nodes", gpus=gpus)
    return found


def _capacity(snapshot: Snapshot, row: int) -> np.ndarray:
    """(nodes,) GPUs that the job could have on each, if that were empty."""
    demand, capacity = snapshot.jobs.demand[row], snapshot.nodes.capacity
    units = capacity[:, 0]
    for resource in range(1, capacity.shape[1]):
        if demand[0] > 0 and demand[resource] > 0:
            units = np.minimum(units, capacity[:, resource] * demand[0] / demand[resource])
    return np.floor(units + 1e-9)


def within_limits(sight: Sight, row: int, gpus: int) -> None:
    """
    Raises:
        Refused: a limit of a QOS or association would hold the job with so many GPUs, or more are wanted and the limits
            are not known.
    """
    if sight.limits is None and gpus > sight.snapshot.jobs.gpus[row]:
        raise Refused("limits not known")
    if limit := _exceeded(sight, row, gpus):
        raise Refused("limit", limit=limit)


def _exceeded(sight: Sight, row: int, gpus: int) -> str:
    jobs, queue = sight.snapshot.jobs, sight.queue
    if sight.limits is None or queue is None:
        return ""
    before = max(1, int(jobs.gpus[row]))
    runs: Bools = np.isin(queue.state, ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"))
    others = [_use(queue, at) for at in np.flatnonzero(runs & (queue.job_id != jobs.keys[row].job_id)).tolist()]
    found = np.flatnonzero(queue.job_id == jobs.keys[row].job_id)
    if not len(found):
        return ""
    mine = _use(queue, int(found[0]))
    grown: Mapping[str, float] = {
        "gres/gpu": float(gpus),
        "cpu": mine.tres["cpu"] * gpus / before,
        "mem": mine.tres["mem"] * gpus / before,
        "node": mine.tres["node"],
    }
    return sight.limits.exceeded(mine._replace(tres=grown), others)


def _use(queue: JobRows, row: int) -> Use:
    amounts = {"gres/gpu": queue.gpus[row], "cpu": queue.cpus[row], "mem": queue.memory[row], "node": queue.nodes[row]}
    user, account, qos, partition = (str(each[row]) for each in (queue.user, queue.account, queue.qos, queue.partition))
    return Use(user, account, qos, partition, {name: float(value) for name, value in amounts.items()})
