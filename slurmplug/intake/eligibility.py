"""Which nodes a job can run on, by its partition, features, reservation and type of GPU."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from policies.snapshot import RESOURCES, Jobs, Nodes
from predictors.arrays import Bools, Floats, Ints, Texts
from slurmplug.cluster import hostlist
from slurmplug.cluster.port import NodeRows, Reservation
from slurmplug.cluster.tres import is_mig

NOT_UP = frozenset(
    "down drain draining drained error fail failing future inval maint not_responding planned_down power_down "
    "powered_down powering_down reboot reboot_issued unknown".split()
)
"""Node states and flags in which no job starts (sinfo(1), NODE STATE CODES)."""
_NAMES_NODES = re.compile(r"ReqNodeNotAvail, ?UnavailableNodes:(\S+)")
_TOKEN = re.compile(r"[&|(\[]|[)\]](?:\*\d+)?|[^&|()\[\]*\s]+(?:\*\d+)?")


class PlacementClass(NamedTuple):
    """What decides where a job can run; jobs with the same share a row of `Snapshot.fits`."""

    partition: str
    features: str
    reservation: str
    gpu_type: str
    """several joined by commas"""


def nodes_of(rows: NodeRows) -> Nodes:
    """The nodes in columns; their load is the CPU load and the memory in use, as Slurm reports them."""
    whole = sorted({kind for types in rows.gpus for kind in types if not is_mig(kind)})
    by_type, by_type_used = (_counts(types, whole) for types in (rows.gpus, rows.gpus_used))
    gpus, gpus_used = by_type.sum(axis=1), by_type_used.sum(axis=1)
    named = [column for column, kind in enumerate(whole) if kind]
    in_memory = rows.memory - rows.memory_free
    return Nodes(
        names=rows.name,
        up=np.array([not state & NOT_UP for state in rows.state], dtype=bool),
        capacity=_columns(gpus, rows.cpus, rows.memory),
        used=_columns(gpus_used, rows.cpus_used, rows.memory_used),
        load=_columns(np.full(len(gpus), np.nan), rows.cpu_load, in_memory),
        gpu_types=tuple(whole[column] for column in named),
        of_type=by_type[:, named],
        of_type_used=by_type_used[:, named],
    )


def current_reasons(reason: Texts, nodes: Nodes) -> Texts:
    """(n,) Slurm's reasons, but `Priority` where nodes were unavailable that are all up now.

    slurmctld gives that reason to whom it tries after its start before the nodes have answered, and keeps it until it
    tries the job again, which it does not while others ahead of it wait for resources.
    """
    up = {name for name, is_up in zip(nodes.names, nodes.up.tolist(), strict=True) if is_up}
    outdated = [each for each in set(reason.tolist()) if (names := _unavailable(each)) and up.issuperset(names)]
    return np.where(np.isin(reason, outdated), "Priority", reason) if outdated else reason


def _unavailable(reason: str) -> list[str]:
    """The nodes that a reason names as unavailable; of too many, none."""
    found = _NAMES_NODES.fullmatch(reason)
    try:
        return hostlist.expand(found[1]) if found else []
    except ValueError:
        return []


def types_of_classes(classes: Sequence[PlacementClass], nodes: Nodes) -> Ints:
    """`Snapshot.type_of_class` of these classes."""
    places = {kind: place for place, kind in enumerate(nodes.gpu_types)}
    found = np.array([places.get(wanted.gpu_type, -1) for wanted in classes], dtype=np.int64)
    return found if np.any(found >= 0) else found[:0]


def with_only_type(jobs: Jobs, fits: Bools, nodes: Nodes) -> Texts:
    """(n,) `Jobs.gpu_type`, where jobs that wait and request no type have that of the GPUs of all nodes that they fit
    on, if these have one type alone.

    fits: (placement classes, nodes).
    """
    if not nodes.gpu_types:
        return jobs.gpu_type
    there = (nodes.of_type > 0).astype(np.int64)
    types = fits.astype(np.int64) @ np.column_stack([nodes.capacity[:, 0] > nodes.of_type.sum(axis=1), there]) > 0
    only = np.where(types.sum(axis=1) == 1, types.argmax(axis=1), 0)
    names = np.array(["", *nodes.gpu_types])[only]
    unknown = jobs.pending & (jobs.gpu_type == "") & (jobs.gpus > 0)
    return np.where(unknown, names[jobs.placement], jobs.gpu_type)


def fits(classes: Sequence[PlacementClass], nodes: NodeRows, reservations: Sequence[Reservation], now: float) -> Bools:
    """(placement classes, nodes): whether a job of that class may run there, however full it is."""
    open_now = {r.name: r for r in reservations if r.start <= now < r.end}
    set_aside = frozenset().union(*(r.nodes for r in open_now.values()))
    kinds: dict[_NodeKind, int] = {}
    kind_of = np.array(
        [
            kinds.setdefault(_NodeKind(*kind), len(kinds))
            for kind in zip(nodes.partitions, nodes.features, map(frozenset, nodes.gpus), strict=True)
        ],
        dtype=np.int64,
    )
    free = np.array([name not in set_aside for name in nodes.name], dtype=bool)
    table = np.zeros((len(classes), len(nodes.name)), dtype=bool)
    for row, wanted in enumerate(classes):
        reserved = [open_now[name].nodes for name in wanted.reservation.split(",") if name in open_now]
        inside = np.array([any(name in each for each in reserved) for name in nodes.name], bool) if reserved else False
        suits = np.array([_suits(wanted, kind) for kind in kinds], dtype=bool)
        table[row] = suits[kind_of] & (inside if wanted.reservation else free)
    return table


class _NodeKind(NamedTuple):
    """What of a node decides which jobs can run on it."""

    partitions: frozenset[str]
    features: frozenset[str]
    gpu_types: frozenset[str]


def _suits(wanted: PlacementClass, kind: _NodeKind) -> bool:
    return (
        not kind.partitions.isdisjoint(wanted.partition.split(","))
        and satisfies(wanted.features, kind.features)
        and (not wanted.gpu_type or not kind.gpu_types.isdisjoint(wanted.gpu_type.split(",")))
    )


def satisfies(constraint: str, features: frozenset[str]) -> bool:
    """Whether a node with these features can be one of a job's with this --constraint (sbatch(1)).

    & and | are evaluated from left to right, and parentheses group. In brackets, different nodes satisfy the parts, so
    one part is enough for a node. A count outside of brackets, `gpu*2`, concerns only that many of the job's nodes.
    """
    outer: list[_Term] = []
    term = _Term(None, "&", bracketed=False)
    for token in _TOKEN.findall(constraint):
        word, counted, _ = token.partition("*")
        if word in ("(", "["):
            outer.append(term)
            term = _Term(None, "&", bracketed=word == "[")
        elif word in (")", "]"):
            if outer:
                inner, term = term.value is not False, outer.pop()
                term = term.joined(inner or (bool(counted) and not term.bracketed))
        elif word in ("&", "|"):
            term = term._replace(operator=word)
        else:
            term = term.joined(word in features or (bool(counted) and not term.bracketed))
    return term.value is not False


class _Term(NamedTuple):
    """The value of a constraint up to a place in it, and the operator before the next part."""

    value: bool | None
    operator: str
    bracketed: bool

    def joined(self, right: bool) -> "_Term":
        if self.value is None:
            value = right
        elif self.operator == "|" or self.bracketed:
            value = self.value or right
        else:
            value = self.value and right
        return _Term(value, "&", self.bracketed)


def _counts(nodes: Sequence[Mapping[str, int]], types: Sequence[str]) -> Floats:
    """(nodes, types) how many of each type."""
    return np.array([[each.get(kind, 0) for kind in types] for each in nodes], dtype=float).reshape(
        len(nodes), len(types)
    )


def _columns(gpus: np.ndarray, cpus: np.ndarray, memory: np.ndarray) -> np.ndarray:
    by_name: Mapping[str, np.ndarray] = {"gpus": gpus, "cpus": cpus, "memory": memory}
    return np.stack([np.asarray(by_name[name], dtype=float) for name in RESOURCES], axis=1)
