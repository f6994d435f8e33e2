"""What others changed of a job's shape while an operation was under way: nothing of that is overwritten. Pure.

A shape is compared by what Slurm shows of it. While the job runs, its CPUs are those that it was allocated, which may
be more than it requested, so when a run has ended they may only become fewer. So do the nodes, and the tasks that Slurm
adds for them, of a job that did not request its GPUs per node.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from slurmplug.cluster import tres
from slurmplug.cluster.hostlist import expand
from slurmplug.cluster.port import Command, ResourceRequest
from slurmplug.operations.values import NODE_LIST_FIELDS, PRIORITY_FIELDS

Shown: TypeAlias = Mapping[str, object]
"""The values of a shape that can be compared, by the field of `scontrol update` that sets them."""

NOTHING: Mapping[str, str] = MappingProxyType({})
_ALLOCATED = "NumCPUs"
"""The field that has another value while the job runs."""
_SPREAD: Mapping[str, Callable[[ResourceRequest], int]] = {
    "NumNodes": lambda request: request.nodes,
    "NumTasks": lambda request: request.tasks,
}
"""The fields that may have one where Slurm chooses the nodes, and their values."""


def changed(
    seen: ResourceRequest, now: ResourceRequest, goal: Mapping[str, str] = NOTHING, *, in_place: bool = False
) -> tuple[str, ...]:
    """The fields of the job's shape that somebody else changed since it was `seen`, by their names in scontrol(1).

    goal: the fields of an update that slurmplug issued; `in_place`: it succeeded, so that its values have to be there;
    else each field may have the old value or the new one.
    """
    before, present, issued = _shown(seen), _shown(now), _issued(goal)
    derived = {_ALLOCATED} if issued and now.cpus_follow_gpus else set()
    return tuple(
        name
        for name, value in present.items()
        if name not in derived and not (value == issued.get(name) or _kept(name, value, before, issued, in_place))
    )


def _kept(name: str, value: object, before: Shown, issued: Shown, in_place: bool) -> bool:
    return value == before[name] and not (in_place and name in issued)


def changed_since_run(seen: ResourceRequest, now: ResourceRequest) -> tuple[str, ...]:
    """As `changed`, of a job that was `seen` while it ran and is pending now."""
    fewer = {_ALLOCATED} if now.cpus <= seen.cpus else set()
    if not now.gres:
        fewer |= {name for name, value in _SPREAD.items() if value(now) <= value(seen)}
    return tuple(name for name in changed(seen, now) if name not in fewer)


def changes_request(command: Command) -> bool:
    """Whether it updates more of a job than its priority."""
    return command.verb == "update" and not command.fields.keys() <= PRIORITY_FIELDS


def still_in_place(
    goal: Mapping[str, str], undo: Mapping[str, str], now: ResourceRequest, seen: ResourceRequest | None = None
) -> dict[str, str]:
    """Of `undo`, the fields to take back, and those that Slurm does not show.

    Those whose present value is the one of `goal`; a list of nodes also where it is as it was `seen`, which an earlier
    operation may have set. Not those that are restored already.
    """
    present, issued, restored = _shown(now), _issued(goal), _issued(undo)
    found = {} if seen is None else {name: _shown(seen)[name] for name in NODE_LIST_FIELDS}
    return {
        name: value
        for name, value in undo.items()
        if name not in issued
        or (present[name] != restored[name] and present[name] in (issued[name], found.get(name, issued[name])))
    }


def _gres(text: str) -> object:
    """GPUs by type, and the other gres. The CPUs per task are compared by themselves."""
    others = [item for item in tres.without_cpus(text).split(",") if item and not re.match(r"(gres[:/])?gpu\b", item)]
    return tuple(sorted(tres.gpus(text).items())), tuple(others)


def _nodes(text: str) -> object:
    return frozenset(expand(text)) if text else frozenset()


_ISSUED: Mapping[str, Callable[[str], object]] = {
    "Gres": _gres,
    "TresPerJob": _gres,
    "TresPerTask": _gres,
    "NumNodes": lambda text: int(text.partition("-")[0]),
    "NumTasks": int,
    "CPUsPerTask": int,
    "MinCPUsNode": int,
    "NumCPUs": int,
    "MinMemoryNode": float,
    "TimeLimit": lambda text: 60.0 * int(text),
    "ReqNodeList": _nodes,
    "ExcNodeList": _nodes,
}
"""The values of the fields that slurmplug sets, as `_shown` has them."""


def _shown(request: ResourceRequest) -> Shown:
    return {
        "Gres": _gres(request.gres),
        "TresPerJob": _gres(request.gres_per_job),
        "TresPerSocket": _gres(request.gres_per_socket),
        "TresPerTask": _gres(request.gres_per_task),
        "NumNodes": request.nodes,
        "NumTasks": request.tasks,
        "NtasksPerNode": request.tasks_per_node,
        "CPUsPerTask": request.cpus_per_task,
        "MinCPUsNode": request.min_cpus_per_node,
        "NumCPUs": request.cpus,
        "MinMemoryNode": request.min_memory if request.memory_requested else 0.0,  # 22.05 shows any with --mem-per-gpu
        "ReqNodeList": _nodes(request.required_nodes),
        "ExcNodeList": _nodes(request.excluded_nodes),
        "TimeLimit": request.time_limit,
    }


def _issued(goal: Mapping[str, str]) -> Shown:
    return {name: _ISSUED[name](value) for name, value in goal.items() if name in _ISSUED}
