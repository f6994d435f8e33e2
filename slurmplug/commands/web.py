"""`slurmplug web`: serves the reports as web pages, in the foreground."""

import logging
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from slurmplug.commands.options import config_of, ledger_options
from slurmplug.errors import UsageError


@click.command()
@ledger_options
def web(*, config_path: Path, ledger_path: Path | None) -> None:
    """Serve the queue, jobs and what they saved as web pages on loopback (`web.listen`), until SIGTERM.

    They show to each user what Slurm would, and change nothing. Who is asking is what a reverse proxy on this host
    says (`web.user_header`).
    """
    if find_spec("flask") is None or find_spec("waitress") is None:
        raise UsageError("slurmplug web needs Flask and waitress: pip install 'slurmplug[web]'")
    from slurmplug.endpoint.web import process  # noqa: PLC0415  its libraries may be missing

    config = config_of(config_path, ledger_path)
    if ledger_path is not None:
        config = config.replaced(ledger=config.ledger.replaced(path=ledger_path))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    process.serve(config)
