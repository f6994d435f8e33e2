"""Who reads a report, and what it may show of other jobs: the only place where that is decided.

Every report is about jobs that its viewer sees. What it says of other jobs, such as which one is ahead, passes through
here: a job that the viewer does not see is None, so there is nothing of it to make a sentence of.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from policies.plan import OtherJob
from policies.snapshot import JobKey
from slurmplug.ledger.facts import stored_facts
from slurmplug.ledger.queries import JobAudit
from slurmplug.ledger.sqlite import Row
from slurmplug.reports.job_view import Job
from slurmplug.reports.live_order import Placed

AHEAD = 3
"""How many of the jobs ahead of one are named."""


class Viewer(NamedTuple):
    """Who reads a report: a uid, and whether Slurm shows it everybody's jobs."""

    uid: int
    sees_all: bool

    def sees(self, job: Job) -> bool:
        """Whether Slurm shows the viewer this job."""
        return self.sees_all or job.facts.uid == self.uid


OPERATOR = Viewer(0, sees_all=True)


@dataclass(frozen=True)
class QueuePlace:
    """A pending job's place among the ranked ones, from 1.

    ahead: the jobs directly ahead of it, the nearest first; None for one that the viewer does not see. overtaken_by:
    how many jobs behind it Slurm's own priority puts ahead. above: how many pending jobs that are not ranked have a
    higher priority in Slurm.
    """

    rank: int
    of: int
    ahead: tuple[Job | None, ...]
    overtaken_by: int
    above: int


def queue_place(
    job: Job, waiting: Sequence[Placed], viewer: Viewer, jobs: Callable[[Sequence[int]], Sequence[Job]]
) -> QueuePlace | None:
    """The place of a job; None if it is not ranked.

    waiting: the pending jobs, those that are ranked in their order. jobs: returns the jobs of rows.
    """
    order = [placed for placed in waiting if placed.rank is not None]
    place = next((n for n, other in enumerate(order) if other.row == job.row), None)
    if place is None:
        return None
    own, rows = order[place].priority, [other.row for other in order[max(0, place - AHEAD) : place]]
    found = {other.row: other for other in jobs(rows) if viewer.sees(other)}
    return QueuePlace(
        rank=place + 1,
        of=len(order),
        ahead=tuple(found.get(row) for row in reversed(rows)),
        overtaken_by=sum(other.priority > own for other in order[place + 1 :]),
        above=sum(other.rank is None and other.priority > own for other in waiting),
    )


def seen_by(
    viewer: Viewer, named: Iterable[OtherJob], owners: Callable[[Iterable[JobKey]], Mapping[JobKey, int]]
) -> Callable[[JobKey], bool]:
    """Whether the viewer sees each of these jobs; of jobs whose owner is not known, only who sees all sees them."""
    if viewer.sees_all:
        return lambda _: True
    own = {key for key, uid in owners({other.job for other in named}).items() if uid == viewer.uid}
    return own.__contains__


def named_in(audit: JobAudit) -> Iterator[OtherJob]:
    """The other jobs that an audit is about."""
    for row in (*audit.operations, *audit.decisions):
        for column in _FACTS & row.keys():
            yield from (fact for fact in row[column].values() if isinstance(fact, OtherJob))


def shown_audit(audit: JobAudit, sees: Callable[[JobKey], bool]) -> dict[str, list[Row]]:
    """The rows of an audit by table, as JSON has them: another job that the viewer does not see is null."""
    return {table: [_shown_row(row, sees) for row in found] for table, found in vars(audit).items()}


def shown_error(error: str, viewer: Viewer) -> str:
    """The error of a cycle; one of a policy or of Slurm may name any job."""
    return error if viewer.sees_all or not error else "last cycle had an error, which the daemon's log has"


_FACTS = {"facts", "veto_facts"}


def _shown_row(row: Row, sees: Callable[[JobKey], bool]) -> Row:
    return {
        name: {key: _shown_fact(fact, sees) for key, fact in value.items()} if name in _FACTS else value
        for name, value in row.items()
    }


def _shown_fact(fact: Any, sees: Callable[[JobKey], bool]) -> Any:
    if not isinstance(fact, OtherJob):
        return fact
    return stored_facts({"": fact})[""] if sees(fact.job) else None
