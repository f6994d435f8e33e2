"""A site's own past: what `sacct --parsable2` lists.

    SLURM_TIME_FORMAT=%s sacct -a -X -D --parsable2 --starttime=2026-01-01 --format=JobID,User,Account,Partition,QOS,\
Submit,Eligible,Start,ElapsedRaw,Timelimit,AllocTRES,ReqTRES,NCPUS,State,JobName

JobID, Submit and Elapsed or ElapsedRaw must be there. Times that are not seconds since the epoch are taken as the clock
showed them. With Eligible, a job comes into the queue when it was eligible, as a dependency or --begin had it wait
until then; with Start, it is known how long it waited. With -D each run of a requeued job is a job. JobName, from which
run times are forecast too, is chosen by users: where it is the last column, `|` and line breaks in it do no harm.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from slurmplug.cluster import tres
from slurmplug.console.table import printable
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.workloads.importers.recorded import NAN, RecordedJob, job, parse_duration
from slurmplug.sim.workloads.load import WorkloadRequest
from slurmplug.sim.workloads.rows import MOST_ROWS, BadRow, Row, WorkloadError, collect, open_lines, quoted

_NEVER = frozenset({"", "Unknown", "None", "N/A"})
MOST_GPUS = 1_000_000
LONGEST = 1e9
"""seconds that a job runs"""
LONGEST_NAME = 256
"""characters that are kept of the name of a job"""
_JOB = re.compile(r"\d+(?:[_+.].*)?", re.ASCII)
"""The id of a job, of an array's elements, of a component or a step."""
_TOLD_BY: Mapping[str, str] = MappingProxyType({"User": "users", "Account": "accounts", "Timelimit": "time limits"})
"""What is not known where a column is missing."""


def workload(request: WorkloadRequest) -> Workload:
    """Jobs that ran and held GPUs; `?cpu_jobs=on` those of CPUs alone too. Steps are left out.

    Raises:
        WorkloadError
    """
    wants_all = request.options.text("cpu_jobs", "off", ("off", "on")) == "on"
    heading, reader = _heading(request.path), _Reader(wants_all)
    jobs, skipped = collect(_rows(request.path, heading), reader.job, skip_bad=request.skip_bad)
    if reader.without_gpus and not jobs and not wants_all:
        raise WorkloadError(f"{request.path}: {_no_gpus(heading)}; sacct:FILE?cpu_jobs=on uses jobs without GPUs, too")
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
            *(what for column, what in _TOLD_BY.items() if not {column, f"{column}Raw"} & set(heading)),
            *(() if "Eligible" in heading else ("dependencies",)),
            "reservations",
            "nodes that were down",
            "usage before the first job, for fairshare",
            *((f"how long the jobs would have taken that still ran ({reader.running})",) if reader.running else ()),
        ),
    )


def _heading(path: Path) -> list[str]:
    """The columns. Raises WorkloadError where there are none, or a necessary one is missing."""
    with open_lines(path, "replace") as lines:
        first = next((line for line in lines if not line.startswith("#")), "").strip()
    columns = [name.strip() for name in first.removesuffix("|").split("|")]
    if len(columns) < 2:
        raise WorkloadError(f"{path} is not what sacct --parsable2 lists: its first line is {quoted(first)}")
    if missing := [name for name in ("JobID", "Submit") if name not in columns]:
        raise WorkloadError(f"{path}: its heading lacks {', '.join(missing)}; it has {quoted(first)}")
    if len(set(columns)) < len(columns):
        raise WorkloadError(f"{path}: its heading names a column twice")
    return columns


def _rows(path: Path, heading: Sequence[str]) -> Iterator[Row]:
    """The lines below the heading, without those with which the name of a job goes on."""
    many, ends_with_name = len(heading), heading[-1] == "JobName"
    with open_lines(path, "replace") as lines:
        numbered = ((number, line) for number, line in enumerate(lines, 1) if not line.startswith("#"))
        next(numbered, None)
        for number, line in numbered:
            if number > MOST_ROWS:
                raise WorkloadError(f"{path}: has more than {MOST_ROWS} rows")
            cells = line.rstrip("\r\n").split("|")
            if len(cells) == many + 1 and not cells[-1]:  # of sacct --parsable
                cells.pop()
            if ends_with_name:
                if len(cells) < many and not _JOB.fullmatch(cells[0]):
                    continue
                cells[many - 1 :] = ["|".join(cells[many - 1 :])] if len(cells) >= many else []
            elif cells == [""]:
                continue
            fault = "" if len(cells) == many else f"has {len(cells)} cells; the heading has {many}"
            yield Row(str(path), number, dict(zip(heading, cells, strict=False)), fault)


def _no_gpus(heading: Sequence[str]) -> str:
    if {"AllocTRES", "ReqTRES"}.isdisjoint(heading):
        return "has neither AllocTRES nor ReqTRES, which list GPUs"
    return "lists no GPUs of any job: does AccountingStorageTRES have gres/gpu?"


class _Reader:
    """Makes jobs of rows, and counts those that have no GPUs, and those that still ran."""

    def __init__(self, wants_all: bool) -> None:
        self._wants_all = wants_all
        self.without_gpus = self.running = 0

    def job(self, row: Row) -> SimJob | None:
        """The job of a row; None for one that did not run, or is not wanted. Raises BadRow."""
        name = row.text("JobID")
        if "." in name:
            return None
        seconds = (
            row.number("ElapsedRaw", most=LONGEST) if row.text("ElapsedRaw", "") else parse_duration(row, "Elapsed")
        )
        if not seconds > 0 or row.text("Submit", "Unknown") in _NEVER:
            return None
        gpus, memory, nodes = _allocated(row)
        self.without_gpus += not gpus
        if not gpus and not self._wants_all:
            return None
        self.running += row.text("State", "") in ("RUNNING", "SUSPENDED")
        limit = (
            60 * row.number("TimelimitRaw")
            if (row.text("TimelimitRaw", "") or "x")[0].isdecimal()
            else parse_duration(row, "Timelimit")
        )
        submit, start = _time(row, "Submit"), _time_if_known(row, "Start")
        queued = submit if (eligible := _time_if_known(row, "Eligible")) is None else max(submit, eligible)
        return job(
            RecordedJob(
                name=printable(row.cells.get("JobName", "").strip())[:LONGEST_NAME] or name,
                submit=queued,
                seconds=seconds,
                gpus=gpus,
                cpus=row.integer("NCPUS", 0, most=10**7) or row.integer("AllocCPUS", 0, most=10**7),
                cpus_requested=_requested_cpus(row),
                memory=memory,
                time_limit=max(limit, seconds) if limit == limit else NAN,
                user=row.text("User", "user"),
                account=row.text("Account", "account"),
                qos=row.text("QOS", "normal"),
                partition=row.text("Partition", "gpu"),
                waited=start - queued if start is not None and start >= queued else NAN,
                nodes=nodes,
                gpu_type=_requested_type(row, gpus),
            )
        )


def _allocated(row: Row) -> tuple[int, float, int]:
    """GPUs, MiB and nodes allocated, else requested."""
    text = row.text("AllocTRES", "", longest=4096) or row.text("ReqTRES", "", longest=4096)
    try:
        gpus, memory, nodes = tres.total_gpus(text) or 0, tres.memory(text), tres.nodes(text)
    except ValueError as error:
        raise row.bad("AllocTRES", f"{quoted(text)}: {error}") from error
    if not 0 <= gpus <= MOST_GPUS:
        raise row.bad("AllocTRES", f"{gpus} GPUs are out of range")
    return gpus, memory, nodes


def _requested_cpus(row: Row) -> int:
    """0 where it is not known."""
    return min(tres.cpus(row.text("ReqTRES", "", longest=4096)), 10**7)


def _requested_type(row: Row, gpus: int) -> str:
    """The type of all its GPUs, where it requested one; what it was given of may be of a type without any request."""
    requested = tres.gpus(row.text("ReqTRES", "", longest=4096))
    return next((kind for kind, count in requested.items() if kind and count == gpus), "")


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
    said = f"is no time 2026-01-31T18:00:00, nor seconds since the epoch: {quoted(text)}"
    return row.bad(column, f"{said}; run sacct with SLURM_TIME_FORMAT=%s")
