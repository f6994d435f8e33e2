"""The type of the GPUs that jobs hold, where the accounting does not tell it. Pure."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from slurmplug.cluster.hostlist import expand
from slurmplug.cluster.port import JobRows, NodeRows


def with_held_types(jobs: JobRows, nodes: NodeRows) -> JobRows:
    """The rows, where jobs that have started without a type of GPU in the accounting get the one that they requested,
    else the only one that their nodes have."""
    started = ~np.isnan(jobs.start) & (jobs.gpus > 0) & (jobs.gpu_type_held == "")
    if not started.any():
        return jobs
    types = dict(zip(nodes.name, nodes.gpus, strict=True))
    known: dict[str, str] = {}
    held = jobs.gpu_type_held.astype(object)
    for row in np.flatnonzero(started).tolist():
        requested, where = str(jobs.gpu_type[row]), str(jobs.node_list[row])
        if where not in known:
            known[where] = _only_type(where, types)
        held[row] = requested if requested and "," not in requested else known[where]
    return replace(jobs, gpu_type_held=held.astype(np.str_))


def _only_type(node_list: str, types: Mapping[str, Mapping[str, int]]) -> str:
    """The type of all GPUs on these nodes; empty where there are several, or none."""
    found = {kind for name in expand(node_list) for kind, count in types.get(name, {}).items() if count}
    return found.pop() if len(found) == 1 else ""
