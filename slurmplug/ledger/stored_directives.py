"""Directives from the JSON in which the ledger keeps them.

pydantic would read them too, but takes longer to load than to read those of 10,000 jobs.
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from slurmplug.directives.parser import Checkpoint, Directives, GpuRange, Problem, Target, Utility
from slurmplug.directives.values import Params

_NAMES = frozenset(Directives.__dataclass_fields__)


@functools.lru_cache(maxsize=4096)
def directives_from(stored: str) -> Directives | None:
    """The directives of a column `directives`. Many jobs have the same."""
    if stored == "null":
        return None
    told: dict[str, Any] = json.loads(stored)
    given = {name: value for name, value in told.items() if value is not None and name in _NAMES}
    for name in given.keys() & _PARTS.keys():
        given[name] = _PARTS[name](given[name])
    return Directives(**given)


def _problems(stored: list[dict[str, Any]]) -> tuple[Problem, ...]:
    return tuple(Problem(**each) for each in stored)


def _params(stored: float | dict[str, Any]) -> float | Params:
    if not isinstance(stored, dict):
        return stored
    return Params(stored["model"], tuple((name, value) for name, value in stored["work"]))


_PARTS: Mapping[str, Callable[[Any], Any]] = {
    "target": lambda stored: Target(**stored),
    "gpus": lambda stored: GpuRange(**stored),
    "checkpoint": lambda stored: Checkpoint(**stored),
    "utility": lambda stored: Utility(**stored),
    "params": _params,
    "problems": _problems,
    "warnings": _problems,
}
