"""The reports behind the commands, wherever they come from.

On the controller the commands use `service.LedgerReports` for an operator, who sees all jobs; the daemon's endpoint
uses it for a user, who sees what Slurm would show. On other hosts `endpoint/client.py` asks the endpoint.

A report of jobs is a table: the values of the fields that are asked for, and no others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from slurmplug.console.table import Value
from slurmplug.ledger.selection import JobId, Selection

if TYPE_CHECKING:
    from slurmplug.reports.job_request import JobRequest

Table: TypeAlias = list[list[Value]]
"""The values of a report, a list for each field."""


@dataclass(frozen=True)
class JobExplanation:
    """A job and what explains it: for people the paragraphs, for programs also the rows that they were made from."""

    job: Mapping[str, Value]
    """its fields, as in JSON"""
    waits_in_array: bool
    """whether it is the elements of an array that are pending as one job"""
    story: Mapping[str, Any]
    """as JSON has it: the paragraphs as `story`, and the rows by table"""


What: TypeAlias = Literal["GPUs in use", "size", "time limit", "array throttle", "array split"]
"""What of a job is to be changed."""


FEWEST_RUNS = 20
"""completed jobs of one user, kind and number of GPUs, by which a time limit is judged"""
FEWEST_MEASURED = 3
"""jobs by which the use of GPUs, the pace on one number of GPUs, or the run time of one element of arrays is judged"""


@dataclass(frozen=True)
class Suggestion:
    """What to change for the jobs of one user and kind.

    now, better: GPUs, a time limit in seconds, or how many elements of an array run at once; better is None where no
    number would help. jobs: ended ones that it is about. gpu_hours: what it would have gained at most: of a time limit
    GPU hours that were reserved, of a throttle that idled, else that were used. because: the figures behind it.
    elements: those of an array for which it is better, as sbatch's --array takes them; empty for all.
    """

    what: What
    user: str
    kind: str
    gpus: int
    now: float
    better: float | None
    jobs: int
    gpu_hours: float
    because: Mapping[str, float] = field(default_factory=dict)
    elements: str = ""


@dataclass(frozen=True)
class Suggestions:
    """Suggestions, the most gained first, and what they rest on: `jobs` that ended, in `groups` of jobs that are alike,
    and how many of these had enough history to be judged, by what is to be changed."""

    jobs: int
    groups: int
    judged: Mapping[What, int]
    suggestions: Sequence[Suggestion]


class Reports(Protocol):
    """The reports behind the commands. Every method raises LedgerError if the ledger cannot be read."""

    def jobs(self, which: Selection, fields: Sequence[str]) -> Table:
        """For `acct`: the fields by their names in JSON. Raises UsageError where the jobs are too many."""
        ...

    def queue(self, which: Selection, fields: Sequence[str]) -> Table:
        """For `queue` and `prio`."""
        ...

    def explain_job(self, job: JobId, *, curves: bool = False) -> list[JobExplanation]:
        """For `why`: of each element of an array; empty where there is no such job.

        curves: with the learning curve as `curve`, of the first jobs (`explaining.MOST_CURVES`)
        """
        ...

    def suggestions(self, which: Selection) -> Suggestions:
        """For `suggest`. Raises UsageError where the jobs are too many."""
        ...

    def knows_user(self, user: str) -> bool:
        """Whether the user, a name or a uid in digits, has an account or jobs."""
        ...

    def estimate(self, request: "JobRequest", now: float) -> dict[str, Any]:
        """For `estimate`: as JSON has it. Raises UsageError where such a job cannot be estimated."""
        ...

    def status(self, now: float) -> dict[str, Any]:
        """For `status`."""
        ...

    def dead_since(self, now: float) -> float | None:
        """When the last cycle began, if the daemon is dead; None if it is alive or has never run."""
        ...
