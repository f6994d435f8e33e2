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
from slurmplug.intake.job_record import JobRecord
from slurmplug.ledger import rows
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.rows import CycleRankings, Row, facts_from
from slurmplug.ledger.selection import Selection, condition

EARLIER_TRIALS = 5
"""How many trials before the present one are read for the explanation of a job."""
LAST_REPORTS = 256
"""How many of a job's last reports are searched for the last value of each quantity."""


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
    found = ledger.query(_RANKINGS)
    if not found:
        return None
    return CycleRankings(found[0]["cycle"], found[0]["started"], ledger.decoded(found[0]["told"]))


def jobs(ledger: LedgerFile, which: Selection) -> list[Row]:
    """The columns of these jobs in order of id, elements of an array together, with their last reports and ranking.

    If Slurm has used an id for several jobs, only the latest is returned, like sacct without --duplicates.

    Raises:
        UsageError: more than `which.most` jobs match.
    """
    ranked = cycle_rankings(ledger)
    where, values = condition(which, ranked.jobs if ranked else ())
    limit = which.most + 1 if which.most else -1
    found = ledger.query(_JOBS.format(where=where), *values, limit)
    if which.most and len(found) > which.most:
        raise UsageError(f"these are more than {which.most} jobs: choose a shorter time, users or states")
    return [row | _ranking(row, ranked) | _last_reports(ledger, row["id"], row["trial"]) for row in found]


def _ranking(row: Row, ranked: CycleRankings | None) -> Row:
    """The job's ranking in the last cycle (a `cycle` of None if it was not in that), and when it was last `seen`."""
    if ranked is None or row["id"] not in ranked.jobs:
        return {"cycle": None, "seen": row["last_seen"]}
    return {**ranked.of(row["id"]), "seen": max(row["last_seen"], ranked.started or 0.0)}


def _last_reports(ledger: LedgerFile, job: int, trial: int) -> Row:
    """The last `iteration` of a trial, the last value of each of its `quantities` as in JSON, the iterations of these,
    and how many of the last values in a row were `not_finite`."""
    found = ledger.query(_LAST_REPORTS, job, trial, LAST_REPORTS)
    quantities: dict[str, float | str] = {}
    at: dict[str, float] = {}
    history: dict[str, list[float | str]] = {}
    for row in reversed(found):
        reported = json.loads(row["quantities"])
        quantities |= reported
        at |= dict.fromkeys(reported, row["iteration"])
        for name, value in reported.items():
            history.setdefault(name, []).append(value)
    return {
        "iteration": found[0]["iteration"] if found else None,
        "quantities": quantities,
        "quantities_at": at,
        "not_finite": {name: count for name, values in history.items() if (count := _last_texts(values))},
    }


def _last_texts(values: Sequence[float | str]) -> int:
    """How many of the last values are texts, as those are that are not finite."""
    return next((n for n, value in enumerate(reversed(values)) if not isinstance(value, str)), len(values))


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
        rows.change_from_row(row)
        for row in ledger.query("SELECT * FROM directive_changes WHERE job = ? ORDER BY id", job)
    ]


def _earlier_trials(ledger: LedgerFile, job: int, present: int) -> list[Row]:
    return [
        {"trial": trial, **reported}
        for trial in range(max(0, present - EARLIER_TRIALS), present)
        if (reported := _last_reports(ledger, job, trial))["iteration"] is not None
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
    """How many `jobs` have an open operation of each `kind` and `step`."""
    return ledger.query("SELECT kind, step, count(*) AS jobs FROM operations WHERE step != 'ended' GROUP BY kind, step")


def fault_counts(ledger: LedgerFile, since: float) -> list[Row]:
    """By `rule`, the `count` of doubted reports and when the `last` one came, where that was after `since`."""
    return ledger.query(
        "SELECT rule, sum(count) AS count, max(last) AS last FROM faults WHERE last > ? GROUP BY rule ORDER BY rule",
        since,
    )


def unchangeable_requests(ledger: LedgerFile, since: float) -> list[Row]:
    """How many `jobs` were not resized or released since then, as Slurm cannot change what they `asked` for."""
    return ledger.query(_UNCHANGEABLE, since)


def factors_by_others(ledger: LedgerFile) -> int:
    """How many live jobs have a SiteFactor that somebody else set."""
    return int(ledger.value("SELECT count(*) AS n FROM jobs WHERE ended = 0 AND factor_by_others = 1"))


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
_JOBS = """
SELECT jobs.*, (SELECT stop FROM stops WHERE stops.job = jobs.id LIMIT 1) AS stop
FROM jobs
WHERE {where} AND NOT EXISTS (
    SELECT 1 FROM jobs AS later
    WHERE later.cluster = jobs.cluster AND later.job_id = jobs.job_id AND later.first_submit > jobs.first_submit
)
ORDER BY coalesce(nullif(jobs.array_id, 0), jobs.job_id), jobs.array_task, jobs.job_id LIMIT ?
"""
_LAST_REPORTS = """
SELECT iteration, quantities FROM progress WHERE job = ? AND trial = ? ORDER BY restarts DESC, iteration DESC LIMIT ?
"""
_STEPS = """
SELECT steps.* FROM steps JOIN operations ON operations.id = steps.operation WHERE operations.job = ? ORDER BY steps.at
"""
_COMMANDS = """
SELECT commands.*, cycles.started AS at FROM commands JOIN cycles ON cycles.id = commands.cycle
WHERE commands.job = ? ORDER BY commands.cycle
"""
_UNCHANGEABLE = """
SELECT json_extract(veto_facts, '$.asked') AS asked, count(DISTINCT job) AS jobs FROM decisions
WHERE verdict = 'vetoed' AND veto = 'shape' AND last > ? GROUP BY asked ORDER BY jobs DESC, asked
"""
_JOB_FAULTS = "SELECT * FROM faults WHERE job_id = ? AND last >= ? ORDER BY first"
_FORBIDDEN_ACTIONS = """
SELECT job, kind, rule, veto, veto_facts AS mode FROM decisions
WHERE verdict IN ('vetoed', 'notice') AND veto != 'placement'
    AND last_cycle = (SELECT max(cycle) FROM standing) ORDER BY last
"""
