"""A site's own past: what `sacct --parsable2` lists.

    sacct -a -X -D --parsable2 --starttime=2026-01-01 --format=JobID,User,Account,Partition,QOS,Submit,Eligible,Start,\
ElapsedRaw,Timelimit,AllocTRES,ReqTRES,NCPUS,State

JobID, Submit and Elapsed or ElapsedRaw must be there. Times are taken as the clock showed them. With Eligible, a job
comes into the queue when it was eligible, as a dependency or --begin had it wait until then; with Start, it is known
how long it waited. With -D each run of a requeued job is a job. JobName, from which run times are forecast too, may be
there where no name holds the `|` that separates the columns.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from slurmplug.cluster import tres
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads.importers.recorded import NAN, RecordedJob, job, parse_duration
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import BadRow, Row, collect, comma_separated, open_lines, quoted

_NEVER = frozenset({"", "Unknown", "None", "N/A"})
MOST_GPUS = 1_000_000


def workload(request: WorkloadRequest) -> Workload:
    """Jobs that ran and held GPUs; `?cpu_jobs=on` those of CPUs alone too. Steps are left out.

    Raises:
        WorkloadError
    """
    wants_all = request.options.text("cpu_jobs", "off", ("off", "on")) == "on"
    heading = _heading(request.path)
    rows = comma_separated(request.path, ("JobID", "Submit"), delimiter="|")
    jobs, skipped = collect(rows, _reader(wants_all), skip_bad=request.skip_bad)
    first = min((each.submit for each in jobs), default=0.0)
    return Workload(
        str(request.path),
        tuple(replace(each, submit=each.submit - first) for each in jobs),
        skipped=skipped,
        of_slurm=True,
        assumed=(
            "each job runs as long as it did, on whatever nodes, also if it failed or was cancelled",
            *(("each job enters the queue when it was eligible",) if "Eligible" in heading else ()),
            *(() if wants_all else ("jobs without GPUs are left out",)),
        ),
        not_known=(
            "directives",
            "learning curves",
            *(() if "Eligible" in heading else ("dependencies",)),
            "reservations",
            "nodes that were down",
            "usage before the first job, for fairshare",
        ),
    )


def _heading(path: Path) -> frozenset[str]:
    with open_lines(path) as lines:
        return frozenset(next((line for line in lines if not line.startswith("#")), "").strip().split("|"))


def _reader(wants_all: bool) -> Callable[[Row], SimJob | None]:
    def read(row: Row) -> SimJob | None:
        name = row.text("JobID")
        if "." in name:
            return None
        seconds = row.number("ElapsedRaw") if row.text("ElapsedRaw", "") else parse_duration(row, "Elapsed")
        if not seconds > 0 or row.text("Submit", "Unknown") in _NEVER:
            return None
        gpus, memory = _gpus_and_memory(row)
        if not gpus and not wants_all:
            return None
        limit = (
            60 * row.number("TimelimitRaw")
            if (row.text("TimelimitRaw", "") or "x")[0].isdecimal()
            else parse_duration(row, "Timelimit")
        )
        submit, start = _time(row, "Submit"), _time_if_known(row, "Start")
        queued = submit if (eligible := _time_if_known(row, "Eligible")) is None else max(submit, eligible)
        return job(
            RecordedJob(
                name=row.text("JobName", "") or name,
                submit=queued,
                seconds=seconds,
                gpus=gpus,
                cpus=row.integer("NCPUS", 0, most=10**7) or row.integer("AllocCPUS", 0, most=10**7),
                memory=memory,
                time_limit=max(limit, seconds) if limit == limit else NAN,
                user=row.text("User", "user"),
                account=row.text("Account", "account"),
                qos=row.text("QOS", "normal"),
                partition=row.text("Partition", "gpu"),
                waited=start - queued if start is not None and start >= queued else NAN,
            )
        )

    return read


def _gpus_and_memory(row: Row) -> tuple[int, float]:
    """GPUs and MiB allocated, else requested."""
    text = row.text("AllocTRES", "", longest=4096) or row.text("ReqTRES", "", longest=4096)
    try:
        gpus, memory = tres.total_gpus(text) or 0, tres.memory(text)
    except ValueError as error:
        raise row.bad("AllocTRES", f"{quoted(text)}: {error}") from error
    if not 0 <= gpus <= MOST_GPUS:
        raise row.bad("AllocTRES", f"{gpus} GPUs are out of range")
    return gpus, memory


def _time_if_known(row: Row, column: str) -> float | None:
    return None if row.text(column, "") in _NEVER else _time(row, column)


def _time(row: Row, column: str) -> float:
    text = row.text(column)
    if text.isdecimal() and text.isascii() and len(text) < 12:
        return float(text)
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise _invalid_time(row, column, text) from None


def _invalid_time(row: Row, column: str, text: str) -> BadRow:
    return row.bad(column, f"is no time 2026-01-31T18:00:00, nor seconds since the epoch: {quoted(text)}")
