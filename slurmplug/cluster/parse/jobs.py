"""The queue that squeue lists, with its arrays, and how jobs ended as sacct tells it. Pure."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Ints
from slurmplug.cluster import tres
from slurmplug.cluster.parse.table import (
    UNSET,
    WORD,
    Marks,
    column,
    duration,
    exit_code,
    floats,
    ints,
    moment,
    moments,
    split,
    strings,
    texts,
    values,
)
from slurmplug.cluster.port import Ending, JobRows
from slurmplug.errors import ReadFailed

OFTEN = ("PriorityLong", "StartTime", "EndTime")
"""What of a job that waits changes from look to look: backfill tells when it may start."""
JOB_FIELDS = (
    *OFTEN,
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "UserID", "UserName", "Account", "QOS", "Partition", "State",
    "Reason", "Name", "Comment", "Dependency", "Feature", "Reservation", "NodeList", "BatchFlag", "RestartCnt",
    "SubmitTime", "EligibleTime", "TimeLimit", "NumNodes", "NumCPUs", "NumTasks", "Sockets", "tres-alloc",
    "tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task", "exit_code",
)  # fmt: skip
"""squeue(1), --Format: all of them are in 22.05 and in 26.05. `tres-alloc` is what is asked for while a job waits."""
ENDING_FIELDS = ("JobIDRaw", "State", "Start", "End", "ExitCode")
"""sacct(1), --format: nothing that a user writes, so its separator need not be secret."""

_SITE_FACTOR = re.compile(r"\s*(\d+)\S*\s+(-?\d+)\s*")
"""Of sprio(1), --format="%i %S"."""

TEXT = 1_024
COMMENT = 4_096
"""Characters that are kept of a text that a user writes; comments may carry directives."""
_FEWEST_IN_STEPS = 5
_NO_VAL = 0xFFFF_FFFE
"""What slurm.h writes for a number that is not set."""


@dataclass(frozen=True)
class Queue:
    """The jobs, and how to address those of an array, whose id alone will not do.

    `JobId=A` means every element of the array A, also one that was split off with a label of its own; and scancel
    does not find an element by its own id once the one that has the array's id has ended (22.05). So an element is
    addressed as `A_2`, and those that wait together as `A_[3-9]` with exactly their tasks.
    """

    rows: JobRows
    addresses: Mapping[int, str]


class Queues:
    """Reads one queue after the other. Rows whose text is as it was in the last one are not read again."""

    def __init__(self, marks: Marks) -> None:
        """`marks`: of all the queues to come, so that what did not change is the same text."""
        self._marks = marks
        self._rows: dict[str, int] = {}
        self._columns = _columns({name: [] for name in JOB_FIELDS[len(OFTEN) :]})

    def read(self, text: str) -> Queue:
        """The jobs that `squeue --array --Format` lists. Raises ReadFailed."""
        mark, records = self._marks.field, text.split(f"{self._marks.record}\n")
        if records.pop():
            raise ReadFailed("squeue's answer ends in the middle of a record")
        parts = [record.split(mark, len(OFTEN)) for record in records]
        if any(len(part) <= len(OFTEN) for part in parts):
            raise ReadFailed(f"squeue answers a record that has not {len(JOB_FIELDS)} fields")
        *often, rests = zip(*parts, strict=True) if parts else [()] * (len(OFTEN) + 1)
        rows = dict(zip(rests, range(len(rests)), strict=True))
        if len(rows) < len(rests):
            raise ReadFailed("squeue lists a job twice")
        at = np.array([self._rows.get(rest, -1) for rest in rests], dtype=np.int64)
        new = np.flatnonzero(at < 0)
        columns = self._columns
        if len(new):
            told = split([rests[row] for row in new.tolist()], JOB_FIELDS[len(OFTEN) :], mark, "squeue")
            at[new] = len(self._rows) + np.arange(len(new))
            columns = {name: np.concatenate([columns[name], each]) for name, each in _columns(told).items()}
        columns = {name: column[at] for name, column in columns.items()}
        found = _queue(columns, dict(zip(OFTEN, often, strict=True)))
        self._rows, self._columns = rows, columns
        return found


def queue(text: str, marks: Marks) -> Queue:
    """One queue, as `Queues.read`. Raises ReadFailed."""
    return Queues(marks).read(text)


def _columns(told: Mapping[str, list[str]]) -> dict[str, NDArray[Any]]:
    """Of each record, but for what changes often."""
    gpus, gpu_type = _gpus(told)
    array_task = column(told, "ArrayTaskID", lambda word: -1 if word in UNSET else int(word), np.int64)
    return {
        "job_id": ints(told, "JobID"),
        "array_id": np.where(array_task < 0, 0, ints(told, "ArrayJobID")),
        "array_task": array_task,
        "het_id": column(told, "HetJobID", lambda word: 0 if word in UNSET else int(word), np.int64),
        "uid": ints(told, "UserID"),
        "user": texts(told, "UserName"),
        "account": texts(told, "Account"),
        "qos": texts(told, "QOS"),
        "partition": strings(told, "Partition", TEXT),
        "state": texts(told, "State"),
        "reason": texts(told, "Reason"),
        "name": strings(told, "Name", TEXT),
        "comment": strings(told, "Comment", COMMENT),
        "dependency": strings(told, "Dependency", COMMENT),
        "features": strings(told, "Feature", TEXT),
        "reservation": strings(told, "Reservation", TEXT),
        "node_list": strings(told, "NodeList", None),
        "batch": ints(told, "BatchFlag") != 0,
        "restarts": ints(told, "RestartCnt"),
        "submit": moments(told, "SubmitTime"),
        "eligible": moments(told, "EligibleTime"),
        "time_limit": column(told, "TimeLimit", duration, np.float64),
        "nodes": ints(told, "NumNodes"),
        "cpus": ints(told, "NumCPUs"),
        "memory": column(told, "tres-alloc", tres.memory, np.float64),
        "gpus": gpus,
        "gpu_type": gpu_type,
        "exit_code": column(told, "exit_code", exit_code, np.int64),
    }


def _queue(columns: Mapping[str, NDArray[Any]], often: Mapping[str, Sequence[str]]) -> Queue:
    """Of all records, where those of elements that wait together are one row."""
    job_id, array_id, array_task = columns["job_id"], columns["array_id"], columns["array_task"].copy()
    _, first, row_of, counts = np.unique(job_id, return_index=True, return_inverse=True, return_counts=True)
    if np.any((counts > 1) & (array_id[first] == 0)):
        raise ReadFailed("squeue lists a job twice")
    tasks = _waiting_tasks(job_id, array_task, np.flatnonzero(counts[row_of] > 1))
    array_task[first[counts > 1]] = -1
    kept = np.sort(first)
    if len(kept) < len(job_id):
        columns = {name: each[kept] for name, each in columns.items()}
        often = {name: [words[row] for row in kept.tolist()] for name, words in often.items()}
    waits = columns["state"] == "PENDING"
    ids, task = columns["job_id"], array_task[kept]
    elements = np.ones(len(ids), dtype=np.int64)
    arrays = np.flatnonzero(columns["array_id"])
    elements[arrays] = [len(tasks.get(each, (0,))) for each in ids[arrays].tolist()]
    starts = moments(often, "StartTime")
    rows = JobRows(
        **{name: each for name, each in columns.items() if name != "array_task"},
        array_task=task,
        elements=elements,
        start=np.where(waits, np.nan, starts),
        expected=np.where(waits, starts, np.nan),
        end=np.where(waits, np.nan, moments(often, "EndTime")),
        priority=floats(often, "PriorityLong"),
    )
    those = zip(ids[arrays].tolist(), columns["array_id"][arrays].tolist(), task[arrays].tolist(), strict=True)
    addresses = {
        job: f"{array}_{task}" if task >= 0 else f"{array}_[{_ranges(tasks[array])}]" for job, array, task in those
    }
    return Queue(rows, addresses)


def endings(text: str) -> tuple[Ending, ...]:
    """The jobs that ended, of those that `sacct --parsable2` lists. Raises ReadFailed."""
    found = []
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != len(ENDING_FIELDS):
            raise ReadFailed(f"sacct answers {line[:80]!r}, which is not {len(ENDING_FIELDS)} fields")
        job, state, start, end, status = words
        if not job.isdecimal():
            continue  # elements of an array that still wait together
        try:
            ending = Ending(int(job), state.partition(" ")[0], moment(start), moment(end), exit_code(status))
        except ValueError as error:
            raise ReadFailed(f"sacct answers {line[:80]!r}: {error}") from error
        if not np.isnan(ending.end):
            found.append(ending)
    return tuple(found)


def site_factors(text: str) -> dict[int, int]:
    """By job id, of those that wait, as `sprio --noheader --format="%i %S"` tells it. Raises ReadFailed."""
    lines = [(line, _SITE_FACTOR.fullmatch(line)) for line in text.splitlines()]
    if wrong := [line for line, match in lines if match is None]:
        raise ReadFailed(f"sprio answers {wrong[0][:80]!r}")
    return {int(match[1]): int(match[2]) for _, match in lines if match}


def _waiting_tasks(job_id: Ints, array_task: Ints, rows: Ints) -> dict[int, list[int]]:
    """The tasks of the arrays in these rows, which are of elements that wait together."""
    tasks: dict[int, list[int]] = defaultdict(list)
    for array, task in zip(job_id[rows].tolist(), array_task[rows].tolist(), strict=True):
        tasks[array].append(task)
    return {array: _with_dropped_one(sorted(each)) for array, each in tasks.items()}


def _with_dropped_one(tasks: list[int]) -> list[int]:
    """More than five tasks that are evenly apart are told to squeue as `FIRST-LAST:STEP`, of which it drops the last.

    So it does in 22.05 and 24.11 (bitfmt2int in src/common/bitstring.c). An update that names all but one of the tasks
    that wait together would make a job of each.
    """
    step = tasks[-1] - tasks[-2] if len(tasks) > _FEWEST_IN_STEPS else 1
    return [*tasks, tasks[-1] + step] if step > 1 and np.all(np.diff(tasks) == step) else tasks


def _ranges(tasks: list[int]) -> str:
    """`0-2,7` of 0, 1, 2, 7."""
    numbers = np.array(tasks)
    breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
    runs = zip(numbers[np.append(0, breaks)], numbers[np.append(breaks - 1, -1)], strict=True)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _gpus(told: Mapping[str, list[str]]) -> tuple[Ints, NDArray[np.str_]]:
    """How many GPUs in all, and of which type. Where --gpus and --gpus-per-node tell of the same, the larger counts."""
    nodes, tasks = ints(told, "NumNodes"), ints(told, "NumTasks")
    sockets = column(told, "Sockets", lambda text: int(text) if text.isdecimal() else 1, np.int64)
    times = {
        "tres-per-node": nodes,
        "tres-per-job": np.ones_like(nodes),
        "tres-per-socket": nodes * sockets,
        "tres-per-task": np.where(tasks < _NO_VAL, tasks, 1),
    }
    asked, kind = np.zeros_like(nodes), np.zeros(len(nodes), dtype=np.str_)
    for name, many in times.items():
        found = values(told, name, tres.gpus)
        asked = np.maximum(asked, np.array([sum(each.values()) for each in found], dtype=np.int64) * many)
        kind = np.where(kind == "", np.array([tres.only_type(each)[:WORD] for each in found], dtype=np.str_), kind)
    tracked = column(told, "tres-alloc", lambda text: -1 if (n := tres.total_gpus(text)) is None else n, np.int64)
    return np.where(tracked < 0, asked, tracked), kind
