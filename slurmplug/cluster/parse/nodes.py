"""The nodes that sinfo lists. Pure."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from slurmplug.cluster import tres
from slurmplug.cluster.parse.table import Separators, column, float_or_nan, name_set, parse_table, values, whole
from slurmplug.cluster.port import NodeRows

NODE_FIELDS = (
    "NodeList", "PartitionName", "StateComplete", "Features_act", "Gres", "GresUsed", "CPUsState", "CPUsLoad", "Memory",
    "AllocMem", "FreeMem",
)  # fmt: skip
"""sinfo(1), --Format"""
_STATE_SUFFIXES = "*~#!%$@^-"


def nodes(text: str, separators: Separators) -> NodeRows:
    """The nodes in the output of `sinfo --Node --Format`, which lists each once per partition. Raises ReadFailed."""
    columns = parse_table(text, NODE_FIELDS, separators, "sinfo")
    partitions: dict[str, set[str]] = defaultdict(set)
    for name, partition in zip(columns["NodeList"], columns["PartitionName"], strict=True):
        partitions[name].add(partition)
    first_rows = {name: row for row, name in reversed(list(enumerate(columns["NodeList"])))}
    columns = {name: [texts[row] for row in sorted(first_rows.values())] for name, texts in columns.items()}
    cpus = values(columns, "CPUsState", _cpus)
    return NodeRows(
        name=tuple(columns["NodeList"]),
        state=tuple(values(columns, "StateComplete", _state)),
        partitions=tuple(frozenset(partitions[name]) for name in columns["NodeList"]),
        features=tuple(values(columns, "Features_act", name_set)),
        gpus=tuple(values(columns, "Gres", tres.gpus)),
        gpus_used=tuple(values(columns, "GresUsed", _used)),
        cpus=np.array([total for _, total in cpus], dtype=np.int64),
        cpus_used=np.array([used for used, _ in cpus], dtype=np.int64),
        cpu_load=column(columns, "CPUsLoad", float_or_nan, np.float64),
        memory=column(columns, "Memory", float, np.float64),
        memory_used=column(columns, "AllocMem", float, np.float64),
        memory_free=column(columns, "FreeMem", float_or_nan, np.float64),
    )


def _state(text: str) -> frozenset[str]:
    return frozenset(word.rstrip(_STATE_SUFFIXES) for word in text.lower().split("+"))


def _used(text: str) -> Mapping[str, int]:
    """The GPUs in use by type: those of jobs, and those of which jobs have shards."""
    whole, sharded = tres.gpus(text), tres.sharded_gpus(text)
    return {kind: whole.get(kind, 0) + sharded.get(kind, 0) for kind in whole.keys() | sharded.keys()}


def _cpus(text: str) -> tuple[int, int]:
    """The allocated CPUs and all, of allocated/idle/other/total."""
    allocated, _, _, total = map(whole, text.split("/"))
    return allocated, total
