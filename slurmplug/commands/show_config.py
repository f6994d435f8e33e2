"""`slurmplug show-config`: the configuration in force."""

from pathlib import Path

import click

from slurmplug.commands.options import config_option, emit, load_config
from slurmplug.config import render
from slurmplug.config.schema import Config


@click.command("show-config")
@config_option
@click.option("--defaults", is_flag=True, help="The defaults, as of an empty configuration.")
def show_config(*, config_path: Path, defaults: bool) -> None:
    """Print every setting in force, as TOML."""
    emit([render.toml(Config() if defaults else load_config(config_path))])
