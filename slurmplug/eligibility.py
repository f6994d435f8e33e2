"""Where a job can run: partition, features, reservation and typed GPUs against the nodes."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from policies.snapshot import RESOURCES, Nodes
from predictors.arrays import Bools
from slurmplug.cluster.port import NodeRows, Reservation

NOT_UP = frozenset(
    "down drain draining drained error fail failing future inval maint not_responding planned_down power_down "
    "powered_down powering_down reboot reboot_issued unknown".split()
)
"""Node states and flags in which no job starts (sinfo(1), NODE STATE CODES)."""
MOST_NODES = 100_000
_TOKEN = re.compile(r"[&|()\[\]]|\*\d+|[^&|()\[\]*\s]+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class PlacementClass(NamedTuple):
    """What of a job decides where it can run; jobs that agree in it share a row of `Snapshot.fits`."""

    partition: str
    features: str
    reservation: str
    gpu_type: str


def nodes_of(rows: NodeRows) -> Nodes:
    """The nodes in columns of the resources; the load is the CPUs', and the memory that the system has in use."""
    gpus = np.array([sum(types.values()) for types in rows.gpus], dtype=float)
    gpus_used = np.array([sum(types.values()) for types in rows.gpus_used], dtype=float)
    in_memory = rows.memory - rows.memory_free
    return Nodes(
        names=rows.name,
        up=np.array([not state & NOT_UP for state in rows.state], dtype=bool),
        capacity=_columns(gpus, rows.cpus, rows.memory),
        used=_columns(gpus_used, rows.cpus_used, rows.memory_used),
        load=_columns(np.full(len(gpus), np.nan), rows.cpu_load, in_memory),
        load_age=np.zeros(len(gpus)),
    )


def fits(classes: Sequence[PlacementClass], nodes: NodeRows, reservations: Sequence[Reservation], now: float) -> Bools:
    """(placement classes, nodes): whether a job of that class may run there, however full it is."""
    open_now = {r.name: r for r in reservations if r.start <= now < r.end}
    set_aside = frozenset().union(*(r.nodes for r in open_now.values()))
    table = np.zeros((len(classes), len(nodes.name)), dtype=bool)
    for row, wanted in enumerate(classes):
        partitions = frozenset(wanted.partition.split(","))
        inside = open_now[wanted.reservation].nodes if wanted.reservation in open_now else None
        for column, name in enumerate(nodes.name):
            table[row, column] = (
                bool(partitions & nodes.partitions[column])
                and satisfies(wanted.features, nodes.features[column])
                and (name in inside if inside is not None else not wanted.reservation and name not in set_aside)
                and (not wanted.gpu_type or wanted.gpu_type in nodes.gpus[column])
            )
    return table


def satisfies(constraint: str, features: frozenset[str]) -> bool:
    """Whether a node with these features meets a job's --constraint (sbatch(1)).

    & and | are taken from left to right, parentheses and brackets group, and counts (`*2`) are left out: they say how
    many nodes must, not which can.
    """
    stack: list[tuple[bool | None, str]] = []
    value: bool | None = None
    operator = "&"
    for token in _TOKEN.findall(constraint):
        if token in "([":
            stack.append((value, operator))
            value, operator = None, "&"
        elif token in ")]":
            if stack:
                outer, pending = stack.pop()
                value, operator = _joined(outer, pending, value is not False), "&"
        elif token in "&|":
            operator = token
        elif not token.startswith("*"):
            value, operator = _joined(value, operator, token in features), "&"
    return value is not False


def expand(hostlist: str) -> list[str]:
    """The names in a host list such as `n[1-3,07],login` (scontrol(1), show hostnames), at most MOST_NODES."""
    names: list[str] = []
    for item in re.findall(r"[^,\[\]]+(?:\[[^\[\]]*\][^,\[\]]*)*", hostlist):
        prefixes = [""]
        for literal, ranges in re.findall(r"([^\[\]]+)|\[([^\[\]]*)\]", item):
            prefixes = [head + tail for head in prefixes for tail in ([literal] if literal else _numbers(ranges))]
            if len(prefixes) > MOST_NODES:
                raise ValueError(f"a host list of more than {MOST_NODES} nodes")
        names += prefixes
    return names


def _numbers(ranges: str) -> list[str]:
    found = []
    for low, high in _RANGE.findall(ranges):
        if int(high or low) - int(low) > MOST_NODES:
            raise ValueError(f"a host list of more than {MOST_NODES} nodes")
        found += [str(number).zfill(len(low)) for number in range(int(low), int(high or low) + 1)]
    return found


def _joined(left: bool | None, operator: str, right: bool) -> bool:
    if left is None:
        return right
    return left and right if operator == "&" else left or right


def _columns(gpus: np.ndarray, cpus: np.ndarray, memory: np.ndarray) -> np.ndarray:
    by_name: Mapping[str, np.ndarray] = {"gpus": gpus, "cpus": cpus, "memory": memory}
    return np.stack([np.asarray(by_name[name], dtype=float) for name in RESOURCES], axis=1)
