"""The Standard Workload Format of the Parallel Workloads Archive (Chapin et al., JSSPP 1999).

A processor of the log is a GPU here, since these are what the simulator gives away one by one.
"""

from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads.importers.recorded import NAN, RecordedJob, job
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import Row, collect, open_lines, space_separated

FIELDS = (
    "job", "submit", "wait", "run", "procs", "cpu", "mem", "procs_asked", "limit", "mem_asked", "status", "user",
    "group", "exe", "queue", "partition", "previous", "think",
)  # fmt: skip
MAX_PROCESSORS = 10_000_000
_HEAD = 1_000
"""lines that are looked through for the header"""


def workload(request: WorkloadRequest) -> Workload:
    """Jobs that never ran are left out.

    Raises:
        WorkloadError
    """
    jobs, skipped = collect(space_separated(request.path, FIELDS), _job, skip_bad=request.skip_bad)
    processors, nodes = _cluster(request)
    even = 0 < nodes <= processors and processors % nodes == 0
    return Workload(
        str(request.path), tuple(jobs), nodes if even else processors, processors // nodes if even else 1, skipped
    )


def _job(row: Row) -> SimJob | None:
    run = row.number("run", least=-1)
    processors = max(row.integer("procs", least=-1, most=MAX_PROCESSORS), 0) or row.integer(
        "procs_asked", least=-1, most=MAX_PROCESSORS
    )
    if run <= 0 or processors <= 0:
        return None
    limit, wait = row.number("limit", least=-1), row.number("wait", -1, least=-1)
    return job(
        RecordedJob(
            name=row.text("job"),
            submit=row.number("submit"),
            seconds=run,
            gpus=processors,
            time_limit=max(limit, run) if limit > 0 else NAN,
            user=_name(row, "user"),
            account=_name(row, "group"),
            qos=_name(row, "queue"),
            partition=_name(row, "partition"),
            waited=wait if wait >= 0 else NAN,
        )
    )


def _name(row: Row, column: str) -> str:
    number = row.integer(column, least=-1)
    return f"{column}{number}" if number >= 0 else column


def _cluster(request: WorkloadRequest) -> tuple[int, int]:
    """Processors and nodes that the header names, 0 where it does not."""
    header: dict[str, int] = {}
    with open_lines(request.path) as lines:
        for _, line in zip(range(_HEAD), lines, strict=False):
            key, colon, value = line.lstrip("; \t").partition(":")
            word = next(iter(value.split()), "")
            if line.startswith(";") and colon and word.isascii() and word.isdecimal() and len(word) < 9:
                header.setdefault(key.strip(), int(word))
    return header.get("MaxProcs", header.get("MaxNodes", 0)), header.get("MaxNodes", 0)
