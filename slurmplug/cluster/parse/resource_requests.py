"""What jobs request and by which options, as squeue prints it. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from slurmplug.cluster import tres
from slurmplug.cluster.parse.table import UNSET, Separators, duration, ints, parse_table, whole
from slurmplug.cluster.port import ResourceRequest
from slurmplug.errors import ReadFailed

RESOURCE_REQUEST_FIELDS = (
    "JobID", "JobArrayID", "NumNodes", "NumCPUs", "tres-alloc", "HetJobID", "Reservation", "tres-per-node",
    "tres-per-job", "tres-per-socket", "tres-per-task", "NumTasks", "NTPerNode", "cpus-per-task", "MinCPUs",
    "MinMemory", "mem-per-tres", "cpus-per-tres", "Requeue", "TimeLimit", "Nice", "State",
)  # fmt: skip
"""squeue(1), --Format: what determines the shape of a job"""
_SHOWN = {
    "nodes": re.compile(r"\bNumNodes=\d+(?:-(\d+))?"),
    "memory": re.compile(r"\bMinMemory(CPU|Node)="),
    "tasks": re.compile(r"\bNtasksPerTRES[:=](\d+)"),
    "sharing": re.compile(r"\bOverSubscribe=(\w+)"),
}
_NO_VAL16 = 0xFFFE
"""What slurm.h has for a 16-bit number that is not set."""
_ADDRESS = re.compile(r"[0-9]+([_+][0-9]+)?")
_NO_LIMIT = 365 * 86_400.0
"""Seconds; the time limit that Slurm gives a job without one while it runs."""


class ShownJob(NamedTuple):
    """What only `scontrol show job` shows of a job: the most nodes (0 for any number, and while it runs), whether its
    memory is requested per CPU, the tasks per GPU (0 where it requested none), and whether it gets whole nodes."""

    max_nodes: int
    memory_per_cpu: bool
    tasks_per_gpu: int
    whole_nodes: bool


def shown_job(text: str) -> ShownJob | None:
    """The output of `scontrol --oneliner show job` of one job; None where it cannot be told from what its user wrote.

    A job's name or comment can contain all of this as well, so each may be there once. Since 23.11 the memory of a job
    that requested it per GPU is not shown.
    """
    found = {name: pattern.findall(text) for name, pattern in _SHOWN.items()}
    if len(found["nodes"]) != 1 or max(len(found[each]) for each in ("memory", "tasks", "sharing")) > 1:
        return None
    most_nodes, tasks = int(found["nodes"][0] or 0), int((found["tasks"] or ["0"])[0])
    return ShownJob(most_nodes, found["memory"] == ["CPU"], tasks, found["sharing"] == ["NO"])


def addresses(text: str, separators: Separators) -> dict[int, str]:
    """By job id, the address of that job alone: 7, 5_2 for an element of an array, 9+1 for one of a heterogeneous job.

    `text` as for `resource_requests`, which see. Raises ReadFailed.
    """
    columns = parse_table(text, RESOURCE_REQUEST_FIELDS, separators, "squeue")
    pairs = zip(ints(columns, "JobID").tolist(), columns["JobArrayID"], strict=True)
    return {job_id: address for job_id, address in pairs if _ADDRESS.fullmatch(address)}


def resource_requests(
    text: str, node_lists: str, shown: Mapping[int, str], separators: Separators
) -> dict[int, ResourceRequest]:
    """What jobs request, by job id; without those of which `shown` has nothing that can be trusted.

    Args:
        text: the output of `squeue --Format` with RESOURCE_REQUEST_FIELDS.
        node_lists: the output of `squeue -o "%A %x %n"`: job id, excluded nodes, required nodes.
        shown: by job id, the output of `scontrol --oneliner show job` of that job.
        separators: those that `text` was printed with.

    Raises:
        ReadFailed: `text` is not what squeue prints for these fields.
    """
    columns = parse_table(text, RESOURCE_REQUEST_FIELDS, separators, "squeue")
    nodes_of = {job: nodes for job, *nodes in (line.split(" ") for line in node_lists.splitlines())}
    found = {}
    for row, job_id in enumerate(columns["JobID"]):
        job = {name: "" if column[row] in UNSET else column[row] for name, column in columns.items()}
        nodes = ["" if each in UNSET else each for each in nodes_of.get(job_id, [])]
        try:
            alone = shown_job(shown.get(int(job_id), ""))
            if alone is not None:
                found[int(job_id)] = _resource_request(job, alone, *[*nodes, "", ""][:2])
        except ValueError as error:
            raise ReadFailed(f"squeue prints of job {job_id[:20]}: {error}") from error
    return found


def _resource_request(
    job: dict[str, str], shown: ShownJob, excluded_nodes: str, required_nodes: str
) -> ResourceRequest:
    listed_nodes = whole(job["NumNodes"])  # 22.05 lists an old number where NumNodes of a pending job was updated
    return ResourceRequest(
        nodes=tres.nodes(job["tres-alloc"]) or listed_nodes,
        gpus=tres.total_gpus(job["tres-alloc"]) or 0,
        cpus=whole(job["NumCPUs"]),
        memory=tres.memory(job["tres-alloc"]),
        het_id=whole(job["HetJobID"] or "0"),
        reservation=job["Reservation"],
        gres=job["tres-per-node"],
        tasks=_number(job["NumTasks"]),
        tasks_per_node=_number(job["NTPerNode"]),
        cpus_per_task=_number(job["cpus-per-task"]),
        min_cpus_per_node=_number(job["MinCPUs"]),
        memory_requested=job["MinMemory"] not in ("", "0") and not job["mem-per-tres"],
        min_memory=tres.memory(f"mem={job['MinMemory'] or 0}"),
        cpus_follow_gpus=bool(job["cpus-per-tres"]),
        requeue=job["Requeue"] == "1",
        excluded_nodes=excluded_nodes,
        required_nodes=required_nodes,
        time_limit=_time_limit(job["TimeLimit"]),
        nice=whole(job["Nice"] or "0"),
        gres_per_job=job["tres-per-job"],
        gres_per_socket=job["tres-per-socket"],
        gres_per_task=job["tres-per-task"],
        cpus_per_gpu=sum(tres.gpus(job["cpus-per-tres"]).values()),
        pending=job["State"] == "PENDING",
        **shown._asdict(),
    )


def _time_limit(text: str) -> float | None:
    """Seconds, None for no limit."""
    seconds = duration(text or "UNLIMITED")
    return seconds if seconds < _NO_LIMIT else None


def _number(text: str) -> int:
    """0 for what is no number, and for what slurm.h has for one that is not set, of 16 or of 32 bits."""
    return int(text) if text.isdecimal() and int(text) < _NO_VAL16 else 0
