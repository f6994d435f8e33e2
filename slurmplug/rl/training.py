"""Which module trains which learnt policy, and with which settings."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter, ValidationError

from policies.model import Model
from slurmplug.config.schema import requirement
from slurmplug.errors import UsageError

TRAINED_BY = {"dl2": "slurmplug.rl.dl2"}
"""A module has `Settings`, a dataclass, and `train(settings, progress)`."""


def train(policy: str, given: Mapping[str, Any], progress: Callable[[str, int, Mapping[str, float]], Any]) -> Model:
    """Train a model of a policy; progress is called with the stage, its step and figures by name.

    Raises:
        UsageError: a setting is unknown or cannot be used, or a library that training needs is not installed
    """
    try:
        trainer: Any = import_module(TRAINED_BY[policy])
    except ModuleNotFoundError as error:
        raise UsageError(f"training needs {error.name}, which is not installed: pip install 'slurmplug[rl]'") from error
    known = [field.name for field in fields(trainer.Settings)]
    for name in given.keys() - set(known):
        raise UsageError(f"training of {policy} has no setting {name!r}; known: {', '.join(known)}")
    try:
        settings = TypeAdapter(trainer.Settings).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{where}: {requirement(first)}, not {first['input']!r}") from error
    model: Model = trainer.train(settings, progress)
    return model
