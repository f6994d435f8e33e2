"""What reports, commands and predictors read from the ledger, as values: so that nobody else writes SQL.

All functions raise `LedgerError` where the ledger cannot be read.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from policies.plan import Fact, Reason
from policies.snapshot import JobKey
from slurmplug.directives.changes import Change
from slurmplug.errors import UsageError
from slurmplug.intake.job_facts import JobFacts
from slurmplug.intake.job_record import JobRecord
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.facts import facts_from
from slurmplug.ledger.job_rows import change_from_row, row_with_facts
from slurmplug.ledger.last_reports import last_reports
from slurmplug.ledger.rankings import CycleRankings
from slurmplug.ledger.selection import Selection, condition
from slurmplug.ledger.sqlite import Row

EARLIER_TRIALS = 5
"""How many trials before the present one are read for the explanation of a job."""


class LastCycle(NamedTuple):
    """The last cycle that read the cluster. `seconds`: what each part of it took; `frozen`: the rule that forbade all
    commands, or empty; `error`: what failed, or empty."""

    id: int
    started: float
    policy: str
    modes: Mapping[str, str]
    jobs: int
    pending: int
    running: int
    managed: int
    frozen: str
    postponed: int
    seconds: Mapping[str, float]
    error: str


class Attempt(NamedTuple):
    """A cycle, whether or not it could read the cluster: when it began, and its error or an empty text."""

    started: float
    error: str


class OpenStep(NamedTuple):
    """The present step of an open operation. `job`: the row of its job."""

    job: int
    kind: str
    rule: str
    step: str


class ForbiddenAction(NamedTuple):
    """An action that the policy wanted in the last cycle and a guardrail forbade. `mode`: observe or advise, where that
    is the reason."""

    job: int
    kind: str
    rule: str
    veto: str
    mode: str


@dataclass(frozen=True)
class JobAudit:
    """The ledger's rows about one job, the earliest first, with their JSON columns read: what was decided about it and
    done to it, and which of its reports were not believed. Facts about other jobs are `OtherJob` values.

    changes: those of its directives that no cycle has put in force yet, each as the mapping of a `Change`.
    """

    operations: Sequence[Row]
    steps: Sequence[Row]
    commands: Sequence[Row]
    decisions: Sequence[Row]
    faults: Sequence[Row]
    trials: Sequence[Row] = ()
    """number, last `iteration` and last `quantities` of the EARLIER_TRIALS before the present one"""
    changes: Sequence[Row] = ()


def cycle_rankings(ledger: LedgerFile) -> CycleRankings | None:
    """The rank of each job of the last cycle, and what goes with it; None before the first cycle."""
    found = ledger.query("SELECT cycle FROM standing")
    if not found:
        return None
    if ledger.rankings is None or ledger.rankings.cycle != found[0]["cycle"]:
        [row] = ledger.query(_RANKINGS)
        ledger.rankings = CycleRankings(row["cycle"], row["started"], ledger.decoded(row["told"]))
    return ledger.rankings


def jobs(ledger: LedgerFile, which: Selection, *, whole: bool = False) -> list[Row]:
    """The columns of these jobs in order of id, elements of an array together, those of `JobFacts` as `facts`, with the
    last reports of those that reported (`last_reports`).

    `seen` is when the job was last seen.

    If Slurm has used an id for several jobs, only the latest is returned, like sacct without --duplicates.

    Args:
        whole: with all that `job_rows.record_from_row` needs

    Raises:
        UsageError: more than `which.most` jobs match.
    """
    names = (*_SHOWN, *_OF_RECORD) if whole else _SHOWN
    return _with_reports(ledger, names, _select(ledger, _columns(names), which))


def jobs_in_rows(ledger: LedgerFile, rows: Sequence[int]) -> list[Row]:
    """The columns of the jobs in these rows of the ledger, in their order, as `jobs` returns them."""
    found = {job[0]: job for job in ledger.tuples(_IN_ROWS.format(columns=_columns(_SHOWN)), json.dumps(rows))}
    return _with_reports(ledger, _SHOWN, [found[row] for row in rows if row in found])


def _with_reports(ledger: LedgerFile, names: Sequence[str], found: Iterable[tuple[Any, ...]]) -> list[Row]:
    """names: of the columns before those of `JobFacts`."""
    ranked = cycle_rankings(ledger)
    seen = ranked.started or 0.0 if ranked else 0.0
    listed = ranked.jobs if ranked else ()
    jobs = []
    for values in found:
        row = row_with_facts(names, values)
        row["seen"] = max(row["last_seen"], seen) if row["id"] in listed else row["last_seen"]
        if row["first_iteration"] is not None:
            stored = row["last_reported"]
            row.update(json.loads(stored) if stored else last_reports(ledger, row["id"], row["trial"]))
        jobs.append(row)
    return jobs


def job_rows(ledger: LedgerFile, which: Selection) -> list[int]:
    """The rows of the jobs that `jobs` returns, in that order. Raises as that."""
    return [row for (row,) in _select(ledger, "jobs.id", which)]


def live_jobs(ledger: LedgerFile, columns: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """Of the jobs of the last cycle what their order in the queue depends on: row, job id, first submit, state, and
    whether an operator excluded it; then these columns."""
    ranked = cycle_rankings(ledger)
    names = ("id", "job_id", "first_submit", "state", "given_back", *columns)
    if ranked is None:
        return []
    return ledger.tuples(f"{_IN_ROWS.format(columns=_of_jobs(names))} WHERE ended = 0", json.dumps(sorted(ranked.jobs)))


def columns_in_rows(ledger: LedgerFile, rows: Sequence[int], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The row and these columns of the jobs in these rows of the ledger, in their order."""
    return ledger.tuples(_IN_ROWS.format(columns=_of_jobs(("id", *columns))), json.dumps(rows))


def _select(ledger: LedgerFile, columns: str, which: Selection) -> list[tuple[Any, ...]]:
    ranked = cycle_rankings(ledger)
    where, values = condition(which, ranked.jobs if ranked else ())
    limit = which.most + 1 if which.most else -1
    found = ledger.tuples(_LATEST.format(columns=columns, where=where), *values, limit)
    if which.most and len(found) > which.most:
        raise UsageError(f"these are more than {which.most} jobs: choose a shorter time, users or states")
    return found


def job_audit(ledger: LedgerFile, job: int, record: JobRecord) -> JobAudit:
    """What was decided about a job and done to it. `job`: its row."""
    return JobAudit(
        operations=_audited(ledger, "SELECT * FROM operations WHERE job = ? ORDER BY opened", job),
        steps=_audited(ledger, _STEPS, job),
        commands=_audited(ledger, _COMMANDS, job),
        decisions=_audited(ledger, "SELECT * FROM decisions WHERE job = ? ORDER BY first", job),
        faults=_audited(ledger, _JOB_FAULTS, record.key.job_id, record.key.first_submit),
        changes=[asdict(change) for change in coming_changes(ledger, job)],
        trials=_earlier_trials(ledger, job, record.points.trial),
    )


def coming_changes(ledger: LedgerFile, job: int) -> list[Change]:
    """The changes of a job's directives that no cycle has put in force yet, the earliest first. `job`: its row."""
    return [
        change_from_row(row) for row in ledger.query("SELECT * FROM directive_changes WHERE job = ? ORDER BY id", job)
    ]


def _earlier_trials(ledger: LedgerFile, job: int, present: int) -> list[Row]:
    return [
        {"trial": trial, **reported}
        for trial in range(max(0, present - EARLIER_TRIALS), present)
        if (reported := last_reports(ledger, job, trial))["iteration"] is not None
    ]


def _audited(ledger: LedgerFile, sql: str, *parameters: object) -> list[Row]:
    return [
        {name: _AUDITED_JSON[name](value) if name in _AUDITED_JSON else value for name, value in row.items()}
        for row in ledger.query(sql, *parameters)
    ]


def owners(ledger: LedgerFile, jobs: Iterable[JobKey]) -> dict[JobKey, int]:
    """The uids of these jobs' users, of those jobs that the ledger has."""
    found = {key: ledger.query(_OWNER, *key) for key in jobs}
    return {key: int(rows[0]["uid"]) for key, rows in found.items() if rows and rows[0]["uid"] is not None}


def last_cycle(ledger: LedgerFile) -> LastCycle | None:
    """The last cycle that read the cluster."""
    found = ledger.query(_LAST_CYCLE)
    if not found:
        return None
    read = {name: json.loads(found[0][name] or "{}") for name in ("modes", "seconds")}
    return LastCycle(**{**found[0], **read})


def last_attempt(ledger: LedgerFile) -> Attempt | None:
    """The last cycle, whether or not it could read the cluster."""
    found = ledger.query("SELECT started, error FROM cycles ORDER BY id DESC LIMIT 1")
    return Attempt(**found[0]) if found else None


def began_cycle_since(ledger: LedgerFile, when: float) -> bool:
    """Whether a cycle began after that time, so that every earlier one has finished."""
    return bool(ledger.query("SELECT 1 FROM cycles WHERE started > ? LIMIT 1", when))


def open_steps(ledger: LedgerFile) -> list[OpenStep]:
    """The steps of all open operations, the earliest operation first."""
    found = ledger.query("SELECT job, kind, rule, step FROM operations WHERE step != 'ended' ORDER BY opened")
    return [OpenStep(**row) for row in found]


def forbidden_actions(ledger: LedgerFile) -> list[ForbiddenAction]:
    """What the policy wanted in the last cycle and a guardrail forbade. Without placements: which nodes Slurm should
    use shows in the ranks."""
    return [
        ForbiddenAction(**{**row, "mode": json.loads(row["mode"]).get("mode", "")})
        for row in ledger.query(_FORBIDDEN_ACTIONS)
    ]


def stop_reasons(ledger: LedgerFile) -> dict[int, Reason]:
    """Why each job was stopped, by the job's row: the last reason, where there were several."""
    found = ledger.query("SELECT job, rule, facts FROM operations WHERE kind = 'stop' ORDER BY opened")
    return {row["job"]: Reason(row["rule"], facts_from(json.loads(row["facts"]))) for row in found}


def open_operation_counts(ledger: LedgerFile) -> list[Row]:
    """How many `jobs` have an open operation of each `kind` and `step`, and their `job_ids`."""
    return _with_ids(ledger.query(_OPEN_COUNTS))


def fault_counts(ledger: LedgerFile, since: float) -> list[Row]:
    """By `rule`, the `count` of doubted reports and when the `last` one came, where that was after `since`, and the
    `job_ids` of those that are about a job."""
    return _with_ids(ledger.query(_FAULT_COUNTS, since))


def unchangeable_requests(ledger: LedgerFile, since: float) -> list[Row]:
    """How many `jobs` were not resized or released since then, as Slurm cannot change what they `asked` for, and their
    `job_ids`."""
    return _with_ids(ledger.query(_UNCHANGEABLE, since))


def _with_ids(found: Iterable[Row]) -> list[Row]:
    return [{**row, "job_ids": sorted(json.loads(row["job_ids"]))} for row in found]


def factors_by_others(ledger: LedgerFile) -> list[int]:
    """The ids of live jobs that have a SiteFactor that somebody else set."""
    found = ledger.query("SELECT job_id FROM jobs WHERE ended = 0 AND factor_by_others = 1 ORDER BY job_id")
    return [row["job_id"] for row in found]


def sizes(ledger: LedgerFile) -> Row:
    """How many `jobs` and `cycles` the ledger has."""
    return ledger.query("SELECT (SELECT count(*) FROM jobs) AS jobs, (SELECT count(*) FROM cycles) AS cycles")[0]


def has_jobs_of(ledger: LedgerFile, user: str) -> bool:
    """Whether the ledger has jobs of a user: a name, or a uid in digits."""
    found = ledger.query("SELECT DISTINCT user, uid FROM jobs")
    return any(user in (row["user"], str(row["uid"])) for row in found)


def live_job(ledger: LedgerFile, number: int, task: int | None) -> int | None:
    """The number of a job that has not ended, or of an element of an array; None where there is none."""
    if task is None:
        found = ledger.query("SELECT job_id FROM jobs WHERE job_id = ? AND ended = 0", number)
    else:
        found = ledger.query(
            "SELECT job_id FROM jobs WHERE array_id = ? AND array_task = ? AND ended = 0", number, task
        )
    return int(found[0]["job_id"]) if found else None


_LAST_CYCLE = f"""
SELECT {", ".join(LastCycle._fields)} FROM cycles WHERE error = '' OR jobs IS NOT NULL ORDER BY id DESC LIMIT 1
"""
_OWNER = "SELECT uid FROM jobs WHERE cluster = ? AND job_id = ? AND first_submit = ?"


def _facts(stored: str) -> dict[str, Fact]:
    return facts_from(json.loads(stored))


_AUDITED_JSON: Mapping[str, Callable[[str], Any]] = {"facts": _facts, "veto_facts": _facts, "fields": json.loads}
_RANKINGS = """
SELECT cycle, (SELECT started FROM cycles WHERE cycles.id = standing.cycle) AS started, told FROM standing
"""
_LATEST = """
SELECT {columns} FROM jobs
WHERE {where} AND NOT EXISTS (
    SELECT 1 FROM jobs AS later
    WHERE later.cluster = jobs.cluster AND later.job_id = jobs.job_id AND later.first_submit > jobs.first_submit
)
ORDER BY coalesce(nullif(jobs.array_id, 0), jobs.job_id), jobs.array_task, jobs.job_id LIMIT ?
"""
_SHOWN = (
    "id", "cluster", "first_submit", "directives", "submitted_directives", "changes", "in_doubt", "given_back",
    "last_seen", "label", "checkpoint", "trial", "trials", "first_iteration", "last_reported", "waited_before",
    "attained_before", "predicted", "predicted_low", "predicted_high", "foreseen", "foreseen_low",
    "foreseen_high", "foreseen_at", "stop",
)  # fmt: skip
_OF_RECORD = (
    "script_digest", "checkpoint_time", "gpu_use", "factor_compared", "factor_booted", "factor_by_others", "requested",
    "listed", "admission", "predicted_by",
)  # fmt: skip


def _columns(names: Iterable[str]) -> str:
    stop = "(SELECT stop FROM stops WHERE stops.job = jobs.id LIMIT 1)"
    return ", ".join(stop if name == "stop" else f"jobs.{name}" for name in (*names, *JobFacts._fields))


def _of_jobs(names: Iterable[str]) -> str:
    return ", ".join(f"jobs.{name}" for name in names)


_IN_ROWS = "SELECT {columns} FROM json_each(?) AS wanted CROSS JOIN jobs ON jobs.id = wanted.value"
"""CROSS JOIN has SQLite read them in the order of the list: then they lie in memory as they are gone through."""
_STEPS = """
SELECT steps.* FROM steps JOIN operations ON operations.id = steps.operation WHERE operations.job = ? ORDER BY steps.at
"""
_COMMANDS = """
SELECT commands.*, cycles.started AS at FROM commands JOIN cycles ON cycles.id = commands.cycle
WHERE commands.job = ? ORDER BY commands.cycle
"""
_OPEN_COUNTS = """
SELECT kind, step, count(*) AS jobs, json_group_array(DISTINCT jobs.job_id) AS job_ids
FROM operations JOIN jobs ON jobs.id = operations.job WHERE step != 'ended' GROUP BY kind, step
"""
_FAULT_COUNTS = """
SELECT rule, sum(count) AS count, max(last) AS last,
    json_group_array(DISTINCT job_id) FILTER (WHERE job_id != 0) AS job_ids
FROM faults WHERE last > ? GROUP BY rule ORDER BY rule
"""
_UNCHANGEABLE = """
SELECT json_extract(veto_facts, '$.asked') AS asked, count(DISTINCT job) AS jobs,
    json_group_array(DISTINCT jobs.job_id) AS job_ids
FROM decisions JOIN jobs ON jobs.id = decisions.job
WHERE verdict = 'vetoed' AND veto = 'shape' AND last > ? GROUP BY asked ORDER BY jobs DESC, asked
"""
_JOB_FAULTS = "SELECT * FROM faults WHERE job_id = ? AND last >= ? ORDER BY first"
_FORBIDDEN_ACTIONS = """
SELECT job, kind, rule, veto, veto_facts AS mode FROM decisions
WHERE verdict IN ('vetoed', 'notice') AND veto != 'placement'
    AND last_cycle = (SELECT max(cycle) FROM standing) ORDER BY last
"""
