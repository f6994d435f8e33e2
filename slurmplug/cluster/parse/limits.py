"""Limits, in what sacctmgr and scontrol print. Pure."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from slurmplug.cluster import tres
from slurmplug.cluster.limits import CHECKED_TRES, JOBS, Assoc, AssocLimits, Limits, QosLimits, Tres
from slurmplug.cluster.parse.table import duration

QOS_FIELDS = "Name,GrpTRES,MaxTRES,MaxTRESPU,MaxTRESPA,MaxWall,GrpJobs,MaxJobsPU,MaxJobsPA,Flags"
ASSOC_FIELDS = "Account,User,Partition,GrpTRES,MaxTRES,MaxWall,ParentName,GrpJobs,MaxJobs,DefaultQOS"
DEFAULT_ACCOUNT_FIELDS = "User,Account"
_FIELD = re.compile(r"\b(\w++)=(\S*+)")


def limits(qos: str, assocs: str, partitions: str, defaults: str = "") -> Limits:
    """The limits in what sacctmgr and scontrol print.

    Args:
        qos: the output of `sacctmgr -nP show qos` with QOS_FIELDS.
        assocs: the output of `sacctmgr -nP show assoc` with ASSOC_FIELDS.
        partitions: the output of `scontrol -o show partition`.
        defaults: the output of `sacctmgr -nP show assoc onlydefaults` with DEFAULT_ACCOUNT_FIELDS.

    Raises:
        ValueError: a line has other fields, or a limit is no number, amount or time.
    """
    found = [dict(reversed(_FIELD.findall(line))) for line in partitions.splitlines()]
    named = {each["PartitionName"]: each for each in found if "PartitionName" in each}
    return Limits(
        qos={each["Name"]: qos_limits(each) for each in _rows(qos, QOS_FIELDS)},
        assocs={
            Assoc(each["Account"], each["User"], each["Partition"]): replace(
                assoc_limits(each), parent=each["ParentName"], default_qos=each["DefaultQOS"]
            )
            for each in _rows(assocs, ASSOC_FIELDS)
        },
        partition_qos={name: each["QoS"] for name, each in named.items() if each.get("QoS", "N/A") not in ("N/A", "")},
        partition_wall={name: _wall(each.get("MaxTime", "")) for name, each in named.items()},
        whole_nodes=frozenset(name for name, each in named.items() if _has_whole_nodes(each)),
        default_account={each["User"]: each["Account"] for each in _rows(defaults, DEFAULT_ACCOUNT_FIELDS)},
    )


def _has_whole_nodes(partition: Mapping[str, str]) -> bool:
    """Whether its jobs get whole nodes, by what scontrol shows of it; Exclusive is of 26.05."""
    return partition.get("OverSubscribe") == "EXCLUSIVE" or partition.get("Exclusive") in ("NODE", "TOPO")


def qos_limits(cells: Mapping[str, str]) -> QosLimits:
    """Those of a QOS, by the names of sacctmgr's columns; a limit that is not there is none. Raises ValueError."""
    return QosLimits(
        group=amounts(cells, "GrpTRES", "GrpJobs"),
        job=amounts(cells, "MaxTRES"),
        user=amounts(cells, "MaxTRESPU", "MaxJobsPU"),
        account=amounts(cells, "MaxTRESPA", "MaxJobsPA"),
        wall=_wall(cells.get("MaxWall", "")),
        over_partition="OverPartQOS" in cells.get("Flags", "").split(","),
    )


def assoc_limits(cells: Mapping[str, str]) -> AssocLimits:
    """Those of an association, without its parent; as `qos_limits`."""
    return AssocLimits(
        group=amounts(cells, "GrpTRES", "GrpJobs"),
        job=amounts(cells, "MaxTRES"),
        wall=_wall(cells.get("MaxWall", "")),
        jobs=amounts(cells, "", "MaxJobs").get(JOBS, math.inf),
    )


def _wall(text: str) -> float:
    """Seconds of a limit as Slurm prints it, infinite for none. Raises ValueError."""
    seconds = duration(text) if text else math.nan
    return math.inf if math.isnan(seconds) else seconds


def _rows(text: str, fields: str) -> Iterator[dict[str, str]]:
    names = fields.split(",")
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != len(names):
            raise ValueError(f"{line[:80]!r} is not {len(names)} fields")
        yield dict(zip(names, words, strict=True))


def amounts(cells: Mapping[str, str], of_tres: str, of_jobs: str = "") -> Tres:
    """The amounts of CHECKED_TRES and of types of GPUs in the column `of_tres`, and the number of jobs in `of_jobs`.

    A negative one is no limit. Raises ValueError.
    """
    found: dict[str, float] = {}
    for item in cells.get(of_tres, "").split(","):
        name, equals, amount = item.partition("=")
        if equals and (name in CHECKED_TRES or name.startswith("gres/gpu:")) and not amount.startswith("-"):
            found[name] = tres.memory(item) if name == "mem" else _number(name, amount)
    jobs = cells.get(of_jobs, "")
    if jobs and not jobs.startswith("-"):
        found[JOBS] = _number(of_jobs, jobs)
    return found


def _number(name: str, text: str) -> float:
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"{name}={text[:40]!r}, which is not a number")
    return float(text)
