"""Which policies are installed: the entry points of the group `slurmplug.policies`."""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any

from policies.policy import Policy
from slurmplug.errors import ConfigError

GROUP = "slurmplug.policies"


def names() -> list[str]:
    """The names that `policy = ` may take."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def policy(name: str, settings: Mapping[str, Any]) -> Policy:
    """The policy of that name, made with these settings: the fields of its `Settings` dataclass.

    Raises:
        ConfigError: there is none, it cannot be loaded, or it refuses the settings.
    """
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        hint = f"did you mean {near[0]}?" if near else f"installed: {', '.join(sorted(found))}"
        raise ConfigError(f"there is no policy {name!r}; {hint}")
    try:
        kind = found[name].load()
    except Exception as error:
        raise ConfigError(f"policy {name} cannot be loaded from {found[name].value}: {error}") from error
    known = [field.name for field in fields(kind.Settings)]
    for key in settings:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"policies.{name}.{key}: unknown key; {hint}")
    try:
        made: Policy = kind(kind.Settings(**settings))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"policies.{name}: {error}") from error
    return made
