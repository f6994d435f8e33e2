"""The nodes and partitions of a slurm.conf."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from slurmplug.cluster import hostlist, tres
from slurmplug.sim.slurm.conf_lines import ConfLines, number
from slurmplug.sim.slurm.partitions import Partition

EXCLUSIVE = "EXCLUSIVE"
_ANY_MEMORY = 99_999_999.0
"""MiB of a node whose memory Slurm does not allocate"""


def groups(conf: ConfLines) -> list[str]:
    """Equal nodes in a row, as a group of a simulated cluster."""
    allocates_memory = "memory" in conf.values.get("selecttypeparameters", "").lower()
    found: list[tuple[str, int]] = []
    for each in conf.nodes:
        if not _exists(each):
            continue
        gpus = tres.gpus(each.get("gres", ""))
        memory = number(each, "realmemory", 1.0) if allocates_memory else 0.0
        kind = tres.types(gpus)
        group = f"{sum(gpus.values())}x{_cpus(each)}x{int(memory if memory > 1 else _ANY_MEMORY)}"
        group += f":{kind}" if kind and "," not in kind else ""
        found.append((group, len(hostlist.expand(each["nodename"]))))
    return [f"{sum(count for _, count in same)}x{group}" for group, same in groupby(found, key=lambda each: each[0])]


def partitions(conf: ConfLines) -> Iterator[tuple[str, Partition]]:
    """By name; nodes have the numbers that they have in the simulated cluster."""
    nodes = [(name, each) for each in conf.nodes if _exists(each) for name in hostlist.expand(each["nodename"])]
    place = {name: at for at, (name, _) in enumerate(nodes)}
    sets: dict[str, set[int]] = {"ALL": set(place.values())}
    for each in conf.node_sets:
        features = {*each.get("feature", "").split(",")} - {""}
        named = {place[name] for name in hostlist.expand(each.get("nodes", "")) if name in place}
        alike = {at for at, (_, node) in enumerate(nodes) if features & _features(node)}
        sets.setdefault(each["nodeset"], set()).update(named | alike)
    for each in conf.partitions:
        names = hostlist.expand(each.get("nodes", ""))
        inside = frozenset[int]().union(*(sets.get(name, {place[name]} if name in place else ()) for name in names))
        tier = int(number(each, "priority", number(each, "prioritytier", 1.0)))
        yield each["partitionname"], Partition(inside, tier, exclusive=oversubscribe(each) == EXCLUSIVE)


def oversubscribe(partition: Mapping[str, str]) -> str:
    """OverSubscribe of a partition, in upper case; Shared, as it was named before, and the newer Exclusive=NODE too."""
    given = partition.get("oversubscribe", partition.get("shared", "NO")).upper()
    exclusive = partition.get("exclusive", "").upper()
    if exclusive in ("NODE", "TOPO"):
        return EXCLUSIVE
    return "NO" if exclusive in ("NO", "NONE") and given == EXCLUSIVE else given


def totals(conf: ConfLines) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """The GPUs, CPUs, MiB and nodes of each partition, by name."""
    of_node = [
        (float(tres.total_gpus(each.get("gres", "")) or 0), float(_cpus(each)), number(each, "realmemory", 1.0), 1.0)
        for each in conf.nodes
        if _exists(each)
        for _ in hostlist.expand(each["nodename"])
    ]
    for name, partition in partitions(conf):
        gpus, cpus, memory, nodes = zip((0.0,) * 4, *(of_node[node] for node in partition.nodes), strict=True)
        yield name, (sum(gpus), sum(cpus), sum(memory), sum(nodes))


def _features(node: Mapping[str, str]) -> set[str]:
    return {*node.get("features", node.get("feature", "")).split(",")}


def _exists(node: Mapping[str, str]) -> bool:
    return node.get("state", "").upper() != "FUTURE"


def _cpus(node: Mapping[str, str]) -> int:
    if "cpus" in node:
        return int(number(node, "cpus", 1.0))
    sockets = (
        number(node, "sockets", 1.0)
        if "sockets" in node
        else number(node, "boards", 1.0) * number(node, "socketsperboard", 1.0)
    )
    return int(sockets * number(node, "corespersocket", 1.0) * number(node, "threadspercore", 1.0))
