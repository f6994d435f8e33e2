"""The nodes that sinfo lists, and the reservations of scontrol. Pure."""

import re
from collections import defaultdict

import numpy as np

from slurmplug.cluster import tres
from slurmplug.cluster.hostlist import expand
from slurmplug.cluster.parse.table import UNSET, Marks, column, measured, moment, names, table, values
from slurmplug.cluster.port import NodeRows, Reservation
from slurmplug.errors import ReadFailed

NODE_FIELDS = (
    "NodeList", "PartitionName", "StateComplete", "Features", "Gres", "GresUsed", "CPUsState", "CPUsLoad", "Memory",
    "AllocMem", "FreeMem",
)  # fmt: skip
"""sinfo(1), --Format"""
_STATE_SUFFIX = "*~#!%$@^-"
_TOKEN = re.compile(r"(\w+)=(\S*)")


def nodes(text: str, marks: Marks) -> NodeRows:
    """The nodes that `sinfo --Node --Format` lists, once for each of their partitions. Raises ReadFailed."""
    told = table(text, NODE_FIELDS, marks, "sinfo")
    partitions: dict[str, set[str]] = defaultdict(set)
    for name, partition in zip(told["NodeList"], told["PartitionName"], strict=True):
        partitions[name].add(partition)
    rows = {name: row for row, name in reversed(list(enumerate(told["NodeList"])))}
    told = {name: [words[row] for row in sorted(rows.values())] for name, words in told.items()}
    states = values(told, "CPUsState", _cpus_state)
    return NodeRows(
        name=tuple(told["NodeList"]),
        state=tuple(values(told, "StateComplete", _node_state)),
        partitions=tuple(frozenset(partitions[name]) for name in told["NodeList"]),
        features=tuple(values(told, "Features", names)),
        gpus=tuple(values(told, "Gres", tres.gpus)),
        gpus_used=tuple(values(told, "GresUsed", tres.gpus)),
        cpus=np.array([total for _, total in states], dtype=np.int64),
        cpus_used=np.array([used for used, _ in states], dtype=np.int64),
        cpu_load=column(told, "CPUsLoad", measured, np.float64),
        memory=column(told, "Memory", float, np.float64),
        memory_used=column(told, "AllocMem", float, np.float64),
        memory_free=column(told, "FreeMem", measured, np.float64),
    )


def reservations(text: str) -> tuple[Reservation, ...]:
    """What `scontrol --oneliner show reservations` lists, with times in seconds since the epoch. Raises ReadFailed."""
    if text.startswith("No reservations in the system"):
        return ()
    lines = [line for line in text.splitlines() if line.startswith("ReservationName=")]
    if not lines:
        raise ReadFailed(f"scontrol show reservations answers {text[:80]!r}")
    return tuple(map(_reservation, lines))


def _node_state(text: str) -> frozenset[str]:
    return frozenset(word.rstrip(_STATE_SUFFIX) for word in text.lower().split("+"))


def _cpus_state(text: str) -> tuple[int, int]:
    """Those allocated and all, of allocated/idle/other/all."""
    allocated, _, _, total = map(int, text.split("/"))
    return allocated, total


def _reservation(line: str) -> Reservation:
    told = dict(reversed(_TOKEN.findall(line)))
    try:
        return Reservation(
            name=told["ReservationName"],
            nodes=frozenset(() if told["Nodes"] in UNSET else expand(told["Nodes"])),
            users=names(told["Users"]),
            accounts=names(told["Accounts"]),
            start=moment(told["StartTime"]),
            end=moment(told["EndTime"]),
        )
    except (KeyError, ValueError) as error:
        raise ReadFailed(f"scontrol show reservations answers {line[:200]!r}: {error}") from error
