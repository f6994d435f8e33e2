"""What jobs request and by which options, as squeue prints it. Pure."""

from slurmplug.cluster import tres
from slurmplug.cluster.parse.table import UNSET, Separators, duration, parse_table
from slurmplug.cluster.port import ResourceRequest
from slurmplug.errors import ReadFailed

RESOURCE_REQUEST_FIELDS = (
    "JobID", "NumNodes", "NumCPUs", "tres-alloc", "HetJobID", "Reservation", "tres-per-node", "tres-per-job",
    "tres-per-socket", "tres-per-task", "NumTasks", "NTPerNode", "cpus-per-task", "MinCPUs", "MinMemory",
    "mem-per-tres", "cpus-per-tres", "Requeue", "TimeLimit", "Nice",
)  # fmt: skip
"""squeue(1), --Format: what determines the shape of a job"""
_NO_VAL16 = 0xFFFE
"""What slurm.h has for a 16-bit number that is not set."""
_NO_LIMIT = 365 * 86_400.0
"""Seconds; the time limit that Slurm gives a job without one while it runs."""


def resource_requests(text: str, node_lists: str, separators: Separators) -> dict[int, ResourceRequest]:
    """What jobs request, by job id.

    Args:
        text: the output of `squeue --Format` with RESOURCE_REQUEST_FIELDS.
        node_lists: the output of `squeue -o "%A %x %n"`: job id, excluded nodes, required nodes.
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
            found[int(job_id)] = _resource_request(job, *[*nodes, "", ""][:2])
        except ValueError as error:
            raise ReadFailed(f"squeue prints of job {job_id[:20]}: {error}") from error
    return found


def _resource_request(job: dict[str, str], excluded_nodes: str, required_nodes: str) -> ResourceRequest:
    not_per_node = [_gres(job[f"tres-per-{each}"]) for each in ("job", "socket", "task")]
    listed_nodes = int(job["NumNodes"])  # 22.05 lists an old number where NumNodes of a pending job was updated
    return ResourceRequest(
        nodes=tres.nodes(job["tres-alloc"]) or listed_nodes,
        gpus=tres.total_gpus(job["tres-alloc"]) or 0,
        cpus=int(job["NumCPUs"]),
        memory=tres.memory(job["tres-alloc"]),
        het_id=int(job["HetJobID"] or 0),
        reservation=job["Reservation"],
        gres=job["tres-per-node"],
        gpus_not_per_node=any("gpu" in each for each in not_per_node),
        gres_not_per_node=";".join(not_per_node),
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
        nice=int(job["Nice"] or 0),
    )


def _gres(text: str) -> str:
    """Without the CPUs, which squeue lists there as well since 23.11."""
    return ",".join(item for item in text.split(",") if not item.startswith("cpu"))


def _time_limit(text: str) -> float | None:
    """Seconds, None for no limit."""
    seconds = duration(text or "UNLIMITED")
    return seconds if seconds < _NO_LIMIT else None


def _number(text: str) -> int:
    """0 for what is no number, and for what slurm.h has for one that is not set, of 16 or of 32 bits."""
    return int(text) if text.isdecimal() and int(text) < _NO_VAL16 else 0
