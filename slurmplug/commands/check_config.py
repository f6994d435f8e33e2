"""`slurmplug check-config`: checks the configuration, and that the paths it names exist."""

from pathlib import Path

import click

from slurmplug.commands.options import config_option, emit, load_config
from slurmplug.doctor import config_check
from slurmplug.errors import ConfigError


@click.command("check-config")
@config_option
def check_config(*, config_path: Path) -> None:
    """Check the configuration, the policy's settings and the paths that it names: "ok", or each mistake."""
    config = load_config(config_path)
    config_check.check_policy(config)
    missing, others = config_check.missing_paths(config), config_check.not_there(config)
    if missing or others:
        lines = [f"{config_path} names paths that are missing:"] if missing else [f"{config_path}:"]
        raise ConfigError("\n".join([*lines, *(f"  {each}" for each in (*missing, *others))]))
    emit([f"{config_path}: ok"])
