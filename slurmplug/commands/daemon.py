"""`slurmplug daemon`: serve a cluster, in the foreground."""

import logging
from pathlib import Path

import click

from slurmplug.config import CONFIG_VARIABLE, DEFAULT_PATH


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar=CONFIG_VARIABLE,
    default=DEFAULT_PATH,
    show_default=True,
    help="The configuration file.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every cycle.")
def daemon(*, config: Path, verbose: bool) -> None:
    """Rank the queue and stop jobs at their target, as the configuration allows, until SIGTERM."""
    from slurmplug.daemon import Daemon  # noqa: PLC0415 the predictors take a second to load

    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format="%(levelname)s %(message)s")
    Daemon(config).run()
