"""The interface `Reports` between the commands and their data, and `LedgerReports`, which reads the ledger.

On the controller the commands use `LedgerReports` for an operator, who sees all jobs; the daemon's endpoint uses it for
a user, who sees what Slurm would show. On other hosts `endpoint/client.py` implements `Reports` over the network.
"""

import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.ledger import queries
from slurmplug.ledger.ledger import DAY, Ledger
from slurmplug.ledger.lock import daemon_runs
from slurmplug.ledger.queries import LastCycle
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports import job_view, why
from slurmplug.reports.job_view import Job
from slurmplug.reports.queue import QueueEntry, queue_view
from slurmplug.reports.viewer import (
    OPERATOR,
    Viewer,
    named_in,
    queue_place,
    seen_by,
    shown_audit,
    shown_columns,
    shown_error,
)
from slurmplug.reports.why import Paragraph

DEAD_AFTER_INTERVALS = 3
"""The daemon counts as dead after this many intervals without a cycle."""


@dataclass(frozen=True)
class JobExplanation:
    """A job and what explains it: for people the paragraphs, for programs also the rows that they were made from."""

    job: Job
    story: Mapping[str, Any]
    """as JSON has it: the paragraphs as `story`, and the rows by table"""

    @property
    def paragraphs(self) -> list[Paragraph]:
        """The sentences by heading."""
        return [Paragraph(each["about"], tuple(each["sentences"])) for each in self.story["story"]]


class Reports(Protocol):
    """The reports behind the commands. Every method raises LedgerError if the ledger cannot be read."""

    def jobs(self, which: Selection) -> list[Job]:
        """For `acct`. Raises UsageError where these are too many."""
        ...

    def queue(self, which: Selection) -> list[QueueEntry]:
        """For `queue` and `prio`."""
        ...

    def explain_job(self, job: JobId) -> list[JobExplanation]:
        """For `why`: of each element of an array; empty where there is no such job."""
        ...

    def knows_user(self, user: str) -> bool:
        """Whether the user, a name or a uid in digits, has an account or jobs."""
        ...

    def status(self, now: float) -> dict[str, Any]:
        """For `status`."""
        ...


class LedgerReports:
    """`Reports` from a ledger."""

    def __init__(self, ledger: Ledger, path: Path, config: Config, viewer: Viewer = OPERATOR, most: int = 0) -> None:
        """`viewer`: who is shown the jobs that Slurm shows them. `most`: more jobs raise UsageError; 0 for no limit."""
        self._ledger, self._path, self._config = ledger, path, config
        self._viewer = viewer
        self._most = most

    def jobs(self, which: Selection) -> list[Job]:
        """For `acct`. Raises UsageError where these are too many."""
        return [self._shown(job) for job in job_view.jobs(self._ledger, self._visible(which))]

    def queue(self, which: Selection) -> list[QueueEntry]:
        """For `queue` and `prio`."""
        found = queue_view(self._ledger, self._visible(which))
        return [replace(entry, job=self._shown(entry.job)) for entry in found]

    def explain_job(self, job: JobId) -> list[JobExplanation]:
        """For `why`: of each element of an array; empty where there is no such job."""
        found = self.jobs(Selection(jobs=(job,)))
        order = job_view.ranked(job_view.jobs(self._ledger, Selection(live=True))) if found else []
        cycle = queries.last_cycle(self._ledger)
        if cycle is not None:
            cycle = cycle._replace(error=shown_error(cycle.error, self._viewer))
        return [self._explained(each, order, cycle) for each in found]

    def _explained(self, job: Job, order: Sequence[Job], cycle: LastCycle | None) -> JobExplanation:
        audit = queries.job_audit(self._ledger, job.row, job.record)
        sees = seen_by(self._viewer, named_in(audit), lambda keys: queries.owners(self._ledger, keys))
        paragraphs = why.explain_job(job, queue_place(job, order, self._viewer), cycle, audit, sees)
        story = [{"about": each.about, "sentences": list(each.sentences)} for each in paragraphs]
        return JobExplanation(job, {"story": story, **shown_audit(audit, sees)})

    def _shown(self, job: Job) -> Job:
        """The job with the columns that the viewer may have."""
        columns = shown_columns(job.columns, self._viewer)
        return job if columns is job.columns else job_view.from_columns(columns)

    def knows_user(self, user: str) -> bool:
        """Whether the user has an account on this machine, or jobs in the ledger that the viewer may know of."""
        return _has_account(user) or (self._viewer.sees_all and queries.has_jobs_of(self._ledger, user))

    def dead_since(self, now: float) -> float | None:
        """When the last cycle began, if the daemon is dead; None if it is alive or has never run."""
        last = queries.last_attempt(self._ledger)
        if last is None or self._alive(daemon_runs(self._path), now - last.started):
            return None
        return last.started

    def _alive(self, running: bool, age: float | None) -> bool:
        return running and age is not None and age < DEAD_AFTER_INTERVALS * self._config.interval

    def status(self, now: float) -> dict[str, Any]:
        """For `status`: what JSON shows."""
        ledger, config = self._ledger, self._config
        last, cycle = queries.last_attempt(ledger), queries.last_cycle(ledger)
        age = now - last.started if last else None
        running, past = daemon_runs(self._path), ledger.past(now)
        figures = ("id", "started", "jobs", "pending", "running", "managed", "postponed")
        return {
            "alive": self._alive(running, age),
            "running": running,
            "age": age,
            "interval": config.interval,
            "paused": ledger.control("paused"),
            "hindered": ledger.control("hindered"),
            "modes": cycle.modes if cycle else {},
            "policy": (cycle and cycle.policy) or config.policy,
            "policies": policy_registry.names(),
            "cycle": {
                **{name: getattr(cycle, name, None) for name in figures},
                "seconds": cycle.seconds if cycle else {},
            },
            "frozen": (cycle and cycle.frozen) or "",
            "error": shown_error(last.error, self._viewer) if last else "",
            "operations": queries.open_operation_counts(ledger),
            "stops_last_hour": sum(past.stops_last_hour.values()),
            "factors_by_others": queries.factors_by_others(ledger),
            "failures_in_a_row": past.failures_in_a_row,
            "unchangeable": queries.unchangeable_requests(ledger, now - DAY),
            "faults": queries.fault_counts(ledger, now - DAY),
            "ledger": {
                "path": str(self._path),
                "bytes": sum(part.stat().st_size for part in _parts(self._path) if part.exists()),
                **queries.sizes(ledger),
            },
        }

    def _visible(self, which: Selection) -> Selection:
        owner = which.owner if self._viewer.sees_all else self._viewer.uid
        return replace(which, owner=owner, most=self._most)


def _has_account(user: str) -> bool:
    """Whether this machine has an account of that name, or uid in digits."""
    number = user.isascii() and user.isdecimal() and len(user) < 11
    try:
        pwd.getpwuid(int(user)) if number else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        return False
    return True


def _parts(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-wal")
