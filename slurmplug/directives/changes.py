"""Changes of a job's directives after its submission, and what is in force with them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurmplug.directives.parser import NAMES, Directives, Problem, without_contradictions
from slurmplug.errors import UsageError


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a job's directives. `id`: its number in the ledger. `at`: when it was made, in seconds since the
    epoch, by `user` with `uid`. `request`: a random text that no other request has, so that none is accepted twice.

    `given`: the directives that are new. `taken_back`: the fields of those that are what script and comment say again.
    """

    id: int
    at: float
    uid: int
    user: str
    request: str
    given: Directives
    taken_back: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The fields of `Directives` that it is about."""
        return tuple(name for name in NAMES if getattr(self.given, name) is not None or name in self.taken_back)


def in_force(submitted: Directives, changes: Sequence[Change]) -> Directives:
    """What a job's directives are: those that it was submitted with, overridden by the changes in their order.

    A --allow-downgrade that goes no further than a new --stop is left out.
    """
    return without_contradictions(_overridden(submitted, changes))[0]


def check(submitted: Directives, changes: Sequence[Change], new: Change) -> Directives:
    """What is in force with one more change.

    Raises:
        UsageError: the change contradicts what is in force.
    """
    found, problems = without_contradictions(_overridden(submitted, [*changes, new]))
    wrong = [each.without_place for name, each in problems.items() if name in new.names or _lost(each)]
    if wrong:
        raise UsageError("; ".join(wrong))
    return found


def _lost(problem: Problem) -> bool:
    """Whether what was asked for would be lost by a change of another directive, which does not cover it."""
    return problem.rule != "no-further"


def _overridden(submitted: Directives, changes: Sequence[Change]) -> Directives:
    found = submitted
    for change in changes:
        found = replace(
            found,
            **{name: getattr(submitted, name) for name in change.taken_back},
            **{name: value for name in NAMES if (value := getattr(change.given, name)) is not None},
        )
    return found
