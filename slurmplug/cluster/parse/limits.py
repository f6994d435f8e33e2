"""Limits in what sacctmgr and scontrol print. Pure."""

import math
import re
from collections.abc import Iterator

from slurmplug.cluster import tres
from slurmplug.cluster.limits import CHECKED_TRES, Assoc, AssocLimits, Limits, QosLimits, Tres
from slurmplug.cluster.parse.table import duration

QOS_FIELDS = "Name,GrpTRES,MaxTRES,MaxTRESPU,MaxTRESPA,MaxWall"
ASSOC_FIELDS = "Account,User,Partition,GrpTRES,MaxTRES,MaxWall,ParentName"
_FIELD = re.compile(r"\b(\w++)=(\S*+)")


def limits(qos: str, assocs: str, partitions: str) -> Limits:
    """The limits in what sacctmgr and scontrol print.

    Args:
        qos: the output of `sacctmgr -nP show qos` with QOS_FIELDS.
        assocs: the output of `sacctmgr -nP show assoc` with ASSOC_FIELDS.
        partitions: the output of `scontrol -o show partition`.

    Raises:
        ValueError: a line has other fields, or a limit is no time.
    """
    found = [dict(reversed(_FIELD.findall(line))) for line in partitions.splitlines()]
    named = {each["PartitionName"]: each for each in found if "PartitionName" in each}
    return Limits(
        qos={
            name: QosLimits(_tres(group), _tres(job), _tres(user), _tres(account), _wall(wall))
            for name, group, job, user, account, wall in _rows(qos, 6)
        },
        assocs={
            Assoc(account, user, partition): AssocLimits(_tres(group), _tres(job), _wall(wall), parent)
            for account, user, partition, group, job, wall, parent in _rows(assocs, 7)
        },
        partition_qos={name: each["QoS"] for name, each in named.items() if each.get("QoS", "N/A") not in ("N/A", "")},
        partition_wall={name: _wall(each.get("MaxTime", "")) for name, each in named.items()},
    )


def _wall(text: str) -> float:
    """Seconds of a limit as Slurm prints it, infinite for none. Raises ValueError."""
    seconds = duration(text) if text else math.nan
    return math.inf if math.isnan(seconds) else seconds


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != width:
            raise ValueError(f"{line[:80]!r} is not {width} fields")
        yield words


def _tres(text: str) -> Tres:
    """The amounts of CHECKED_TRES; a negative one is no limit."""
    found: dict[str, float] = {}
    for item in text.split(","):
        name, equals, amount = item.partition("=")
        if equals and name in CHECKED_TRES and not amount.startswith("-"):
            found[name] = tres.memory(item) if name == "mem" else float(amount)
    return found
