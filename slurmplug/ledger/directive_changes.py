"""Changes of directives after the submission: who may make which, and their record for the next cycle.

All checks and the record are one transaction. The daemon's next cycle puts the changes in force.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import NamedTuple

from slurmplug.directives import changes, parser
from slurmplug.directives.changes import Change
from slurmplug.errors import UsageError
from slurmplug.intake.job_record import JobRecord
from slurmplug.ledger import cycle_queries, job_rows, queries
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId
from slurmplug.ledger.sqlite import Row

MAX_CHANGES = 100
"""The most changes of one job."""


class Author(NamedTuple):
    """Who makes a change. `operator`: may change every job. `sees_all`: whether Slurm shows them everybody's jobs."""

    uid: int
    user: str
    operator: bool
    sees_all: bool


@dataclass(frozen=True)
class ChangeRequest:
    """A request to change the directives of a job, of the pending and running elements of an array, or of all
    components of a heterogeneous job.

    `written`: the directives, each as `--name=value`, without a value to take it back to what the script says. `id`: a
    random text of this request alone. `cluster`: the one that its author means; empty where it was made on the
    controller itself.
    """

    job: JobId
    written: tuple[str, ...]
    id: str
    cluster: str = ""


class ChangedJobs(NamedTuple):
    """What a request changed. `stopping`: jobs that it left as they are, since they are being stopped; both as squeue
    shows their ids."""

    jobs: tuple[str, ...]
    stopping: tuple[str, ...]
    change: Change


def make_change(
    ledger: Ledger, request: ChangeRequest, author: Author, now: float, zone: tzinfo | None = None
) -> ChangedJobs:
    """Check a request and record it for the next cycle, for all of its jobs or for none.

    Args:
        now: seconds since the epoch, from which a span counts.
        zone: the cluster's time zone; None for this machine's.

    Raises:
        UsageError: the request is not valid, or the author may not make it; a job that Slurm hides from the author is
            as one that never existed.
        LedgerError: it could not be recorded.
    """
    given, taken_back = parser.parse_change(request.written, now=now, zone=zone)
    change = Change(0, now, author.uid, author.user, request.id, given, taken_back)
    if not change.names:
        raise UsageError("name a directive to change, such as --deadline=2h, or --deadline= to take a change back")
    made: list[ChangedJobs] = []

    def decide() -> Iterator[tuple[int, Change]]:
        found = _jobs_of(ledger, request, author)
        for job in found:
            _check(job, change)
        left = [job for job in found if job.stopping and given.manage != "off"]
        taken = [job for job in found if job not in left]
        if not taken:
            raise UsageError(f"{_named(left[0])} is being stopped: its directives count no more")
        made.append(ChangedJobs(_ids(taken), _ids(left), change))
        yield from ((job.row, change) for job in taken)

    ledger.change_directives(decide)
    return made[0]


@dataclass(frozen=True)
class _Job:
    """A live job, its row, the changes that are in force or come with the next cycle, and what hinders another one."""

    row: int
    record: JobRecord
    changes: tuple[Change, ...]
    stopping: bool
    given_back: bool


def _jobs_of(ledger: Ledger, request: ChangeRequest, author: Author) -> list[_Job]:
    """The jobs of the request, which the author may change. Raises UsageError."""
    task = request.job.task
    condition, values = (_WHOLE, [request.job.number] * 3) if task is None else (_ELEMENT, [*request.job])
    known = ledger.query(f"SELECT * FROM jobs WHERE {condition} ORDER BY array_task, job_id", *values)
    shown = [row for row in known if author.operator or author.sees_all or row["uid"] == author.uid]
    live = [row for row in shown if not row["ended"]]
    if not live:
        raise UsageError(_unknown(ledger, request.job, shown, author))
    owner = live[0]
    if not (author.operator or all(row["uid"] == author.uid for row in live)):
        raise UsageError(
            f"job {owner['job_id']} is {owner['user']}'s: only {owner['user']} and operators may change its directives"
        )
    if request.cluster not in ("", owner["cluster"]):
        raise UsageError(f"this daemon serves the cluster {owner['cluster']}, not {request.cluster}")
    given_back = cycle_queries.given_back(ledger)
    found = [_job(ledger, row, given_back) for row in live]
    if any(change.request == request.id for job in found for change in job.changes):
        raise UsageError("this request was received before, and the change was made")
    return found


def _job(ledger: Ledger, row: Row, given_back: Collection[int]) -> _Job:
    record = job_rows.record_from_row(row, ())
    return _Job(
        row=row["id"],
        record=record,
        changes=(*record.changes, *queries.coming_changes(ledger, row["id"])),
        stopping=bool(ledger.query(_OPEN_STOP, row["id"], row["cluster"], row["het_id"])),
        given_back=row["job_id"] in given_back,
    )


def _unknown(ledger: Ledger, job: JobId, shown: Sequence[Row], author: Author) -> str:
    """Why there is nothing to change."""
    text = f"{job.number}" if job.task is None else f"{job.number}_{job.task}"
    if shown:
        return f"job {text} has ended ({shown[0]['state']}): its directives count no more"
    if job.task is not None:
        waiting = ledger.query(_WAITING, job.number)
        if waiting and (author.operator or author.sees_all or waiting[0]["uid"] == author.uid):
            return f"{text} has not started: pending elements of an array are one job, {job.number}"
    return (
        f"slurmplug knows no job {text}: it was submitted after the last cycle, never existed, is older than the "
        "retention, or Slurm does not show it to you"
    )


def _check(job: _Job, change: Change) -> None:
    """Raises UsageError if the job's directives cannot change so."""
    record, name = job.record, _named(job)
    if not record.facts.batch:
        raise UsageError(f"{name} is interactive (salloc, srun): slurmplug never changes it")
    if job.given_back:
        raise UsageError(f"an operator excluded {name} (slurmplug reset --job): slurmplug does not change it any more")
    if record.directives is None:
        raise UsageError(f"the script of {name} has not been read yet: try again after the next cycle")
    if len(job.changes) >= MAX_CHANGES:
        raise UsageError(f"{name} was changed {MAX_CHANGES} times, which is the most")
    submitted = record.submitted_directives or record.directives
    before = changes.in_force(submitted, job.changes)
    after = changes.check(submitted, job.changes, change)
    if record.awaits and not after.managed:
        raise UsageError(f"{name} waits for admission: cancel it, or ask an operator (slurmplug reset --job)")
    if after.utility is not None and after.managed and not before.managed:
        raise UsageError(f"{name} has a --utility: a job is admitted at its submission, so submit it again")


def _ids(jobs: Sequence[_Job]) -> tuple[str, ...]:
    return tuple(job.record.facts.shown_id for job in jobs)


def _named(job: _Job) -> str:
    return f"job {job.record.facts.shown_id}"


_LATEST = """
NOT EXISTS (
    SELECT 1 FROM jobs AS later
    WHERE later.cluster = jobs.cluster AND later.job_id = jobs.job_id AND later.first_submit > jobs.first_submit
)
"""
_WHOLE = f"""
(
    job_id = ? OR (array_id != 0 AND array_id = ?)
    OR (het_id != 0 AND het_id IN (SELECT het_id FROM jobs WHERE job_id = ? AND het_id != 0 AND ended = 0))
) AND {_LATEST}
"""
"""The ledger waits while a request is checked, so every condition has an index."""
_ELEMENT = f"array_id != 0 AND array_id = ? AND array_task = ? AND {_LATEST}"
_WAITING = "SELECT uid FROM jobs WHERE array_id = ? AND array_task < 0 AND ended = 0"
_OPEN_STOP = """
SELECT 1 FROM operations JOIN jobs ON jobs.id = operations.job
WHERE kind = 'stop' AND step != 'ended' AND (jobs.id = ? OR (jobs.cluster = ? AND jobs.job_id = nullif(?, 0)))
"""
"""An open stop of the job, or of the leader of its heterogeneous job, which is stopped as one."""
