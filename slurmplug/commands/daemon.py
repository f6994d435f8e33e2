"""`slurmplug daemon`: serves a cluster, in the foreground."""

import logging
import signal
from pathlib import Path

import click

from slurmplug.commands.options import config_option, existing_config


@click.command()
@config_option
@click.option("-v", "--verbose", is_flag=True, help="Log every cycle.")
def daemon(*, config_path: Path, verbose: bool) -> None:
    """Rank pending jobs and stop jobs at their target, as the configuration allows, until SIGTERM."""
    signal.signal(signal.SIGHUP, lambda *_: None)  # the configuration is read afterwards
    from slurmplug.daemon.daemon import serve  # noqa: PLC0415 the predictors take a second to load

    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format="%(levelname)s %(message)s")
    serve(existing_config(config_path))
