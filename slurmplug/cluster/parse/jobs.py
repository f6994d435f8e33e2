"""The queue that squeue lists, how jobs ended by sacct, and their SiteFactors by sprio. Pure."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats, Ints, Texts
from slurmplug.cluster import tres
from slurmplug.cluster.parse.table import (
    UNSET,
    WORD_LENGTH,
    Columns,
    Separators,
    column,
    duration,
    exit_code,
    floats,
    ints,
    parse_table,
    split_records,
    strings,
    timestamp,
    timestamps,
    values,
    whole,
    words,
)
from slurmplug.cluster.port import Ending, JobRows, RunIdentity
from slurmplug.errors import ReadFailed

VOLATILE_FIELDS = ("PriorityLong", "StartTime", "EndTime", "TimeUsed")
"""What changes of a job from one squeue to the next: backfill sets when a pending one is expected to start."""
JOB_FIELDS = (
    *VOLATILE_FIELDS,
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "UserID", "UserName", "Account", "QOS", "Partition", "State",
    "Reason", "Name", "Comment", "Dependency", "Feature", "Reservation", "NodeList", "BatchFlag", "RestartCnt",
    "SubmitTime", "EligibleTime", "TimeLimit", "Nice", "NumNodes", "NumCPUs", "NumTasks", "Sockets", "tres-alloc",
    "tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task", "exit_code",
)  # fmt: skip
"""squeue(1), --Format: all of them are in 22.05 and in 26.05. `tres-alloc` of a pending job is what it requests."""
_STABLE_FIELDS = JOB_FIELDS[len(VOLATILE_FIELDS) :]
RUN_IDENTITY_FIELDS = ("JobID", "UserID", "SubmitTime", "RestartCnt")
"""squeue(1), --Format: those of `RunIdentity`."""
ENDING_FIELDS = ("JobIDRaw", "State", "Start", "End", "ExitCode", "Suspended")
"""sacct(1), --format: no text that a user writes, so the separator need not be secret."""

SPRIO_FORMAT = "%i %S %y"
_SITE_FACTOR = re.compile(r"\s*+(\d{1,10}+)(?!\d)\S*+\s++(-?\d{1,10}+)\s++(\d++\.\d++)\s*+")
"""A line of sprio(1), --format=SPRIO_FORMAT: job id, SiteFactor, and the priority as a share of the greatest possible.
Of a pinned priority (scontrol update Priority=) sprio shows the SiteFactor as 0, and for the share the priority itself,
which is at least 1 (print.c in src/sprio)."""

TEXT_LENGTH = 1_024
COMMENT_LENGTH = 4_096
"""Characters that are kept of a text that a user writes; comments may have directives."""
_MAX_LISTED_TASKS = 5
"""Slurm prints more tasks than this, evenly spaced, as FIRST-LAST:STEP."""
_REQUESTS = ("tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task")
_WITH_ALLOCATION = ("RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED")
"""States in which EndTime is when the time limit ends the job."""
_NO_VAL = 0xFFFF_FFFE
"""What slurm.h has for a 32-bit number that is not set."""


@dataclass(frozen=True)
class Queue:
    """The jobs, and the addresses of those in arrays, by job id: what scontrol and scancel take for exactly these jobs.

    A job id is not enough: `JobId=A` means every element of the array A, also one that was split off with a SiteFactor
    of its own; and scancel of 22.05 does not find an element by its own id once the element that has the array's id has
    ended. So an element is addressed as `A_2`, and those that are pending together as `A_[3-9]`, with their tasks.
    """

    rows: JobRows
    addresses: Mapping[int, str]


class QueueReader:
    """Parses one squeue after the other, and of each only the rows that differ from those of the one before."""

    def __init__(self, separators: Separators) -> None:
        """`separators` are those of every queue to come: a row that did not change has to be the same text."""
        self._separators = separators
        self._rows: dict[str, int] = {}
        self._columns = _parse_columns({name: [] for name in _STABLE_FIELDS})

    def read(self, text: str, now: float) -> Queue:
        """The jobs that `squeue --array --Format` lists.

        In a federation, slurmctld takes the id from a job of another member once that runs elsewhere. Such a job gets
        the id with which it was listed before; one that never was is left out.

        now: seconds since the epoch when squeue was started, by the clock that it subtracts starts from.

        Raises:
            ReadFailed
        """
        separator, records = self._separators.field, text.split(f"{self._separators.record}\n")
        if records.pop():
            raise ReadFailed("squeue's answer ends in the middle of a record")
        parts = [record.split(separator, len(VOLATILE_FIELDS)) for record in records]
        if any(len(part) <= len(VOLATILE_FIELDS) for part in parts):
            raise ReadFailed(f"squeue answers a record that has not {len(JOB_FIELDS)} fields")
        if without_id := [part for part in parts if part[-1].startswith(f"{_NO_VAL}{separator}")]:
            parts = [part for part in parts if not part[-1].startswith(f"{_NO_VAL}{separator}")]
            parts += self._with_earlier_ids(without_id, {_job_id(part[-1], separator) for part in parts})
        *volatile, stable = zip(*parts, strict=True) if parts else [()] * (len(VOLATILE_FIELDS) + 1)
        rows = dict(zip(stable, range(len(stable)), strict=True))
        if len(rows) < len(stable):
            raise ReadFailed("squeue lists a job twice")
        at = np.array([self._rows.get(record, -1) for record in stable], dtype=np.int64)
        new = np.flatnonzero(at < 0)
        columns = self._columns
        if len(new):
            texts = split_records([stable[row] for row in new.tolist()], _STABLE_FIELDS, separator, "squeue")
            at[new] = len(self._rows) + np.arange(len(new))
            columns = {name: np.concatenate([columns[name], each]) for name, each in _parse_columns(texts).items()}
        columns = {name: column[at] for name, column in columns.items()}
        found = _queue(columns, dict(zip(VOLATILE_FIELDS, volatile, strict=True)), now)
        self._rows, self._columns = rows, columns
        return found

    def _with_earlier_ids(self, records: Sequence[list[str]], listed: Collection[str]) -> Iterator[list[str]]:
        """Those of the records that are of jobs which were listed before and now are not, with their ids."""
        separator = self._separators.field
        gone: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for stable in self._rows:
            if (job_id := _job_id(stable, separator)) not in listed:
                gone[_kept_in_federation(stable, separator)].append(job_id)
        for *volatile, stable in records:
            if ids := gone[_kept_in_federation(stable, separator)]:
                yield [*volatile, ids.pop() + stable.removeprefix(str(_NO_VAL))]


def _job_id(stable: str, separator: str) -> str:
    return stable.partition(separator)[0]


def _kept_in_federation(stable: str, separator: str) -> tuple[str, ...]:
    """What a job keeps that has lost its id."""
    fields = stable.split(separator)
    return tuple(fields[_STABLE_FIELDS.index(name)] for name in ("UserID", "SubmitTime", "Name"))


def queue(text: str, separators: Separators, now: float) -> Queue:
    """The jobs of one squeue, as `QueueReader.read`. Raises ReadFailed."""
    return QueueReader(separators).read(text, now)


def _parse_columns(columns: Columns) -> dict[str, NDArray[Any]]:
    """The columns of JobRows that follow from the stable fields, but for `elements` and `array_tasks`."""
    gpus, gpu_type = _gpus(columns)
    shards = [values(columns, name, tres.shards) for name in _REQUESTS]
    array_task = column(columns, "ArrayTaskID", lambda word: -1 if word in UNSET else whole(word), np.int64)
    return {
        "job_id": ints(columns, "JobID"),
        "array_id": np.where(array_task < 0, 0, ints(columns, "ArrayJobID")),
        "array_task": array_task,
        "het_id": column(columns, "HetJobID", lambda word: 0 if word in UNSET else whole(word), np.int64),
        "uid": ints(columns, "UserID"),
        "user": words(columns, "UserName"),
        "account": words(columns, "Account"),
        "qos": words(columns, "QOS"),
        "partition": strings(columns, "Partition", TEXT_LENGTH),
        "state": words(columns, "State"),
        "reason": words(columns, "Reason"),
        "name": strings(columns, "Name", TEXT_LENGTH),
        "comment": strings(columns, "Comment", COMMENT_LENGTH),
        "dependency": strings(columns, "Dependency", COMMENT_LENGTH),
        "features": strings(columns, "Feature", TEXT_LENGTH),
        "reservation": strings(columns, "Reservation", TEXT_LENGTH),
        "node_list": strings(columns, "NodeList", None),
        "batch": ints(columns, "BatchFlag") != 0,
        "restarts": ints(columns, "RestartCnt"),
        "submit": timestamps(columns, "SubmitTime"),
        "eligible": timestamps(columns, "EligibleTime"),
        "time_limit": column(columns, "TimeLimit", duration, np.float64),
        "nice": ints(columns, "Nice"),
        "nodes": ints(columns, "NumNodes"),
        "cpus": ints(columns, "NumCPUs"),
        "memory": column(columns, "tres-alloc", tres.memory, np.float64),
        "gpus": gpus,
        "gpu_type": gpu_type,
        "gpu_type_held": _allocated_type(columns),
        "shards": np.array(shards, dtype=np.int64).max(axis=0, initial=0),
        "exit_code": column(columns, "exit_code", exit_code, np.int64),
    }


def _queue(columns: Mapping[str, NDArray[Any]], volatile: Mapping[str, Sequence[str]], now: float) -> Queue:
    """The rows, where the records of elements that are pending together become one."""
    job_id, array_id, array_task = columns["job_id"], columns["array_id"], columns["array_task"].copy()
    _, first, row_of, counts = np.unique(job_id, return_index=True, return_inverse=True, return_counts=True)
    several = counts[row_of] > 1
    if np.any(several & (array_id != job_id)):
        raise ReadFailed("squeue lists a job twice")
    tasks = _pending_tasks(job_id, array_task, np.flatnonzero(several))
    array_task[first[counts > 1]] = -1
    kept = np.sort(first)
    if len(kept) < len(job_id):
        columns = {name: each[kept] for name, each in columns.items()}
        volatile = {name: [texts[row] for row in kept.tolist()] for name, texts in volatile.items()}
    pending = columns["state"] == "PENDING"
    ids, task = columns["job_id"], array_task[kept]
    elements = np.ones(len(ids), dtype=np.int64)
    arrays = np.flatnonzero(columns["array_id"])
    elements[arrays] = [len(tasks.get(each, (0,))) for each in ids[arrays].tolist()]
    starts, ends = timestamps(volatile, "StartTime"), timestamps(volatile, "EndTime")
    used = column(volatile, "TimeUsed", duration, np.float64)
    rows = JobRows(
        **{name: each for name, each in columns.items() if name != "array_task"},
        array_task=task,
        elements=elements,
        array_tasks=_task_texts(ids, tasks),
        start=np.where(pending, np.nan, starts),
        expected=np.where(pending, starts, np.nan),
        end=np.where(pending, np.nan, ends),
        suspended=_suspended(columns["state"], starts, ends, used, now),
        priority=floats(volatile, "PriorityLong"),
    )
    in_arrays = zip(ids[arrays].tolist(), columns["array_id"][arrays].tolist(), task[arrays].tolist(), strict=True)
    addresses = {
        job: f"{array}_{task}" if task >= 0 else f"{array}_[{task_ranges(tasks[array])}]"
        for job, array, task in in_arrays
    }
    return Queue(rows, addresses)


def _suspended(states: Texts, starts: Floats, ends: Floats, used: Floats, now: float) -> Floats:
    """(n,) `JobRows.suspended`, from the seconds used, which leave out suspensions.

    squeue counts the time that a running job has used until it prints that job, which is not before `now`. So of a job
    that was never suspended the result is 0, and of another one it is too short by what squeue took at most.
    """
    until = np.where(np.isin(states, _WITH_ALLOCATION), np.floor(now), ends)
    known = (states != "PENDING") & ~np.isnan(used)
    return np.where(known, np.nan_to_num(np.maximum(until - starts - used, 0.0)), 0.0)


def run_identities(text: str, separators: Separators) -> dict[int, RunIdentity]:
    """By job id, of what squeue prints for RUN_IDENTITY_FIELDS. Raises ReadFailed."""
    columns = parse_table(text, RUN_IDENTITY_FIELDS, separators, "squeue")
    submits = np.nan_to_num(timestamps(columns, "SubmitTime")).astype(np.int64)
    found = (ints(columns, "JobID"), ints(columns, "UserID"), submits, ints(columns, "RestartCnt"))
    return {job_id: RunIdentity(*rest) for job_id, *rest in zip(*(each.tolist() for each in found), strict=True)}


def endings(text: str) -> tuple[Ending, ...]:
    """How the jobs ended that `sacct --parsable2` lists as ended. Raises ReadFailed."""
    found = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != len(ENDING_FIELDS):
            raise ReadFailed(f"sacct answers {line[:80]!r}, which is not {len(ENDING_FIELDS)} fields")
        job, state, start, end, status, suspended = fields
        if not job.isdecimal():
            continue  # elements of an array that are still pending together
        try:
            ending = Ending(
                whole(job), state.partition(" ")[0], timestamp(start), timestamp(end), exit_code(status),
                float(np.nan_to_num(duration(suspended))),
            )  # fmt: skip
        except ValueError as error:
            raise ReadFailed(f"sacct answers {line[:80]!r}: {error}") from error
        if not np.isnan(ending.end):
            found.append(ending)
    return tuple(found)


def site_factors(text: str) -> dict[int, int]:
    """By job id, of the jobs that `sprio --noheader --format=SPRIO_FORMAT` lists: pending ones that may start.

    A job in several partitions is listed for each. Jobs whose priority is pinned are left out. Raises ReadFailed.
    """
    lines = [(line, _SITE_FACTOR.fullmatch(line)) for line in text.splitlines()]
    if wrong := [line for line, match in lines if match is None]:
        raise ReadFailed(f"sprio answers {wrong[0][:80]!r}")
    return {int(match[1]): int(match[2]) for _, match in lines if match and float(match[3]) < 1.0}


def _pending_tasks(job_id: Ints, array_task: Ints, rows: Ints) -> dict[int, list[int]]:
    """The tasks of each array in these rows, which are those of elements that are pending together."""
    tasks: dict[int, list[int]] = defaultdict(list)
    for array, task in zip(job_id[rows].tolist(), array_task[rows].tolist(), strict=True):
        tasks[array].append(task)
    return {array: _with_dropped_task(sorted(each)) for array, each in tasks.items()}


def _with_dropped_task(tasks: list[int]) -> list[int]:
    """The tasks, and the last one where squeue left it out.

    Slurm keeps more than five evenly spaced tasks as `FIRST-LAST:STEP`, of which squeue does not list the last
    (bitfmt2int in src/common/bitstring.c, 22.05 and 24.11). An update that names all but one of the tasks that are
    pending together would make a job of each.
    """
    step = tasks[-1] - tasks[-2] if len(tasks) > _MAX_LISTED_TASKS else 1
    return [*tasks, tasks[-1] + step] if step > 1 and np.all(np.diff(tasks) == step) else tasks


def _task_texts(job_id: Ints, tasks: Mapping[int, list[int]]) -> NDArray[np.object_]:
    """`JobRows.array_tasks`. tasks: by array, those of its elements that are pending together."""
    texts = {array: _evenly(each) or task_ranges(each) for array, each in tasks.items()}
    found = np.full(len(job_id), "", dtype=object)
    for at, job in enumerate(job_id.tolist() if texts else ()):
        text = texts.get(job, "")
        found[at] = text if len(text) <= COMMENT_LENGTH else ""
    return found


def _evenly(tasks: list[int]) -> str:
    """`0-10:2` for 0, 2, 4, 6, 8, 10; empty where they are not evenly spaced, or one after the other."""
    step = tasks[1] - tasks[0]
    even = len(tasks) > _MAX_LISTED_TASKS and step > 1 and np.all(np.diff(tasks) == step)
    return f"{tasks[0]}-{tasks[-1]}:{step}" if even else ""


def task_ranges(tasks: list[int]) -> str:
    """`0-2,7` for 0, 1, 2, 7."""
    numbers = np.array(tasks)
    breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
    runs = zip(numbers[np.append(0, breaks)], numbers[np.append(breaks - 1, -1)], strict=True)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _gpus(columns: Columns) -> tuple[Ints, NDArray[np.str_]]:
    """The number of GPUs of each job, and the types that it requests.

    Where a job requests GPUs by two options, such as --gpus and --gpus-per-node, the larger number counts.
    """
    nodes, tasks = ints(columns, "NumNodes"), ints(columns, "NumTasks")
    sockets = column(columns, "Sockets", lambda text: whole(text) if text.isdecimal() else 1, np.int64)
    multiples = {
        "tres-per-node": nodes,
        "tres-per-job": np.ones_like(nodes),
        "tres-per-socket": nodes * sockets,
        "tres-per-task": np.where(tasks < _NO_VAL, tasks, 1),
    }
    requested, kind = np.zeros_like(nodes), np.zeros(len(nodes), dtype=np.str_)
    for name, multiple in multiples.items():
        found = values(columns, name, tres.gpus)
        requested = np.maximum(requested, np.array([sum(each.values()) for each in found], dtype=np.int64) * multiple)
        kinds = np.array([tres.types(each)[:WORD_LENGTH] for each in found], dtype=np.str_)
        kind = np.where(kind == "", kinds, kind)
    tracked = column(columns, "tres-alloc", lambda text: -1 if (n := tres.total_gpus(text)) is None else n, np.int64)
    return np.where(tracked < 0, requested, tracked), kind


def _tracked_type(text: str) -> str:
    """The types of GPUs in a list of TRES; empty unless all its GPUs are of types that are tracked."""
    found = tres.gpus(text)
    every = found.pop("", 0)
    return tres.types(found)[:WORD_LENGTH] if sum(found.values()) >= every else ""


def _allocated_type(columns: Columns) -> NDArray[np.str_]:
    """The type of the GPUs of each job that has started, where the accounting tracks it (AccountingStorageTRES)."""
    kind = column(columns, "tres-alloc", _tracked_type, np.str_)
    waits = np.array(columns["State"], dtype=np.str_) == "PENDING"
    return np.where(waits, "", kind)
