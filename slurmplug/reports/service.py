"""The questions that the reports ask: the waist between the commands and what they read.

`LedgerAnswers` reads the ledger, for an operator or, in the daemon's endpoint, for a user from whom Slurm hides jobs.
`endpoint/client.py` asks the same questions over the network.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.daemon.reset import daemon_runs
from slurmplug.ledger.ledger import DAY, Ledger
from slurmplug.reports import job_view as reports
from slurmplug.reports import queue as standings
from slurmplug.reports import why as story
from slurmplug.reports.job_audit import Deeds
from slurmplug.reports.job_view import Job, JobId, Selection
from slurmplug.reports.queue import Entry
from slurmplug.reports.why import Paragraph

MISSED = 3
"""So many intervals without a cycle, and the daemon counts as dead."""


class Viewer(NamedTuple):
    """Who asks: a uid, and whether Slurm shows it everybody's jobs."""

    uid: int
    sees_all: bool

    def sees(self, job: Job) -> bool:
        return self.sees_all or job.record.facts.uid == self.uid


OPERATOR = Viewer(0, sees_all=True)


@dataclass(frozen=True)
class Told:
    """A job and its story: for people the paragraphs, for programs also the rows that they were made from."""

    job: Job
    story: Mapping[str, Any]

    @property
    def paragraphs(self) -> list[Paragraph]:
        return [Paragraph(each["about"], tuple(each["sentences"])) for each in self.story["story"]]


class Answers(Protocol):
    """What the reports can ask. Every method raises LedgerError where the ledger cannot be read."""

    def jobs(self, which: Selection) -> list[Job]:
        """For `acct`. Raises UsageError where these are too many."""
        ...

    def queue(self, which: Selection) -> list[Entry]:
        """For `queue` and `prio`."""
        ...

    def story(self, job: JobId) -> list[Told]:
        """For `why`: of each element of an array; empty where there is no such job."""
        ...

    def knows_user(self, user: str) -> bool:
        """Whether it is an account, or there are jobs of it: a name, or a uid in digits."""
        ...

    def status(self, now: float) -> dict[str, Any]:
        """For `status`."""
        ...


class LedgerAnswers:
    """`Answers` from a ledger, as its daemon's configuration has it."""

    def __init__(self, ledger: Ledger, path: Path, config: Config, viewer: Viewer = OPERATOR, most: int = 0) -> None:
        """`viewer` gets what Slurm shows it; more jobs than `most` are refused, 0 for none."""
        self._ledger, self._path, self._config = ledger, path, config
        self._viewer = viewer
        self._most = most

    def jobs(self, which: Selection) -> list[Job]:
        return reports.jobs(self._ledger, self._shown(which))

    def queue(self, which: Selection) -> list[Entry]:
        return standings.queue(self._ledger, self._shown(which))

    def story(self, job: JobId) -> list[Told]:
        found = self.jobs(Selection(jobs=(job,)))
        order = reports.ranked(reports.jobs(self._ledger, Selection(live=True))) if found else []
        cycle = reports.last_cycle(self._ledger)
        return [self._told(each, order, cycle) for each in found]

    def knows_user(self, user: str) -> bool:
        return reports.known_user(self._ledger, user, jobs_count=self._viewer.sees_all)

    def dead_since(self, now: float) -> float | None:
        """When its last cycle began, where the daemon is not alive; None where it is, or never was."""
        newest = self._ledger.query("SELECT started FROM cycles ORDER BY id DESC LIMIT 1")
        if not newest or self._alive(daemon_runs(self._path), now - newest[0]["started"]):
            return None
        started: float = newest[0]["started"]
        return started

    def _alive(self, running: bool, age: float | None) -> bool:
        return running and age is not None and age < MISSED * self._config.interval

    def status(self, now: float) -> dict[str, Any]:
        ledger, config = self._ledger, self._config
        newest = ledger.query("SELECT started, error FROM cycles ORDER BY id DESC LIMIT 1")
        cycle = reports.last_cycle(ledger) or {}
        age = now - newest[0]["started"] if newest else None
        running, paused, past = daemon_runs(self._path), ledger.control("paused"), ledger.past(now)
        return {
            "alive": self._alive(running, age),
            "running": running,
            "age": age,
            "interval": config.interval,
            "paused": paused,
            "hindered": ledger.control("hindered"),
            "modes": json.loads(cycle.get("modes") or "{}"),
            "policy": cycle.get("policy") or config.policy,
            "policies": policy_registry.names(),
            "cycle": {
                "id": cycle.get("id"),
                "started": cycle.get("started"),
                **{name: cycle.get(name) for name in ("jobs", "pending", "running", "managed", "postponed")},
                "seconds": json.loads(cycle.get("seconds") or "{}"),
            },
            "frozen": cycle.get("frozen") or "",
            "error": newest[0]["error"] if newest else "",
            "operations": ledger.query(_OPERATIONS),
            "stops_last_hour": past.stops_last_hour,
            "failures_in_a_row": past.failures_in_a_row,
            "faults": ledger.query(_FAULTS, now - DAY),
            "ledger": {
                "path": str(self._path),
                "bytes": sum(part.stat().st_size for part in _parts(self._path) if part.exists()),
                **ledger.query(_SIZES)[0],
            },
        }

    def _told(self, job: Job, order: Sequence[Job], cycle: Mapping[str, Any] | None) -> Told:
        deeds = Deeds.of(self._ledger, job)
        return Told(job, story.as_mapping(story.tell(job, order, cycle, deeds, self._viewer.sees), deeds))

    def _shown(self, which: Selection) -> Selection:
        owner = which.owner if self._viewer.sees_all else self._viewer.uid
        return replace(which, owner=owner, most=self._most)


def _parts(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-wal")


_OPERATIONS = "SELECT kind, step, count(*) AS jobs FROM operations WHERE step != 'ended' GROUP BY kind, step"
_FAULTS = "SELECT rule, sum(count) AS count, max(last) AS last FROM faults WHERE last > ? GROUP BY rule ORDER BY rule"
_SIZES = "SELECT (SELECT count(*) FROM jobs) AS jobs, (SELECT count(*) FROM cycles) AS cycles"
