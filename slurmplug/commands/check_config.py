"""`slurmplug check-config`: is the configuration valid, and is what it names there?"""

import difflib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from slurmplug.commands.options import config_option, configured, emit
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import ConfigError


@click.command("check-config")
@config_option
def check_config(*, config_path: Path) -> None:
    """Check the configuration, the policy's settings and the paths in it too: "ok", or each mistake."""
    config = configured(config_path)
    policy = policy_registry.policy(config)
    for table in config.policies.keys() - {config.policy, policy.name, *policy_registry.names()}:
        if near := difflib.get_close_matches(table, policy_registry.names(), n=1):
            raise ConfigError(f"policies.{table}: there is no policy {table!r}; did you mean {near[0]}?")
    missing = [f"  {key}: {path}: {why}" for key, path, kind in _named(config) if (why := _lacks(path, kind))]
    if missing:
        raise ConfigError("\n".join([f"{config_path} names what is not there:", *missing]))
    emit([f"{config_path}: ok"])


def _named(config: Config) -> Iterator[tuple[str, Path, Callable[[int], bool]]]:
    """What has to be there: the key, the path, and the test of its kind."""
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


def _lacks(path: Path, is_kind: Callable[[int], bool]) -> str:
    """What is wrong with it; empty where nothing is."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return error.strerror or str(error)
    return "" if is_kind(mode) else _NOT[is_kind]


_NOT = {stat.S_ISREG: "Not a file", stat.S_ISDIR: "Not a directory", stat.S_ISSOCK: "Not a socket"}
