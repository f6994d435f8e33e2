"""Checks a configuration beyond its syntax: that its policy loads, and that the paths it names exist."""

import difflib
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from slurmplug.cluster.site_client import PROGRAMS
from slurmplug.config import policy_names, policy_registry
from slurmplug.config.schema import Config
from slurmplug.console.table import printable
from slurmplug.errors import ConfigError


def check_policy(config: Config) -> None:
    """Raises ConfigError if the policy or its settings are not valid, or a table of settings has a misspelt name."""
    policy = policy_registry.policy(config)
    for table in config.policies.keys() - {config.policy, policy.name, *policy_names.names()}:
        if near := difflib.get_close_matches(table, policy_names.names(), n=1):
            raise ConfigError(f"policies.{table}: there is no policy {table!r}; did you mean {near[0]}?")


def missing_paths(config: Config) -> list[str]:
    """The paths that the configuration names and that are missing, or of the wrong kind: `key: path: why`."""
    return [f"{key}: {path}: {why}" for key, path, is_kind in _named_paths(config) if (why := _problem(path, is_kind))]


def not_there(config: Config) -> list[str]:
    """What else the configuration names that this machine does not have: users, and the client of Slurm."""
    users = [user for user in sorted(config.guardrails.exclude_users) if not _has_account(user)]
    found = [f"guardrails.exclude_users: {printable(user)}: No such user" for user in users]
    if config.slurm.client == "pyslurm" and find_spec("pyslurm") is None:
        found.append("slurm.client: pyslurm: Not installed; pip install 'slurmplug[pyslurm]', or client = \"cli\"")
    if config.metrics.listen and find_spec("prometheus_client") is None:
        found.append("metrics.listen: prometheus-client: Not installed; pip install 'slurmplug[metrics]'")
    folder = config.slurm.bin
    if folder is None or folder.is_dir():
        lacking = [name for name in PROGRAMS if which(name, path=str(folder) if folder else None) is None]
        names, where = ", ".join(lacking), folder or "PATH"
        found += [f"slurm.bin: {names}: Not found in {where}; install Slurm's client commands"] if lacking else []
    return found


def _has_account(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        return False
    return True


def _named_paths(config: Config) -> Iterator[tuple[str, Path, Callable[[int], bool]]]:
    """The key, the path, and the test of its kind."""
    if config.slurm.conf:
        yield "slurm.conf", config.slurm.conf, stat.S_ISREG
    if config.slurm.bin:
        yield "slurm.bin", config.slurm.bin, stat.S_ISDIR
    yield "ledger.path", config.ledger.path.parent, stat.S_ISDIR
    if config.ledger.path.exists():
        yield "ledger.path", config.ledger.path, stat.S_ISREG
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
