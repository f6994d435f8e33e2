"""The update that gives a job another number of GPUs, and the one that restores what it requested. Pure.

How a pending job's GPUs are changed follows from the option by which it requested them, and from what Slurm does with
`scontrol update` (docs/operations.md has what was tried on which release):

--gres, --gpus-per-node  Gres
--gpus                   TresPerJob
--gpus-per-task          TresPerTask, NumTasks and NumCPUs, always all, and an empty TresPerJob: Slurm also keeps the
                         GPUs in all, and 22.05 refuses what does not agree with that; with fewer CPUs than the tasks
                         need it starts the job with fewer GPUs than it shows
--gpus-per-socket        not at all: 22.05 refuses the update, and later releases start the job with another number of
                         GPUs than they show
--ntasks-per-gpu         not at all: the update succeeds, and the option is lost
--exclusive              only the number of nodes: the job gets all GPUs of its nodes, however many it requests
--overcommit             not at all: Slurm raises the CPUs to one for each task, and does not lower them again

One of Gres, TresPerJob and TresPerTask is in every update. NumNodes alone would shrink a job that has just started;
with one of these Slurm refuses the whole update of a job that is no longer pending.
"""

import math
import re
from typing import NamedTuple, TypeAlias

from slurmplug.cluster import tres
from slurmplug.cluster.port import ResourceRequest
from slurmplug.operations.shape import ActionImpossible, Shape

Fields: TypeAlias = dict[str, int | str]

_GPUS = re.compile(r"((?:^|,)(?:gres[:/])?gpu(?::(?!\d+(?:,|$))[^,:=]+)?)(?:([:=])\d+)?(?=,|$)")
"""A gres of GPUs up to its number, the separator, and the number, which may be left out for 1."""
_CPUS = re.compile(r"((?:^|,)cpu[:=])\d+")
_BY = {"TresPerJob": "in all (--gpus)", "TresPerTask": "per task (--gpus-per-task)"}


class _Form(NamedTuple):
    """How a job requested its GPUs: the field that changes them, its value at present, and the GPUs in that."""

    field: str
    value: str
    gpus: int


class _Tasks(NamedTuple):
    before: int
    after: int


def update_fields(request: ResourceRequest, shape: Shape) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of the update that gives a job this shape, and of the one that restores its present one.

    Tasks scale with the GPUs where there is one for each, or where several have GPUs of their own; else with the
    nodes. CPUs and memory scale with the GPUs. A job with GPUs in all or per task that may have any number of nodes
    keeps that; one with GPUs per node has the number of nodes that Slurm shows of it, and gets that back.

    Raises:
        ActionImpossible: the job requested its GPUs in a way that Slurm does not update.
    """
    form = _form(request)
    gpus = shape.nodes * shape.gpus_per_node
    if gpus == request.gpus and (shape.nodes == request.nodes or (form.field != "Gres" and not request.max_nodes)):
        return {}, {}
    if request.whole_nodes and shape.gpus_per_node * request.nodes != request.gpus:
        raise ActionImpossible("shape", asked="whole nodes (--exclusive), which have as many GPUs as they have")
    if request.pending and 0 < request.cpus < request.tasks and not request.cpus_follow_gpus:
        raise ActionImpossible("shape", asked="fewer CPUs than tasks (--overcommit)")
    tasks = _tasks(request, form, shape)
    cpus = _cpus(request, form, tasks, shape)
    per_task = next((after for name, _, after in cpus if name == "CPUsPerTask"), request.cpus_per_task)
    each = {"Gres": shape.gpus_per_node, "TresPerJob": gpus, "TresPerTask": gpus // tasks.after}[form.field]
    beside: Fields = {"TresPerJob": ""} if form.field == "TresPerTask" else {}
    new: Fields = {**beside, form.field: _value(form, each, per_task)}
    old: Fields = {**beside, form.field: form.value}
    changes: list[tuple[str, int | str, int | str]] = [
        ("NumNodes", *_nodes(request, form, shape)),
        ("NumTasks", *tasks),
        *cpus,
        ("MinMemoryNode", *_memory(request, shape)),
    ]
    for name, before, after in changes:
        if before != after or (form.field == "TresPerTask" and name in ("NumTasks", "NumCPUs")):
            new[name], old[name] = after, before
    return {name: str(value) for name, value in new.items()}, {name: str(value) for name, value in old.items()}


def _form(request: ResourceRequest) -> _Form:
    """The one option by which the job requested its GPUs."""
    if request.tasks_per_gpu:
        raise ActionImpossible("shape", asked="tasks per GPU (--ntasks-per-gpu)")
    if request.gres_per_socket:
        raise ActionImpossible("shape", asked="GPUs per socket (--gpus-per-socket)")
    texts = {
        "Gres": request.gres,
        "TresPerJob": request.gres_per_job,
        "TresPerTask": tres.without_cpus(request.gres_per_task),
    }
    asked = {field: text for field, text in texts.items() if text}
    if len(asked) > 1:
        raise ActionImpossible("shape", asked="GPUs by several options")
    [(field, text)] = asked.items() or [("", "")]
    found = tres.gpus(text)
    if len(found) != 1 or "," in text:
        raise ActionImpossible("shape", asked="no GPUs, several types of them, or other gres beside them")
    [(kind, count)] = found.items()
    times = {"Gres": request.nodes, "TresPerJob": 1, "TresPerTask": max(1, request.tasks)}[field]
    if request.nodes < 1 or count < 1 or times * count != request.gpus:
        raise ActionImpossible("shape", asked="a range of nodes or GPUs")
    if field == "TresPerTask":
        return _Form(field, request.gres_per_task, count)
    return _Form(field, (f"gpu:{kind}:{count}" if kind else f"gpu:{count}") if field == "Gres" else text, count)


def _value(form: _Form, gpus: int, cpus: int) -> str:
    """The field's value with so many GPUs in place of the present ones, and so many CPUs where it has CPUs."""
    with_gpus = _GPUS.sub(lambda found: f"{found[1]}{found[2] or ':'}{gpus}", form.value, count=1)
    return _CPUS.sub(rf"\g<1>{cpus}", with_gpus)


def _nodes(request: ResourceRequest, form: _Form, shape: Shape) -> tuple[str, str]:
    """NumNodes before and after; equal where it stays as it is.

    Where Slurm chooses the nodes for the GPUs, which it does for all options but those per node, it does so within what
    the job requested. Of a job on one node it does not show whether that is the most: since 23.11 `1-1` is also what it
    shows of one that may have any number. GPUs per node are as many as decided on exactly so many nodes only.
    """
    least, most, nodes = request.nodes, request.max_nodes, shape.nodes
    if form.field == "Gres":
        return f"{least}-{most or least}", f"{nodes}-{nodes}"
    if not most:
        return str(least), str(min(least, nodes))
    if most == 1 and nodes > 1:
        raise ActionImpossible("shape", asked=f"GPUs {_BY[form.field]} on one node")
    before = f"{least}-{most}"
    if least <= nodes <= most:  # Slurm lowers the most nodes of a job to its GPUs, and leaves it so
        return before, f"{least}-{min(most, max(least, nodes * shape.gpus_per_node))}"
    return before, f"{nodes}-{nodes}"


def _tasks(request: ResourceRequest, form: _Form, shape: Shape) -> _Tasks:
    """The tasks before and after."""
    tasks, gpus = max(1, request.tasks), shape.nodes * shape.gpus_per_node
    per_node = request.gpus / request.nodes
    if request.tasks_per_node:
        after = request.tasks_per_node * shape.nodes
        if form.field != "TresPerTask" and request.tasks_per_node > 1 and shape.gpus_per_node != per_node:
            raise ActionImpossible("shape", asked="several tasks for each node")
    elif form.field == "TresPerTask":
        after = gpus // form.gpus if tasks > 1 and gpus % form.gpus == 0 else shape.nodes if tasks == 1 else 0
    elif tasks == request.gpus and tasks > 1:
        after = gpus
    else:
        after = tasks // request.nodes * shape.nodes if tasks % request.nodes == 0 else 0
    if not after or (form.field == "TresPerTask" and gpus % after):
        raise ActionImpossible("shape", asked="tasks that cannot be divided evenly among the nodes or GPUs")
    return _Tasks(tasks, after)


def _cpus(request: ResourceRequest, form: _Form, tasks: _Tasks, shape: Shape) -> tuple[tuple[str, int, int], ...]:
    """MinCPUsNode, CPUsPerTask and NumCPUs, each before and after; of CPUs per GPU only what follows from them.

    22.05 would give a requeued job the CPUs of its last run, or find it not runnable.
    """
    if request.cpus_follow_gpus:
        after = request.cpus_per_gpu * shape.nodes * shape.gpus_per_node
        return (("NumCPUs", request.cpus, after or request.cpus),)
    growth = shape.nodes * shape.gpus_per_node / request.gpus
    per_task = max(1, round(request.cpus_per_task * growth * tasks.before / tasks.after))
    if form.field == "Gres":
        least = round(request.min_cpus_per_node * shape.gpus_per_node / form.gpus)
        least = max(least, min(per_task, request.min_cpus_per_node))  # with less 22.05 starts it with fewer GPUs
    else:  # Slurm chooses how many tasks share a node
        least = round(request.min_cpus_per_node * per_task / max(1, request.cpus_per_task))
    return (
        ("MinCPUsNode", request.min_cpus_per_node, max(1, least)),
        ("CPUsPerTask", request.cpus_per_task, per_task),
        ("NumCPUs", request.cpus, max(per_task * tasks.after, math.ceil(request.cpus * growth))),
    )


def _memory(request: ResourceRequest, shape: Shape) -> tuple[int, int]:
    """MiB per node, before and after; equal where Slurm changes it itself, or it stays as it is."""
    per_node = request.memory / request.nodes
    if not request.memory_requested or request.memory_per_cpu or per_node <= 0:
        return 0, 0
    grown = per_node * shape.gpus_per_node * request.nodes / request.gpus
    return max(1, math.ceil(per_node)), max(1, math.ceil(grown))
