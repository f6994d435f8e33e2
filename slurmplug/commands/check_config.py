"""`slurmplug check-config`: is the configuration valid?"""

from pathlib import Path

import click

from slurmplug import registry
from slurmplug.commands.options import config_option, configured, emit


@click.command("check-config")
@config_option
def check_config(*, config_path: Path) -> None:
    """Check the configuration, the policy's settings in it too: "ok", or each mistake."""
    registry.policy(configured(config_path))
    emit([f"{config_path}: ok"])
