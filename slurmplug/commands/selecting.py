"""The options by which `acct`, `queue` and `prio` select jobs, each defined once; the flags are sacct's or squeue's."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from slurmplug.cluster.hostlist import expand
from slurmplug.commands.options import own_uid, split_list
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import ENDED_STATE_CODES, QUEUE_STATE_CODES, JobId, Selection

Command = TypeVar("Command", bound=Callable[..., Any])
_STATES = ENDED_STATE_CODES | QUEUE_STATE_CODES


@dataclass(frozen=True)
class _Selector:
    """An option. `read`: the values of a field of `Selection` from the option's text."""

    metavar: str
    about: str
    read: Callable[[str], tuple[Any, ...]]


def _states(listed: str) -> tuple[str, ...]:
    """Slurm's long names; none for `all`."""
    words = split_list(listed)
    if any(word.lower() == "all" for word in words):
        return ()
    names = tuple(_STATES.get(word.upper(), word.upper()) for word in words)
    for word, name in zip(words, names, strict=True):
        if name not in _STATES.values():
            raise UsageError(f"unrecognized job state value {word!r}; known: {', '.join(sorted(_STATES))}")
    return names


def _nodes(listed: str) -> tuple[str, ...]:
    try:
        return tuple(expand(listed))
    except ValueError as error:
        raise UsageError(f"Invalid node list: {error}") from error


def _ids(text: str) -> tuple[JobId, ...]:
    return tuple(map(JobId.parse, split_list(text)))


_SELECTORS = {
    "jobs": _Selector("IDS", "these jobs: 12, or 12_3 of an array, or several", _ids),
    "users": _Selector("NAMES", "these users' jobs", split_list),
    "accounts": _Selector("NAMES", "these accounts' jobs", split_list),
    "partitions": _Selector("NAMES", "jobs in these partitions", split_list),
    "qos": _Selector("NAMES", "jobs of these QOS", split_list),
    "names": _Selector("NAMES", "jobs of these names", split_list),
    "nodes": _Selector("NODES", "jobs that run or ran on one of these nodes: n1,n[3-5]", _nodes),
    "states": _Selector("STATES", "jobs in these states: PD,RUNNING; all", _states),
}


def selecting(**flags: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds options that select jobs; the command gets them as `which`.

    flags: the flags of the option for each field of `Selection`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def selected(**given: Any) -> None:
            command(which=Selection(**{field: given.pop(field) for field in flags}), **given)

        decorated: Callable[..., None] = selected
        for field, names in reversed(flags.items()):
            selector = _SELECTORS[field]
            decorated = click.option(
                *names,
                field,
                default="",
                metavar=selector.metavar,
                callback=lambda _context, _option, text, read=selector.read: read(text),
                help=f"Only {selector.about}.",
            )(decorated)
        return decorated

    return decorate


me_option = click.option("--me", is_flag=True, help="Only my jobs.")


def of_caller() -> tuple[str, ...]:
    """`Selection.users` of this process' user."""
    return (own_uid(),)
