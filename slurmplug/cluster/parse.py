"""The texts of squeue, sinfo and scontrol, Slurm 22.05 and later, as rows. Pure.

What a user writes (names, comments, paths) may hold newlines and anything else, so fields and records end in marks
that are drawn anew for each look. An answer that does not fit is a `ReadFailed`, never a shorter queue.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats, Ints
from slurmplug.cluster import tres
from slurmplug.cluster.port import Asked, Ending, JobRows, NodeRows, Reservation, Site
from slurmplug.eligibility import expand
from slurmplug.errors import ReadFailed

T = TypeVar("T")

JOB_FIELDS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "UserID", "UserName", "Account", "QOS", "Partition", "State",
    "Reason", "Name", "Comment", "Dependency", "Feature", "Reservation", "NodeList", "BatchFlag", "RestartCnt",
    "SubmitTime", "EligibleTime", "StartTime", "EndTime", "TimeLimit", "PriorityLong", "NumNodes", "NumCPUs",
    "NumTasks", "Sockets", "tres-alloc", "tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task",
    "exit_code",
)  # fmt: skip
"""squeue(1), --Format: all of them are in 22.05 and in 26.05. `tres-alloc` is what is asked for while a job waits."""
ASKED_FIELDS = (
    "JobID", "NumNodes", "NumCPUs", "tres-alloc", "HetJobID", "Reservation", "tres-per-node", "tres-per-job",
    "tres-per-socket", "tres-per-task", "NumTasks", "NTPerNode", "cpus-per-task", "MinCPUs", "MinMemory",
    "mem-per-tres", "cpus-per-tres", "Requeue",
)  # fmt: skip
"""squeue(1), --Format: what a job's shape is made of"""
NODE_FIELDS = (
    "NodeList", "PartitionName", "StateComplete", "Features", "Gres", "GresUsed", "CPUsState", "CPUsLoad", "Memory",
    "AllocMem", "FreeMem",
)  # fmt: skip
"""sinfo(1), --Format"""
ENDING_FIELDS = ("JobIDRaw", "State", "Start", "End", "ExitCode")
"""sacct(1), --format: nothing that a user writes, so its separator need not be secret."""

TEXT = 1_024
COMMENT = 4_096
"""Characters that are kept of a text that a user writes; comments may carry directives."""
_WORD = 128
_FEWEST_IN_STEPS = 5
_NO_VAL = 0xFFFF_FFFE
"""What slurm.h writes for a number that is not set."""
_FEWEST_NO_VAL = 0xFFFE
"""What it writes for a small one."""
_NONE = frozenset(("", "(null)", "N/A"))
_NEVER = frozenset(("", "N/A", "NONE", "None", "Unknown"))
_NO_LIMIT = frozenset(("UNLIMITED", "Partition_Limit", "INVALID", "NOT_SET", "N/A"))
_LIMIT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")
_STATE_SUFFIX = "*~#!%$@^-"
_SETTING = re.compile(r"^(\w+)\s*= (.*?)\s*$", re.MULTILINE)
_TOKEN = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True)
class Marks:
    """What ends a field and what ends a record, different for each look; each begins with a letter."""

    field: str
    record: str

    def format(self, fields: Sequence[str]) -> str:
        """The argument of --Format. With a suffix and no width, nothing is cut."""
        return ",".join([*(f"{name}:{self.field}" for name in fields[:-1]), f"{fields[-1]}:{self.record}"])


@dataclass(frozen=True)
class Queue:
    """The jobs, and how to address those of an array, whose id alone will not do.

    `JobId=A` means every element of the array A, also one that was split off with a label of its own; and scancel
    does not find an element by its own id once the one that has the array's id has ended (22.05). So an element is
    addressed as `A_2`, and those that wait together as `A_[3-9]` with exactly their tasks.
    """

    rows: JobRows
    addresses: Mapping[int, str]


def queue(text: str, marks: Marks) -> Queue:
    """The jobs that `squeue --array --Format` lists. Raises ReadFailed."""
    told = _table(text, JOB_FIELDS, marks, "squeue")
    job_id, array_id = _ints(told, "JobID"), _ints(told, "ArrayJobID")
    array_task = _column(told, "ArrayTaskID", lambda word: -1 if word in _NONE else int(word), np.int64)
    array_id[array_task < 0] = 0
    _, first, row_of, counts = np.unique(job_id, return_index=True, return_inverse=True, return_counts=True)
    if np.any((counts > 1) & (array_id[first] == 0)):
        raise ReadFailed("squeue lists a job twice")
    tasks = _waiting_tasks(job_id, array_task, np.flatnonzero(counts[row_of] > 1))
    array_task[first[counts > 1]] = -1
    kept = np.sort(first)
    if len(kept) < len(job_id):
        told = {name: [column[row] for row in kept.tolist()] for name, column in told.items()}
    state = _texts(told, "State")
    waits = state == "PENDING"
    gpus, gpu_type = _gpus(told)
    rows = JobRows(
        job_id=job_id[kept],
        array_id=array_id[kept],
        array_task=array_task[kept],
        elements=np.array([len(tasks.get(each, (0,))) for each in job_id[kept].tolist()], dtype=np.int64),
        het_id=_column(told, "HetJobID", lambda word: 0 if word in _NONE else int(word), np.int64),
        uid=_ints(told, "UserID"),
        user=_texts(told, "UserName"),
        account=_texts(told, "Account"),
        qos=_texts(told, "QOS"),
        partition=_strings(told, "Partition", TEXT),
        state=state,
        reason=_texts(told, "Reason"),
        name=_strings(told, "Name", TEXT),
        comment=_strings(told, "Comment", COMMENT),
        dependency=_strings(told, "Dependency", COMMENT),
        features=_strings(told, "Feature", TEXT),
        reservation=_strings(told, "Reservation", TEXT),
        node_list=_strings(told, "NodeList", None),
        batch=_ints(told, "BatchFlag") != 0,
        restarts=_ints(told, "RestartCnt"),
        submit=_moments(told, "SubmitTime"),
        eligible=_moments(told, "EligibleTime"),
        start=np.where(waits, np.nan, _moments(told, "StartTime")),
        end=np.where(waits, np.nan, _moments(told, "EndTime")),
        time_limit=_column(told, "TimeLimit", _duration, np.float64),
        priority=_column(told, "PriorityLong", float, np.float64),
        nodes=_ints(told, "NumNodes"),
        cpus=_ints(told, "NumCPUs"),
        memory=_column(told, "tres-alloc", tres.memory, np.float64),
        gpus=gpus,
        gpu_type=gpu_type,
        exit_code=_column(told, "exit_code", _exit_code, np.int64),
    )
    elements = zip(rows.job_id.tolist(), rows.array_id.tolist(), rows.array_task.tolist(), strict=True)
    addresses = {
        job: f"{array}_{task}" if task >= 0 else f"{array}_[{_ranges(tasks[array])}]"
        for job, array, task in elements
        if array
    }
    return Queue(rows, addresses)


def nodes(text: str, marks: Marks) -> NodeRows:
    """The nodes that `sinfo --Node --Format` lists, once for each of their partitions. Raises ReadFailed."""
    told = _table(text, NODE_FIELDS, marks, "sinfo")
    partitions: dict[str, set[str]] = defaultdict(set)
    for name, partition in zip(told["NodeList"], told["PartitionName"], strict=True):
        partitions[name].add(partition)
    rows = {name: row for row, name in reversed(list(enumerate(told["NodeList"])))}
    told = {name: [column[row] for row in sorted(rows.values())] for name, column in told.items()}
    states = _values(told, "CPUsState", _cpus_state)
    return NodeRows(
        name=tuple(told["NodeList"]),
        state=tuple(_values(told, "StateComplete", _node_state)),
        partitions=tuple(frozenset(partitions[name]) for name in told["NodeList"]),
        features=tuple(_values(told, "Features", _names)),
        gpus=tuple(_values(told, "Gres", tres.gpus)),
        gpus_used=tuple(_values(told, "GresUsed", tres.gpus)),
        cpus=np.array([total for _, total in states], dtype=np.int64),
        cpus_used=np.array([used for used, _ in states], dtype=np.int64),
        cpu_load=_column(told, "CPUsLoad", _measured, np.float64),
        memory=_column(told, "Memory", float, np.float64),
        memory_used=_column(told, "AllocMem", float, np.float64),
        memory_free=_column(told, "FreeMem", _measured, np.float64),
    )


def reservations(text: str) -> tuple[Reservation, ...]:
    """What `scontrol --oneliner show reservations` lists, with times in seconds since the epoch. Raises ReadFailed."""
    if text.startswith("No reservations in the system"):
        return ()
    lines = [line for line in text.splitlines() if line.startswith("ReservationName=")]
    if not lines:
        raise ReadFailed(f"scontrol show reservations answers {text[:80]!r}")
    return tuple(map(_reservation, lines))


def site(text: str) -> Site:
    """What `scontrol show config` says. Raises ReadFailed."""
    settings = dict(reversed(_SETTING.findall(text)))
    try:
        return Site(
            cluster=settings["ClusterName"],
            version=settings["SLURM_VERSION"],
            priority_type=settings["PriorityType"],
            priority_weights=dict(_weights(settings)),
        )
    except (KeyError, ValueError) as error:
        raise ReadFailed(f"scontrol show config tells no {error}") from error


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
            ending = Ending(int(job), state.partition(" ")[0], _moment(start), _moment(end), _exit_code(status))
        except ValueError as error:
            raise ReadFailed(f"sacct answers {line[:80]!r}: {error}") from error
        if not np.isnan(ending.end):
            found.append(ending)
    return tuple(found)


def asked(text: str, constraints: str, marks: Marks) -> dict[int, Asked]:
    """How jobs asked, of `squeue --Format` with the fields above and `squeue -o "%A %x %n"`. Raises ReadFailed."""
    told = _table(text, ASKED_FIELDS, marks, "squeue")
    lines = {line.split(" ")[0]: line.split(" ")[1:] for line in constraints.splitlines()}
    found = {}
    for row in range(len(told["JobID"])):
        word = {name: "" if column[row] in _NONE else column[row] for name, column in told.items()}
        excluded, required = (
            ["" if each in _NONE else each for each in lines.get(word["JobID"], ["", ""])] + ["", ""]
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
                tasks=_number(word["NumTasks"]),
                tasks_a_node=_number(word["NTPerNode"]),
                cpus_a_task=_number(word["cpus-per-task"]),
                fewest_cpus=_number(word["MinCPUs"]),
                memory_asked=word["MinMemory"] not in ("", "0") and not word["mem-per-tres"],
                cpus_by_gpu=bool(word["cpus-per-tres"]),
                requeue=word["Requeue"] == "1",
                excluded=excluded,
                required=required,
            )
        except ValueError as error:
            raise ReadFailed(f"squeue tells of job {word['JobID'][:20]}: {error}") from error
    return found


def _number(text: str) -> int:
    """0 for what is no number, and for what slurm.h writes where none is set."""
    return int(text) if text.isdecimal() and int(text) < _FEWEST_NO_VAL else 0


# --- tables --------------------------------------------------------------------------------------------------------


def _table(text: str, fields: Sequence[str], marks: Marks, client: str) -> dict[str, list[str]]:
    records = text.split(f"{marks.record}\n")
    if records.pop():
        raise ReadFailed(f"{client}'s answer ends in the middle of a record")
    inner = len(fields) - 1
    if any(record.count(marks.field) != inner for record in records):
        raise ReadFailed(
            f"{client} answers a record that has not {len(fields)} fields; is this Slurm older than 22.05?"
        )
    flat = marks.field.join(records).split(marks.field) if records else []
    return {name: flat[at :: len(fields)] for at, name in enumerate(fields)}


def _values(told: Mapping[str, list[str]], name: str, convert: Callable[[str], T]) -> list[T]:
    """The column, each different text converted once. Raises ReadFailed."""
    column = told[name]
    known = {}
    for text in set(column):
        try:
            known[text] = convert(text)
        except ValueError as error:
            raise ReadFailed(f"{name} is told as {text[:80]!r}: {error}") from error
    return list(map(known.__getitem__, column)) if len(known) > 1 else [*known.values()] * len(column)


def _column(told: Mapping[str, list[str]], name: str, convert: Callable[[str], Any], dtype: Any) -> NDArray[Any]:
    return np.array(_values(told, name, convert), dtype=dtype)


def _ints(told: Mapping[str, list[str]], name: str) -> Ints:
    try:
        return np.fromiter(map(int, told[name]), np.int64, len(told[name]))
    except (ValueError, OverflowError) as error:
        raise ReadFailed(f"{name} is told otherwise than as whole numbers: {error}") from error


def _moments(told: Mapping[str, list[str]], name: str) -> Floats:
    try:
        return np.fromiter(map(_moment, told[name]), np.float64, len(told[name]))
    except ValueError as error:
        raise ReadFailed(f"{name} is told otherwise than in seconds since the epoch: {error}") from error


def _texts(told: Mapping[str, list[str]], name: str) -> NDArray[np.str_]:
    return _column(told, name, lambda text: "" if text in _NONE else text[:_WORD], np.str_)


def _strings(told: Mapping[str, list[str]], name: str, most: int | None) -> NDArray[np.object_]:
    column = np.empty(len(told[name]), dtype=object)
    column[:] = _values(told, name, lambda text: "" if text in _NONE else text[:most])
    return column


# --- jobs ----------------------------------------------------------------------------------------------------------


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
    nodes, tasks = _ints(told, "NumNodes"), _ints(told, "NumTasks")
    sockets = _column(told, "Sockets", lambda text: int(text) if text.isdecimal() else 1, np.int64)
    times = {
        "tres-per-node": nodes,
        "tres-per-job": np.ones_like(nodes),
        "tres-per-socket": nodes * sockets,
        "tres-per-task": np.where(tasks < _NO_VAL, tasks, 1),
    }
    asked, kind = np.zeros_like(nodes), np.zeros(len(nodes), dtype=np.str_)
    for name, many in times.items():
        found = _values(told, name, tres.gpus)
        asked = np.maximum(asked, np.array([sum(each.values()) for each in found], dtype=np.int64) * many)
        kind = np.where(kind == "", np.array([tres.only_type(each)[:_WORD] for each in found], dtype=np.str_), kind)
    tracked = _column(told, "tres-alloc", lambda text: -1 if (n := tres.total_gpus(text)) is None else n, np.int64)
    return np.where(tracked < 0, asked, tracked), kind


def _moment(text: str) -> float:
    return np.nan if text in _NEVER else float(int(text))


def _duration(text: str) -> float:
    """Seconds of `1-02:03:04`, `02:03:04` or `03:04`; NaN for no limit. Raises ValueError."""
    if text in _NO_LIMIT:
        return np.nan
    if (match := _LIMIT.fullmatch(text)) is None:
        raise ValueError("not a duration")
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _exit_code(text: str) -> int:
    """A wait status (squeue of 22.05) or `STATUS:SIGNAL` as a shell tells it: 128 and the signal."""
    status, colon, signal = text.partition(":")
    code, by = (int(status), int(signal)) if colon else (int(status) >> 8, int(status) & 0x7F)
    return 128 + by if by else code


# --- nodes, reservations, configuration ----------------------------------------------------------------------------


def _node_state(text: str) -> frozenset[str]:
    return frozenset(word.rstrip(_STATE_SUFFIX) for word in text.lower().split("+"))


def _cpus_state(text: str) -> tuple[int, int]:
    """Those allocated and all, of allocated/idle/other/all."""
    allocated, _, _, total = map(int, text.split("/"))
    return allocated, total


def _names(text: str) -> frozenset[str]:
    return frozenset(() if text in _NONE else text.split(","))


def _measured(text: str) -> float:
    return np.nan if text in _NONE else float(text)


def _reservation(line: str) -> Reservation:
    told = dict(reversed(_TOKEN.findall(line)))
    try:
        return Reservation(
            name=told["ReservationName"],
            nodes=frozenset(() if told["Nodes"] in _NONE else expand(told["Nodes"])),
            users=_names(told["Users"]),
            accounts=_names(told["Accounts"]),
            start=_moment(told["StartTime"]),
            end=_moment(told["EndTime"]),
        )
    except (KeyError, ValueError) as error:
        raise ReadFailed(f"scontrol show reservations answers {line[:200]!r}: {error}") from error


def _weights(settings: Mapping[str, str]) -> list[tuple[str, int]]:
    """PriorityWeight* by their names, and those of TRES as `TRES/cpu`."""
    weights = []
    for setting, value in settings.items():
        name = setting.removeprefix("PriorityWeight")
        if name == setting or value in _NONE:
            continue
        if name == "TRES":
            pairs = (item.partition("=") for item in value.split(","))
            weights += [(f"TRES/{tracked.lower()}", int(float(weight))) for tracked, _, weight in pairs]
        else:
            weights.append((name, int(value)))
    return weights
