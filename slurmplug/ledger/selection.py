"""Which jobs a report selects, by id, user, account, state and time, and the SQL condition that selects them."""

import functools
import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from slurmplug.cluster.hostlist import expand
from slurmplug.errors import UsageError

ENDED_STATE_CODES = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "DL": "DEADLINE", "F": "FAILED", "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY", "PR": "PREEMPTED", "RV": "REVOKED", "TO": "TIMEOUT",
}  # fmt: skip
LIVE_STATE_CODES = {"PD": "PENDING", "R": "RUNNING", "RQ": "REQUEUED", "RS": "RESIZING", "S": "SUSPENDED"}
"""Slurm's names of the states, by their codes (sacct(1), JOB STATE CODES)."""
QUEUE_STATE_CODES = LIVE_STATE_CODES | {
    "CF": "CONFIGURING", "CG": "COMPLETING", "RD": "RESV_DEL_HOLD", "RF": "REQUEUE_FED", "RH": "REQUEUE_HOLD",
    "SE": "SPECIAL_EXIT", "SI": "SIGNALING", "SO": "STAGE_OUT", "ST": "STOPPED",
}  # fmt: skip
"""The names of the states of live jobs by their codes in squeue(1), JOB STATE CODES."""
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


class JobId(NamedTuple):
    """A job as users write it: 12 is job 12, or all of array 12; 12_3 one element of it; 12+1 one component of a
    heterogeneous job, whose jobs have ids one after the other."""

    number: int
    task: int | None = None

    @classmethod
    def parse(cls, text: str) -> "JobId":
        """The id in this text; also as squeue shows it, where 12_[3-9] is all of array 12. Raises UsageError."""
        match = _JOB_ID.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"Bad job specified: {text!r}; write 12, or 12_3 for an element of an array")
        number, task, component = match.groups()
        return cls(int(number) + int(component or 0), int(task) if task else None)


@dataclass(frozen=True)
class Selection:
    """Which jobs: an empty field selects all. `states`: Slurm's long names. `start`, `end`: the window of acct."""

    jobs: tuple[JobId, ...] = ()
    users: tuple[str, ...] = ()
    """names, or uids in digits"""
    accounts: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    """of jobs that wait for several, one of them is enough"""
    qos: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """jobs that run or ran on one of them"""
    limits: tuple[float, float] | None = None
    """the least and the most time limit, in seconds; a job without one has more than any"""
    start: float | None = None
    end: float = math.inf
    live: bool = False
    """only jobs of the last cycle"""
    uneligible: bool = True
    """also jobs that were never eligible"""
    owner: int | None = None
    """only jobs of this uid, whatever else is selected"""
    most: int = 0
    """the most jobs; if there are more, `queries.jobs` raises UsageError; 0 for no limit"""


def condition(which: Selection, listed: Collection[int]) -> tuple[str, list[object]]:
    """The SQL condition on `jobs` that selects them, and its parameters. `listed`: row ids of the last cycle's jobs."""
    where = _where(which, listed)
    return " AND ".join(where.clauses) or "1", where.values


@dataclass
class _Where:
    clauses: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def add(self, clause: str, *values: object) -> None:
        self.clauses.append(f"({clause})")
        self.values += values


def _where(which: Selection, listed: Collection[int]) -> _Where:
    where = _Where()
    if which.jobs:
        whole = json.dumps([number for number, task in which.jobs if task is None])
        elements = json.dumps([each for each in which.jobs if each.task is not None])
        where.add(_NAMED, whole, whole, whole, elements)
    if which.users:
        marks = ", ".join("?" * len(which.users))
        where.add(f"jobs.user IN ({marks}) OR CAST(jobs.uid AS TEXT) IN ({marks})", *which.users, *which.users)
    if which.accounts:
        where.add(f"jobs.account IN ({', '.join('?' * len(which.accounts))})", *which.accounts)
    _add_facts(where, which)
    if which.owner is not None:
        where.add("jobs.uid = ?", which.owner)
    if which.live:
        where.add("jobs.ended = 0 AND jobs.id IN (SELECT value FROM json_each(?))", json.dumps(list(listed)))
    if not which.uneligible and not which.states:
        where.add(f"coalesce(jobs.eligible, {BEGAN}) IS NOT NULL OR jobs.restarts > 0")
    if which.start is not None:
        _add_window(where, which, which.start)
    return where


def _add_facts(where: _Where, which: Selection) -> None:
    """What Slurm's commands select by, apart from jobs, users and times."""
    for column, names in (("qos", which.qos), ("name", which.names)):
        if names:
            where.add(f"jobs.{column} IN ({', '.join('?' * len(names))})", *names)
    if which.partitions:
        one = "instr(',' || jobs.partition || ',', ',' || ? || ',')"
        where.add(" OR ".join([one] * len(which.partitions)), *which.partitions)
    if which.nodes:
        where.add("jobs.node_list != '' AND has_node(jobs.node_list, ?)", json.dumps(which.nodes))
    if which.limits is not None:
        where.add("coalesce(jobs.time_limit, 9e18) BETWEEN ? AND ?", *which.limits)
    if which.states and which.start is None:
        where.add(f"jobs.state IN ({', '.join('?' * len(which.states))})", *which.states)


def has_node(node_list: str, wanted: str) -> bool:
    """For SQL: whether a host list has one of the nodes, which are a JSON list."""
    return not _expanded(node_list).isdisjoint(json.loads(wanted))


@functools.lru_cache(maxsize=4096)
def _expanded(node_list: str) -> frozenset[str]:
    try:
        return frozenset(expand(node_list))
    except ValueError:
        return frozenset()


def _add_window(where: _Where, which: Selection, start: float) -> None:
    """Slurm's meaning of a window (sacct(1), --state): with states, the jobs that were in one of them inside it."""
    if not which.states:
        where.add(_WAS_THERE, which.end, start, which.end, start)
        return
    forms: list[str] = []
    values: list[object] = []
    for state in which.states:
        form, ends = _WAS.get(state, _ENDED if state in ENDED_STATE_CODES.values() else _IS)
        forms.append(form)
        values += [state if end == "state" else which.end if end == "end" else start for end in ends]
    where.add(" OR ".join(f"({form})" for form in forms), *values)


_JOB_ID = re.compile(r"(\d{1,10})(?:_(\d{1,10})|_\[[^\]]*\]|\+(\d{1,3}))?", re.ASCII)
_NAMED = """
jobs.job_id IN (SELECT value FROM json_each(?)) OR jobs.array_id IN (SELECT value FROM json_each(?))
OR (jobs.het_id != 0 AND jobs.het_id IN (SELECT value FROM json_each(?)))
OR (jobs.array_id, jobs.array_task) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
)
"""
"""The ids are passed as JSON lists, since SQLite limits the number of terms in an expression."""
_WAITING = "(" + ", ".join(f"'{state}'" for state in sorted(WAITING)) + ")"
BEGAN = f"""
CASE WHEN jobs.state NOT IN {_WAITING} AND NOT (jobs.ended = 1 AND jobs.node_list = '' AND jobs.start IS jobs.end)
    THEN jobs.start END
"""
"""When the job's last run started, as `Job.started` of the reports has it."""
_WAS_THERE = (
    "coalesce(jobs.eligible, jobs.submit) < ? AND (jobs.ended = 0 OR coalesce(jobs.end, jobs.last_seen) >= ?) "
    "OR jobs.restarts > 0 AND jobs.first_submit < ? AND jobs.submit >= ?"
)
"""`submit` of a requeued job is when the run before its last one ended; nothing else is kept of earlier runs."""
_WAS = {
    "PENDING": (
        f"jobs.eligible < ? AND coalesce({BEGAN}, CASE WHEN jobs.ended THEN jobs.end END, 9e18) > ? "
        "OR jobs.restarts > 0 AND jobs.first_submit >= ? AND jobs.first_submit < ?",
        ("end", "start", "start", "end"),
    ),
    "RUNNING": (
        f"{BEGAN} < ? AND CASE WHEN jobs.ended THEN coalesce(jobs.end, jobs.last_seen) > ? "
        "ELSE jobs.state != 'SUSPENDED' END OR jobs.restarts > 0 AND jobs.submit > ? AND jobs.submit <= ?",
        ("end", "start", "start", "end"),
    ),
    "REQUEUED": (
        "jobs.state = ? OR jobs.restarts > 0 AND jobs.submit BETWEEN ? AND ?",
        ("state", "start", "end"),
    ),
}
_ENDED = ("jobs.state = ? AND jobs.ended = 1 AND jobs.end BETWEEN ? AND ?", ("state", "start", "end"))
_IS = (f"jobs.state = ? AND {BEGAN} < ?", ("state", "end"))
"""Conditions by state, each with what its parameters are: the state, or an end of the window. As in slurmdbd the start
of a state has to come before the window's end, and its end after the window's start, but for jobs that ended."""
