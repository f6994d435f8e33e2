"""Jobs that ended, in groups that are alike, of which suggestions are made."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from slurmplug.ledger.suggestion_queries import EndedJob
from slurmplug.reports.interface import Suggestion, What


@dataclass(frozen=True)
class Group:
    """Ended jobs of one user, kind, number of GPUs and type of GPU; the earliest submission first."""

    user: str
    kind: str
    gpus: int
    jobs: Sequence[EndedJob]

    @property
    def gpu_hours(self) -> float:
        """The GPU hours of the jobs' last runs."""
        return sum(job.gpu_hours for job in self.jobs)

    @property
    def completed(self) -> list[EndedJob]:
        """The jobs that say how long such jobs take: a run after a requeue is shorter by what was done before."""
        return [j for j in self.jobs if j.facts.state == "COMPLETED" and not j.stopped and not j.facts.restarts]

    def of(self, jobs: Sequence[EndedJob]) -> "Group":
        """The group with these of its jobs alone."""
        return Group(self.user, self.kind, self.gpus, jobs)

    def suggestion(
        self, what: What, now: float, better: float | None, gpu_hours: float, elements: str = "", **because: float
    ) -> Suggestion:
        """One about all of these jobs."""
        return Suggestion(
            what, self.user, self.kind, self.gpus, now, better, len(self.jobs), gpu_hours, because, elements
        )


def groups_of(jobs: Sequence[EndedJob]) -> list[Group]:
    """The groups of the jobs with whole GPUs; of other jobs no GPU hours would be gained."""
    found: dict[tuple[str, str, int, tuple[str, ...]], list[EndedJob]] = defaultdict(list)
    for job in jobs:
        if job.gpus:
            found[job.facts.user, job.kind, job.gpus, job.facts.of_gpus.types].append(job)
    return [Group(user, kind, gpus, ended) for (user, kind, gpus, _), ended in sorted(found.items())]
