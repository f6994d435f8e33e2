"""`slurmplug show-config`: the settings in force."""

from pathlib import Path

import click

from slurmplug.commands.options import config_option, configured, emit
from slurmplug.config import render
from slurmplug.config.schema import Config


@click.command("show-config")
@config_option
@click.option("--defaults", is_flag=True, help="Those of a configuration that sets nothing.")
def show_config(*, config_path: Path, defaults: bool) -> None:
    """Print every setting as it is in force, as TOML."""
    emit([render.toml(Config() if defaults else configured(config_path))])
