"""Checks a configuration beyond its syntax: that its policy loads, and that the paths it names exist."""

import difflib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import ConfigError


def check_policy(config: Config) -> None:
    """Raises ConfigError if the policy or its settings are not valid, or a table of settings has a misspelt name."""
    policy = policy_registry.policy(config)
    for table in config.policies.keys() - {config.policy, policy.name, *policy_registry.names()}:
        if near := difflib.get_close_matches(table, policy_registry.names(), n=1):
            raise ConfigError(f"policies.{table}: there is no policy {table!r}; did you mean {near[0]}?")


def missing_paths(config: Config) -> list[str]:
    """The paths that the configuration names and that are missing, or of the wrong kind: `key: path: why`."""
    return [f"{key}: {path}: {why}" for key, path, is_kind in _named_paths(config) if (why := _problem(path, is_kind))]


def _named_paths(config: Config) -> Iterator[tuple[str, Path, Callable[[int], bool]]]:
    """The key, the path, and the test of its kind."""
    if config.slurm.conf:
        yield "slurm.conf", config.slurm.conf, stat.S_ISREG
    if config.slurm.bin:
        yield "slurm.bin", config.slurm.bin, stat.S_ISDIR
    yield "ledger.path", config.ledger.path.parent, stat.S_ISDIR
    for folder in ("reports", "requests"):
        yield "spool.path", config.spool.path / folder, stat.S_ISDIR
    if config.endpoint.munge_socket:
        yield "endpoint.munge_socket", config.endpoint.munge_socket, stat.S_ISSOCK
    if config.takeover.folder:
        yield "takeover.folder", config.takeover.folder, stat.S_ISDIR


def _problem(path: Path, is_kind: Callable[[int], bool]) -> str:
    """Why a path cannot be used; empty if it can."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return error.strerror or str(error)
    return "" if is_kind(mode) else _NOT[is_kind]


_NOT = {stat.S_ISREG: "Not a file", stat.S_ISDIR: "Not a directory", stat.S_ISSOCK: "Not a socket"}
