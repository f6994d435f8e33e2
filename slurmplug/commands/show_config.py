"""`slurmplug show-config`: the configuration in force, and what of it sbatch's check is to know."""

from pathlib import Path

import click

from slurmplug.commands.options import config_option, emit, load_config
from slurmplug.config import render, submission
from slurmplug.config.schema import Config


@click.command("show-config")
@config_option
@click.option("--defaults", is_flag=True, help="The defaults, as of an empty configuration.")
@click.option(
    "--submission", "for_submission", is_flag=True, help="What slurmplug.lua reads of it, in Lua: site.lua beside it."
)
def show_config(*, config_path: Path, defaults: bool, for_submission: bool) -> None:
    """Print every setting in force, as TOML."""
    config = Config() if defaults else load_config(config_path)
    emit([submission.site_lua(config) if for_submission else render.toml(config)])
