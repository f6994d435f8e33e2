"""Values of fields that are made of a job's facts alone, of one job or of a column of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmplug.console.table import Field

if TYPE_CHECKING:
    from slurmplug.reports.job_view import Job


@dataclass(frozen=True)
class OfFacts:
    """A field's value, made of facts of the job. `facts`: their names in `JobFacts`, in the order of the arguments."""

    make: Callable[..., Any]
    facts: tuple[str, ...]

    def __call__(self, job: Job) -> Any:
        """Of one job."""
        return self.make(*[getattr(job.facts, name) for name in self.facts])

    def of_column(self, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Of each job of these columns, by the names of the facts."""
        return list(map(self.make, *[columns[name] for name in self.facts]))


@dataclass(frozen=True)
class Fact(OfFacts):
    """A fact as it is."""

    def of_column(self, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Of each job of these columns, by the names of the facts."""
        return list(columns[self.facts[0]])


@dataclass(frozen=True)
class Text(OfFacts):
    """A text, None for an empty one."""

    def of_column(self, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Of each job of these columns, by the names of the facts."""
        texts = columns[self.facts[0]]
        return list(texts) if all(texts) else [text or None for text in texts]


def fact(name: str) -> Fact:
    """A number of Slurm's, or None."""
    return Fact(lambda value: value, (name,))


def text(name: str) -> Text:
    """A text of Slurm's, None for an empty one."""
    return Text(lambda value: value or None, (name,))


def columns_of(fields: Sequence[Field[Any]], jobs: Sequence[Job]) -> list[list[Any]]:
    """The values of the fields, by field, of these jobs: of facts alone a column at a time, which takes a third."""
    values = [field.value for field in fields]
    names = {name for value in values if isinstance(value, OfFacts) for name in value.facts}
    facts = {name: [getattr(job.facts, name) for job in jobs] for name in names}
    return [value.of_column(facts) if isinstance(value, OfFacts) else list(map(value, jobs)) for value in values]
