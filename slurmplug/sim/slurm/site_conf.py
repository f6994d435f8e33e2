"""What a site's slurm.conf sets of the simulated Slurm, and what it sets that the simulated Slurm does not follow.

As in slurm.conf(5): keywords in any case, `\\` at the end of a line continues it, `#` begins a remark, `DEFAULT` lines
of nodes and partitions hold for those after them, and what is not set has Slurm's default. `Include` is followed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from slurmplug.cluster import hostlist, tres
from slurmplug.console import times
from slurmplug.errors import DataError, UsageError
from slurmplug.sim.slurm.launcher import LauncherSettings
from slurmplug.sim.slurm.multifactor import Billing, Weights
from slurmplug.sim.slurm.partitions import Partition
from slurmplug.sim.workloads.rows import as_number, open_lines, quoted

MOST_INCLUDES = 20
LIMITS = "limits of QOS and associations"
QOS_PRIORITIES = "PriorityWeightQOS (the priorities of QOS are in slurmdbd)"
SHARES = "shares of accounts and users (fairshare takes all users for equal; name them with --sacctmgr)"
_NO_TREE = "PriorityFlags=NO_FAIR_TREE (fairshare takes all users for equal)"
_WEEK = "7-0"
_CALC_PERIOD = "5"
"""minutes"""
_BILLED = ("gres/gpu", "cpu", "mem")
_BILLED_BY_DEFAULT = (0.0, 1.0, 0.0)
_MEBIBYTES = MappingProxyType({"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3})
_ANY_MEMORY = 99_999_999.0
"""MiB of a node whose memory Slurm does not allocate"""
_ENTRY = re.compile(r"""([A-Za-z0-9_]+)\s*=\s*("[^"]*"|\S*)""")
_WEIGHTS = ("priorityweightage", "priorityweightfairshare", "priorityweightjobsize", "priorityweightpartition")
_RESERVE = "bf_job_part_count_reserve"
_SCHEDULER_PARAMETERS = frozenset({"bf_interval", "bf_max_job_test", "bf_resolution", "batch_sched_delay", _RESERVE})
"""that are followed, make no difference here, or have words of their own"""
_ALIKE = MappingProxyType(
    {
        "priorityweighttres": "PriorityWeightTRES",
        "priorityweightassoc": "PriorityWeightAssoc",
        "priorityfavorsmall": "PriorityFavorSmall",
        "topologyplugin": "TopologyPlugin",
        "preempttype": "PreemptType",
        "licenses": "Licenses",
    }
)
"""keywords without effect here, and how they are written"""
_NOT_SET = frozenset({"", "0", "no", "none", "preempt/none", "topology/default", "topology/flat", "(null)"})


@dataclass(frozen=True)
class SiteConf:
    """A site's slurm.conf: cluster, as `slurmplug.sim.engine.nodes.parse` reads it, empty without nodes.

    `not_followed`: what it sets and the simulated Slurm does without, a phrase each. Of use once it is known what
    slurmdbd has (`slurmplug.sim.slurm.site_limits`): whether limits are enforced, PriorityWeightQOS, the QOS of
    partitions, and whether fairshare is Fair Tree's.
    """

    settings: LauncherSettings
    cluster: str
    not_followed: tuple[str, ...]
    enforces_limits: bool = True
    qos_weight: float = 0.0
    partition_qos: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fair_tree: bool = True


@dataclass(frozen=True)
class _Conf:
    """Keywords in lower case; nodes and partitions with their DEFAULT lines applied."""

    values: dict[str, str] = field(default_factory=dict)
    nodes: list[Mapping[str, str]] = field(default_factory=list)
    node_sets: list[Mapping[str, str]] = field(default_factory=list)
    partitions: list[Mapping[str, str]] = field(default_factory=list)


def read(path: Path) -> SiteConf:
    """The settings in a slurm.conf.

    Raises:
        DataError: it cannot be read, or a value is not one of slurm.conf
    """
    conf = _Conf()
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for entries in _entries(path, []):
        kind = next((name for name in defaults if name in entries), "")
        if "nodeset" in entries:
            conf.node_sets.append(entries)
        elif not kind:
            conf.values.update(entries)
        elif entries[kind].upper() == "DEFAULT":
            defaults[kind].update({name: value for name, value in entries.items() if name != kind})
        else:
            (conf.nodes if kind == "nodename" else conf.partitions).append({**defaults[kind], **entries})
    try:
        groups = _groups(conf)
        return SiteConf(
            _settings(conf),
            "+".join(groups),
            tuple(_not_followed(conf)),
            enforces_limits=bool({"limits", "safe", "all"} & _enforced(conf)),
            qos_weight=0.0 if _is_basic(conf) else _number(conf.values, "priorityweightqos", 0.0),
            partition_qos=MappingProxyType(
                {each["partitionname"]: each["qos"] for each in conf.partitions if "qos" in each}
            ),
            fair_tree="NO_FAIR_TREE" not in _priority_flags(conf),
        )
    except (ValueError, UsageError) as error:
        raise DataError(f"{path}: {error}") from error


def _entries(path: Path, open_files: list[Path]) -> Iterator[dict[str, str]]:
    """The keywords of each line, in lower case."""
    if len(open_files) > MOST_INCLUDES or path in open_files:
        raise DataError(f"{path}: is included by itself, or through more than {MOST_INCLUDES} files")
    with open_lines(path) as lines:
        for line in _whole_lines(lines):
            word, _, rest = line.partition(" ")
            if word.lower() == "include":
                yield from _entries(path.parent / rest.strip(), [*open_files, path])
            elif found := {name.lower(): value.strip('"') for name, value in _ENTRY.findall(line)}:
                yield found


def _whole_lines(lines: Iterator[str]) -> Iterator[str]:
    whole = ""
    for line in lines:
        text = line.partition("#")[0].rstrip()
        if text.endswith("\\"):
            whole += text[:-1]
            continue
        if whole := (whole + text).strip():
            yield whole
        whole = ""


def _settings(conf: _Conf) -> LauncherSettings:
    values, parameters = conf.values, _parameters(conf)
    basic = _is_basic(conf)
    priorities = {
        each["partitionname"]: _number(each, "priority", _number(each, "priorityjobfactor", 1.0))
        for each in conf.partitions
    }
    age, fairshare, job_size, partition = (0.0 if basic else _number(values, each, 0.0) for each in _WEIGHTS)
    weights = Weights(
        age=age,
        fairshare=fairshare,
        job_size=job_size,
        partition=partition,
        max_age=max(times.parse_limit(values.get("prioritymaxage", _WEEK)), 1.0),
        half_life=times.parse_limit(values.get("prioritydecayhalflife", _WEEK)),
        partition_priority=MappingProxyType(priorities),
    )
    return LauncherSettings(
        weights=weights,
        backfill=_backfills(conf),
        bf_max_job_test=int(_number(parameters, "bf_max_job_test", 500.0)),
        bf_interval=_number(parameters, "bf_interval", 30.0),
        pace=_number(parameters, "batch_sched_delay", 3.0),
        default_limit=_default_limit(conf),
        billing=_billing(conf),
        fairshare_interval=times.parse_limit(values.get("prioritycalcperiod", _CALC_PERIOD)),
        partitions=MappingProxyType(dict(_partitions(conf))),
    )


def _partitions(conf: _Conf) -> Iterator[tuple[str, Partition]]:
    """By name; nodes have the numbers that they have in the simulated cluster."""
    nodes = [(name, each) for each in conf.nodes if _exists(each) for name in hostlist.expand(each["nodename"])]
    number = {name: at for at, (name, _) in enumerate(nodes)}
    sets: dict[str, set[int]] = {"ALL": set(number.values())}
    for each in conf.node_sets:
        features = {*each.get("feature", "").split(",")} - {""}
        named = {number[name] for name in hostlist.expand(each.get("nodes", "")) if name in number}
        alike = {at for at, (_, node) in enumerate(nodes) if features & _features(node)}
        sets.setdefault(each["nodeset"], set()).update(named | alike)
    for each in conf.partitions:
        names = hostlist.expand(each.get("nodes", ""))
        inside = frozenset[int]().union(*(sets.get(name, {number[name]} if name in number else ()) for name in names))
        yield (
            each["partitionname"],
            Partition(inside, int(_number(each, "priority", _number(each, "prioritytier", 1.0)))),
        )


def _features(node: Mapping[str, str]) -> set[str]:
    return {*node.get("features", node.get("feature", "")).split(",")}


def _exists(node: Mapping[str, str]) -> bool:
    return node.get("state", "").upper() != "FUTURE"


def _billing(conf: _Conf) -> Billing:
    """TRESBillingWeights of each partition; one CPU counts 1 where there are none."""
    found = {
        each["partitionname"]: {name: _weight(name, weight) for name, weight in _billing_weights(each)}
        for each in conf.partitions
        if "tresbillingweights" in each
    }
    gpu, cpu, memory = _BILLED
    weights = {name: (each.get(gpu, 0.0), each.get(cpu, 0.0), each.get(memory, 0.0)) for name, each in found.items()}
    return Billing(MappingProxyType(weights), other=_BILLED_BY_DEFAULT)


def _billing_weights(partition: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for item in partition.get("tresbillingweights", "").split(","):
        if item.strip():
            name, _, weight = item.strip().partition("=")
            yield name.lower(), weight


def _weight(name: str, text: str) -> float:
    """A weight, of a MiB for memory. Raises ValueError."""
    unit = text[-1:].upper() if name == "mem" and text[-1:].upper() in _MEBIBYTES else ""
    if (number := as_number(text[: len(text) - len(unit)])) is None:
        raise ValueError(f"TRESBillingWeights has {quoted(f'{name}={text}')}, not a number")
    return number / _MEBIBYTES.get(unit, 1.0)


def _priority_flags(conf: _Conf) -> set[str]:
    return {flag.strip().upper() for flag in conf.values.get("priorityflags", "").split(",")} - {""}


def _is_basic(conf: _Conf) -> bool:
    return conf.values.get("prioritytype", "").lower() == "priority/basic"


def _backfills(conf: _Conf) -> bool:
    return conf.values.get("schedulertype", "sched/backfill").lower() == "sched/backfill"


def _parameters(conf: _Conf) -> dict[str, str]:
    """SchedulerParameters by name; what is a word alone has the value `yes`."""
    listed = conf.values.get("schedulerparameters", "")
    items = (item.strip().partition("=") for item in listed.split(",") if item.strip())
    return {name.lower(): value if equals else "yes" for name, equals, value in items}


def _default_limit(conf: _Conf) -> float:
    """Seconds: DefaultTime, else MaxTime, of the default partition, else of the first."""
    ordered = sorted(conf.partitions, key=lambda each: each.get("default", "").lower() != "yes")
    for each in ordered[:1]:
        for name in ("defaulttime", "maxtime"):
            if (text := each.get(name, "")).upper() not in {"", "NONE", "UNLIMITED", "INFINITE", "-1"}:
                return times.parse_limit(text)
    return LauncherSettings.default_limit


def _groups(conf: _Conf) -> list[str]:
    """Equal nodes in a row, as a group of a simulated cluster."""
    allocates_memory = "memory" in conf.values.get("selecttypeparameters", "").lower()
    found: list[tuple[str, int]] = []
    for each in conf.nodes:
        if not _exists(each):
            continue
        gpus = tres.gpus(each.get("gres", ""))
        memory = _number(each, "realmemory", 1.0) if allocates_memory else 0.0
        kind = tres.types(gpus)
        group = f"{sum(gpus.values())}x{_cpus(each)}x{int(memory if memory > 1 else _ANY_MEMORY)}"
        group += f":{kind}" if kind and "," not in kind else ""
        found.append((group, len(hostlist.expand(each["nodename"]))))
    return [f"{sum(count for _, count in same)}x{group}" for group, same in groupby(found, key=lambda each: each[0])]


def _cpus(node: Mapping[str, str]) -> int:
    if "cpus" in node:
        return int(_number(node, "cpus", 1.0))
    sockets = (
        _number(node, "sockets", 1.0)
        if "sockets" in node
        else _number(node, "boards", 1.0) * _number(node, "socketsperboard", 1.0)
    )
    return int(sockets * _number(node, "corespersocket", 1.0) * _number(node, "threadspercore", 1.0))


def _not_followed(conf: _Conf) -> Iterator[str]:
    values = conf.values
    for keyword, written in _ALIKE.items():
        if values.get(keyword, "").lower() not in _NOT_SET:
            yield written
    if _number(values, "priorityweightqos", 0.0):
        yield QOS_PRIORITIES
    yield from _fairshare_not_followed(conf)
    if {"limits", "safe", "qos", "all"} & _enforced(conf):
        yield LIMITS
    if values.get("selecttype", "").lower() == "select/linear":
        yield "SelectType=select/linear (jobs hold parts of nodes)"
    parameters = _parameters(conf)
    if others := sorted(parameters.keys() - _SCHEDULER_PARAMETERS):
        yield f"SchedulerParameters={','.join(others)}"
    if _backfills(conf) and (reserve := int(_number(parameters, _RESERVE, 0.0))) != 1:
        of = f"the first {reserve} jobs" if reserve else "each job"
        yield f"starts that backfill reserves for {of} that must wait (only the first of each partition has one)"
    if any(each.get("oversubscribe", "").lower().startswith("exclusive") for each in conf.partitions):
        yield "OverSubscribe=EXCLUSIVE (jobs hold parts of nodes)"
    if any("," in tres.types(tres.gpus(each.get("gres", ""))) for each in conf.nodes):
        yield "types of GPUs on nodes that have several"


def _fairshare_not_followed(conf: _Conf) -> Iterator[str]:
    flags = _priority_flags(conf)
    if _number(conf.values, "priorityweightfairshare", 0.0):
        yield _NO_TREE if "NO_FAIR_TREE" in flags else SHARES
        billed = {name for each in conf.partitions for name, _ in _billing_weights(each)}
        if others := sorted(billed - set(_BILLED)):
            yield f"TRESBillingWeights of {', '.join(others)}"
    if others := sorted(flags - {"FAIR_TREE", "NO_FAIR_TREE"}):
        yield f"PriorityFlags={','.join(others)}"


def _enforced(conf: _Conf) -> set[str]:
    return set(conf.values.get("accountingstorageenforce", "").lower().split(","))


def _number(values: Mapping[str, str], name: str, default: float) -> float:
    """Raises ValueError."""
    if not (text := values.get(name, "")):
        return default
    if (number := as_number(text)) is None or number < 0:
        raise ValueError(f"{name} is {quoted(text)}, not a number from 0")
    return number
