"""Which policies are installed: the entry points of the group `slurmplug.policies`."""

import difflib
from dataclasses import fields, replace
from importlib.metadata import entry_points

from policies.policy import Policy
from slurmplug.config import Config
from slurmplug.errors import ConfigError

GROUP = "slurmplug.policies"


def names() -> list[str]:
    """The names that `policy = ` may take."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def policy(config: Config) -> Policy:
    """The policy that the configuration names, made with its settings there.

    A policy that knows of an `interval` is told the daemon's, unless its own table says another.

    Raises:
        ConfigError: there is none of that name, it cannot be loaded, or it refuses the settings.
    """
    name, settings = config.policy, config.policies.get(config.policy, {})
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise ConfigError(f"there is no policy {name!r}; {_hint(name, sorted(found))}")
    try:
        kind = found[name].load()
        default = kind().settings
        known = [field.name for field in fields(default)]
    except Exception as error:
        raise ConfigError(f"policy {name} cannot be loaded from {found[name].value}: {error}") from error
    for key in settings:
        if key not in known:
            raise ConfigError(f"policies.{name}.{key}: unknown key; {_hint(key, known)}")
    told = {"interval": config.interval} if "interval" in known else {}
    try:
        made: Policy = kind(replace(default, **told | settings))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"policies.{name}: {error}") from error
    return made


def _hint(word: str, words: list[str]) -> str:
    near = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(words)}"
