"""How jobs asked for what they hold, as squeue tells it. Pure."""

from slurmplug.cluster import tres
from slurmplug.cluster.parse.table import UNSET, Marks, table
from slurmplug.cluster.port import Asked
from slurmplug.errors import ReadFailed

ASKED_FIELDS = (
    "JobID", "NumNodes", "NumCPUs", "tres-alloc", "HetJobID", "Reservation", "tres-per-node", "tres-per-job",
    "tres-per-socket", "tres-per-task", "NumTasks", "NTPerNode", "cpus-per-task", "MinCPUs", "MinMemory",
    "mem-per-tres", "cpus-per-tres", "Requeue",
)  # fmt: skip
"""squeue(1), --Format: what a job's shape is made of"""
_FEWEST_NO_VAL = 0xFFFE
"""What slurm.h writes for a small number that is not set."""


def asked(text: str, constraints: str, marks: Marks) -> dict[int, Asked]:
    """How jobs asked, of `squeue --Format` with the fields above and `squeue -o "%A %x %n"`. Raises ReadFailed."""
    told = table(text, ASKED_FIELDS, marks, "squeue")
    lines = {line.split(" ")[0]: line.split(" ")[1:] for line in constraints.splitlines()}
    found = {}
    for row in range(len(told["JobID"])):
        word = {name: "" if column[row] in UNSET else column[row] for name, column in told.items()}
        excluded, required = (
            ["" if each in UNSET else each for each in lines.get(word["JobID"], ["", ""])] + ["", ""]
        )[:2]
        try:
            found[int(word["JobID"])] = Asked(
                nodes=int(word["NumNodes"]),
                gpus=tres.total_gpus(word["tres-alloc"]) or 0,
                cpus=int(word["NumCPUs"]),
                memory=tres.memory(word["tres-alloc"]),
                het_id=int(word["HetJobID"] or 0),
                reservation=word["Reservation"],
                gres=word["tres-per-node"],
                gpus_otherwise=any("gpu" in word[f"tres-per-{each}"] for each in ("job", "socket", "task")),
                tasks=number(word["NumTasks"]),
                tasks_a_node=number(word["NTPerNode"]),
                cpus_a_task=number(word["cpus-per-task"]),
                fewest_cpus=number(word["MinCPUs"]),
                memory_asked=word["MinMemory"] not in ("", "0") and not word["mem-per-tres"],
                cpus_by_gpu=bool(word["cpus-per-tres"]),
                requeue=word["Requeue"] == "1",
                excluded=excluded,
                required=required,
            )
        except ValueError as error:
            raise ReadFailed(f"squeue tells of job {word['JobID'][:20]}: {error}") from error
    return found


def number(text: str) -> int:
    """0 for what is no number, and for what slurm.h writes where none is set."""
    return int(text) if text.isdecimal() and int(text) < _FEWEST_NO_VAL else 0
