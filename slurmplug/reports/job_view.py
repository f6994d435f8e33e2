"""What the reports read from the ledger: one value a job, however much is known of it."""

import json
import math
import pwd
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from policies.plan import Reason
from slurmplug.errors import UsageError
from slurmplug.intake.job_record import JobRecord
from slurmplug.ledger import rows as ledger_rows
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.rows import Standings

LOOKED_AT = 256
"""The last reports of a job in which a quantity is looked for."""

ENDED_STATES = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "DL": "DEADLINE", "F": "FAILED", "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY", "PR": "PREEMPTED", "RV": "REVOKED", "TO": "TIMEOUT",
}  # fmt: skip
LIVE_STATES = {"PD": "PENDING", "R": "RUNNING", "RQ": "REQUEUED", "RS": "RESIZING", "S": "SUSPENDED"}
STATES = ENDED_STATES | LIVE_STATES
"""sacct(1), JOB STATE CODES."""
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})


class Forecast(NamedTuple):
    """A prediction, and between what it lies with 90 %; None where nothing was predicted."""

    value: float | None
    low: float | None
    high: float | None

    def signed(self, sign: float) -> "Forecast":
        """As the job tells the quantity, where predictors were told its negative (sign -1)."""
        if sign > 0 or self.value is None or self.low is None or self.high is None:
            return self
        return Forecast(-self.value, -self.high, -self.low)

    def holds(self, actual: float | None) -> bool | None:
        """Whether what came lies in the interval; None where either is not known."""
        if actual is None or self.low is None or self.high is None:
            return None
        return self.low <= actual <= self.high


@dataclass(frozen=True)
class Standing:
    """Where a job stood in the last cycle. `spared`: the rule by which Slurm alone decides; `note`: what is wrong."""

    cycle: int
    rank: float | None
    allowed: bool
    spared: str
    priority: float | None
    terms: Mapping[str, float]
    forecast: Mapping[str, Any]
    note: Reason | None


@dataclass(frozen=True)
class Job:
    """One job. `row`: its number in the ledger; `record`: without the points; `quantities`: what was told last."""

    row: int
    record: JobRecord
    seen: float
    given_back: bool
    predicted: Forecast
    """its run time in seconds, when it was first seen"""
    foreseen: Forecast
    """its final value, as last predicted until half of its iterations were done, else as first predicted"""
    foreseen_at: float | None
    """the iterations done when that was predicted"""
    stop: str
    iteration: float | None
    """its last one, counted from 1, from what the program calls the first"""
    checkpoint: float | None
    """that of its last checkpoint, counted likewise"""
    quantities: Mapping[str, float]
    standing: Standing | None
    columns: Mapping[str, Any] = field(compare=False, repr=False)
    """what it was made from: the ledger's row, which `of_columns` makes the same job of elsewhere"""

    @property
    def id(self) -> str:
        """12, or 10_3 of an array; four elements that still wait together are 10_[x4]; 12+1 of a heterogeneous job."""
        facts = self.record.facts
        if facts.het_id:
            return f"{facts.het_id}+{facts.job_id - facts.het_id}"
        if not facts.array_id:
            return str(facts.job_id)
        if facts.array_task < 0:
            return f"{facts.array_id}_[x{facts.elements}]"
        return f"{facts.array_id}_{facts.array_task}"

    @property
    def live(self) -> bool:
        return self.record.facts.live

    @property
    def waits(self) -> bool:
        return self.record.facts.state in WAITING

    @property
    def started(self) -> float | None:
        """When this run started; of a job that waits squeue tells when it might, of one that was cancelled while it
        waited when that was, which is not it."""
        facts = self.record.facts
        never = not facts.live and not facts.node_list and facts.start == facts.end
        return None if self.waits or never else facts.start

    @property
    def expected(self) -> float | None:
        """When Slurm expects to start it, while it waits and that is to come."""
        told = self.standing.forecast.get("start") if self.standing and self.waits else None
        return told if told is not None and told > self.seen else None

    @property
    def ended(self) -> float | None:
        return None if self.live else self.record.facts.end

    @property
    def elapsed(self) -> float:
        """Seconds of this run."""
        until = self.seen if self.live else self.ended
        return max(0.0, until - self.started) if self.started is not None and until is not None else 0.0

    @property
    def waited(self) -> float:
        """Seconds eligible and pending, in this run and those before it."""
        facts = self.record.facts
        until = self.started if self.started is not None else self.seen if self.live else self.ended
        last = max(0.0, until - facts.eligible) if facts.eligible is not None and until is not None else 0.0
        return self.record.waited_before + last

    @property
    def value(self) -> float | None:
        """Of the quantity that its target names: what was told last."""
        return self.quantities.get(self.record.quantity)

    @property
    def rank(self) -> float | None:
        """The policy's; None where Slurm alone decides."""
        return None if self.standing is None or self.standing.spared or self.given_back else self.standing.rank

    @property
    def remaining(self) -> Forecast:
        """Seconds."""
        return self._forecast("remaining")

    @property
    def final(self) -> Forecast:
        """The quantity of its target after its last iteration."""
        return self._forecast("final").signed(self.record.sign)

    @property
    def reach(self) -> float | None:
        """The probability that its value after the last iteration meets its target."""
        return self.standing.forecast.get("reach") if self.standing else None

    @property
    def saved(self) -> float | None:
        """Iterations that a stop spared."""
        most = self.record.directives.max_iterations if self.record.directives else None
        if not self.stop or not most or self.iteration is None:
            return None
        return max(0.0, most - self.iteration)

    @property
    def did_all(self) -> bool:
        """Whether it told its value after all its iterations: that is the final one. It may lack one where the first
        that it told was a later one, as then it may count from 0."""
        most = self.record.directives.max_iterations if self.record.directives else None
        if self.value is None or self.iteration is None or not most:
            return False
        return self.iteration >= most - int((self.columns.get("first_told") or 0) > 1)

    def _forecast(self, name: str) -> Forecast:
        told = self.standing.forecast if self.standing else {}
        return Forecast(told.get(name), told.get(f"{name}_low"), told.get(f"{name}_high"))


class JobId(NamedTuple):
    """As users write them: 12 is job 12, or all of array 12; 12_3 one element of it; 12+1 one component of a
    heterogeneous job, whose jobs have ids one after the other."""

    number: int
    task: int | None = None

    @classmethod
    def parse(cls, text: str) -> "JobId":
        """As squeue shows them too, so that 12_[3-9] is all of array 12. Raises UsageError."""
        match = _JOB_ID.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"Bad job specified: {text!r}; write 12, or 12_3 for an element of an array")
        number, task, component = match.groups()
        return cls(int(number) + int(component or 0), int(task) if task else None)


@dataclass(frozen=True)
class Selection:
    """Which jobs: empty fields do not choose. `states`: Slurm's long names. `start`, `end`: the window of acct."""

    jobs: tuple[JobId, ...] = ()
    users: tuple[str, ...] = ()
    """names, or uids in digits"""
    accounts: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    start: float | None = None
    end: float = math.inf
    live: bool = False
    """only jobs of the last cycle"""
    uneligible: bool = True
    """also jobs that were never eligible"""
    owner: int | None = None
    """only jobs of this uid, whatever else is chosen"""
    most: int = 0
    """more jobs than that are refused; 0: any number"""


@dataclass
class _Where:
    clauses: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def add(self, clause: str, *values: object) -> None:
        self.clauses.append(f"({clause})")
        self.values += values


def jobs(ledger: Ledger, which: Selection) -> list[Job]:
    """The jobs by id, the elements of an array together.

    Of several that had the same id in turn the latest, as sacct without --duplicates.

    Raises:
        LedgerError
        UsageError: they are more than `which.most`.
    """
    stood = ledger.standings()
    where = _where(which, stood.jobs if stood else ())
    limit = which.most + 1 if which.most else -1
    rows = ledger.query(_JOBS.format(where=" AND ".join(where.clauses) or "1"), *where.values, limit)
    if which.most and len(rows) > which.most:
        raise UsageError(f"these are more than {which.most} jobs: choose a shorter time, users or states")
    return [of_columns(row | _stood(row, stood) | _latest(ledger, row["id"])) for row in rows]


def of_columns(row: Mapping[str, Any]) -> Job:
    """A job from its row in the ledger, joined with its standing and what it told last."""
    record = ledger_rows.to_record(dict(row), ())
    before = int(row.get("first_told") == 0)
    checkpoint = record.points.checkpoint
    return Job(
        row=row["id"],
        record=record,
        seen=row["seen"],
        given_back=bool(row["given_back"]),
        predicted=Forecast(row["predicted"], row["predicted_low"], row["predicted_high"]),
        foreseen=Forecast(row["foreseen"], row["foreseen_low"], row["foreseen_high"]).signed(record.sign),
        foreseen_at=row["foreseen_at"],
        stop=row["stop"] or "",
        iteration=None if row["iteration"] is None else row["iteration"] + before,
        checkpoint=None if checkpoint != checkpoint else checkpoint + before,
        quantities=row["told"],
        standing=_standing(row) if row["cycle"] is not None else None,
        columns=row,
    )


def known_user(ledger: Ledger, user: str, *, jobs_count: bool = True) -> bool:
    """Whether it is an account of this machine, or the ledger has jobs of it and these count: a name, or a uid."""
    number = user.isascii() and user.isdecimal() and len(user) < 11
    try:
        pwd.getpwuid(int(user)) if number else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        if not jobs_count:
            return False
        rows = ledger.query("SELECT DISTINCT user, uid FROM jobs")
        return any(user in (row["user"], str(row["uid"])) for row in rows)
    return True


def last_cycle(ledger: Ledger) -> dict[str, Any] | None:
    """The row of the last cycle that read the cluster."""
    rows = ledger.query("SELECT * FROM cycles WHERE error = '' OR jobs IS NOT NULL ORDER BY id DESC LIMIT 1")
    return rows[0] if rows else None


def ranked(queue: Iterable[Job]) -> list[Job]:
    """The pending jobs that slurmplug ranks, the first to go first."""
    waiting = [job for job in queue if job.waits and job.rank is not None]
    return sorted(waiting, key=lambda job: (-(job.rank or 0.0), job.record.key.first_submit, job.record.key.job_id))


def _where(which: Selection, stood: Collection[int]) -> _Where:
    """`stood`: the rows of the jobs of the last cycle."""
    where = _Where()
    if which.jobs:
        whole = json.dumps([number for number, task in which.jobs if task is None])
        elements = json.dumps([each for each in which.jobs if each.task is not None])
        where.add(_NAMED, whole, whole, whole, elements)
    if which.users:
        listed = ", ".join("?" * len(which.users))
        where.add(f"jobs.user IN ({listed}) OR CAST(jobs.uid AS TEXT) IN ({listed})", *which.users, *which.users)
    if which.accounts:
        where.add(f"jobs.account IN ({', '.join('?' * len(which.accounts))})", *which.accounts)
    if which.owner is not None:
        where.add("jobs.uid = ?", which.owner)
    if which.live:
        where.add("jobs.ended = 0 AND jobs.id IN (SELECT value FROM json_each(?))", json.dumps(list(stood)))
    if not which.uneligible and not which.states:
        where.add(f"coalesce(jobs.eligible, {_BEGAN}) IS NOT NULL OR jobs.restarts > 0")
    if which.start is not None:
        _add_window(where, which, which.start)
    return where


def _add_window(where: _Where, which: Selection, start: float) -> None:
    """Slurm's meaning of a window (sacct(1), --state): with states, the jobs that were in one of them inside it."""
    if not which.states:
        where.add(_WAS_THERE, which.end, start, which.end, start)
        return
    forms: list[str] = []
    values: list[object] = []
    for state in which.states:
        form, ends = _WAS.get(state, _ENDED if state in ENDED_STATES.values() else _IS)
        forms.append(form)
        values += [state if end == "state" else which.end if end == "end" else start for end in ends]
    where.add(" OR ".join(f"({form})" for form in forms), *values)


def _latest(ledger: Ledger, job: int) -> dict[str, Any]:
    """The last `iteration`, and each quantity as it was `told` last."""
    rows = ledger.query(_LATEST, job, LOOKED_AT)
    told: dict[str, float] = {}
    for row in reversed(rows):
        told |= json.loads(row["quantities"])
    return {"iteration": rows[0]["iteration"] if rows else None, "told": told}


def _stood(row: Mapping[str, Any], stood: Standings | None) -> dict[str, Any]:
    """Where it stood in the last cycle, and when it was `seen` last; a `cycle` of None where it was not there."""
    if stood is None or row["id"] not in stood.jobs:
        return {"cycle": None, "seen": row["last_seen"]}
    return {**stood.of(row["id"]), "seen": max(row["last_seen"], stood.started or 0.0)}


def _standing(row: Mapping[str, Any]) -> Standing:
    note = row["note"]
    return Standing(
        cycle=row["cycle"],
        rank=row["rank"],
        allowed=bool(row["allowed"]),
        spared=row["spared"],
        priority=row["priority"],
        terms=row["terms"],
        forecast=row["forecast"],
        note=Reason(note["rule"], note["facts"]) if note else None,
    )


_JOB_ID = re.compile(r"(\d{1,10})(?:_(\d{1,10})|_\[[^\]]*\]|\+(\d{1,3}))?", re.ASCII)
_NAMED = """
jobs.job_id IN (SELECT value FROM json_each(?)) OR jobs.array_id IN (SELECT value FROM json_each(?))
OR (jobs.het_id != 0 AND jobs.het_id IN (SELECT value FROM json_each(?)))
OR (jobs.array_id, jobs.array_task) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
)
"""
"""Lists, as SQLite bounds how many terms an expression has."""
_WAITING = "(" + ", ".join(f"'{state}'" for state in sorted(WAITING)) + ")"
_BEGAN = f"""
CASE WHEN jobs.state NOT IN {_WAITING} AND NOT (jobs.ended = 1 AND jobs.node_list = '' AND jobs.start IS jobs.end)
    THEN jobs.start END
"""
"""As `Job.started`."""
_WAS_THERE = (
    "coalesce(jobs.eligible, jobs.submit) < ? AND (jobs.ended = 0 OR coalesce(jobs.end, jobs.last_seen) >= ?) "
    "OR jobs.restarts > 0 AND jobs.first_submit < ? AND jobs.submit >= ?"
)
"""Of a job that was requeued `submit` is when its last run but one was over; of those runs no more is kept."""
_WAS = {
    "PENDING": (
        f"jobs.eligible < ? AND coalesce({_BEGAN}, CASE WHEN jobs.ended THEN jobs.end END, 9e18) > ? "
        "OR jobs.restarts > 0 AND jobs.first_submit >= ? AND jobs.first_submit < ?",
        ("end", "start", "start", "end"),
    ),
    "RUNNING": (
        f"{_BEGAN} < ? AND CASE WHEN jobs.ended THEN coalesce(jobs.end, jobs.last_seen) > ? "
        "ELSE jobs.state != 'SUSPENDED' END OR jobs.restarts > 0 AND jobs.submit > ? AND jobs.submit <= ?",
        ("end", "start", "start", "end"),
    ),
    "REQUEUED": (
        "jobs.state = ? OR jobs.restarts > 0 AND jobs.submit BETWEEN ? AND ?",
        ("state", "start", "end"),
    ),
}
_ENDED = ("jobs.state = ? AND jobs.ended = 1 AND jobs.end BETWEEN ? AND ?", ("state", "start", "end"))
_IS = (f"jobs.state = ? AND {_BEGAN} < ?", ("state", "end"))
"""Conditions by state, each with what its parameters are: the state, or an end of the window. As in slurmdbd the start
of a state has to come before the window's end, and its end after the window's start, but for jobs that ended."""
_JOBS = """
SELECT jobs.*, (SELECT stop FROM stops WHERE stops.job = jobs.id LIMIT 1) AS stop,
    (SELECT iteration FROM progress WHERE job = jobs.id ORDER BY restarts, iteration LIMIT 1) AS first_told
FROM jobs
WHERE {where} AND NOT EXISTS (
    SELECT 1 FROM jobs AS later
    WHERE later.cluster = jobs.cluster AND later.job_id = jobs.job_id AND later.first_submit > jobs.first_submit
)
ORDER BY coalesce(nullif(jobs.array_id, 0), jobs.job_id), jobs.array_task, jobs.job_id LIMIT ?
"""
_LATEST = """
SELECT iteration, quantities FROM progress WHERE job = ? ORDER BY restarts DESC, iteration DESC LIMIT ?
"""
