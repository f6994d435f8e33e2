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
    if missing := config_check.missing_paths(config):
        lines = [f"{config_path} names paths that are missing:", *(f"  {each}" for each in missing)]
        raise ConfigError("\n".join(lines))
    emit([f"{config_path}: ok"])
