"""`slurmplug daemon`: serve a cluster, in the foreground."""

import logging
from pathlib import Path

import click

from slurmplug.commands.options import config_option, there


@click.command()
@config_option
@click.option("-v", "--verbose", is_flag=True, help="Log every cycle.")
def daemon(*, config_path: Path, verbose: bool) -> None:
    """Rank the queue and stop jobs at their target, as the configuration allows, until SIGTERM."""
    from slurmplug.daemon.daemon import serve  # noqa: PLC0415 the predictors take a second to load

    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format="%(levelname)s %(message)s")
    serve(there(config_path))
