"""A report again every so many seconds, as `squeue --iterate`: until it is interrupted."""

import signal
import time
from collections.abc import Callable

import click

from slurmplug.commands.options import emit
from slurmplug.errors import EndpointError, LedgerError

LONGEST = 86_400
"""Seconds from one report to the next."""

iterate_option = click.option(
    "-i",
    "--iterate",
    "seconds",
    type=click.IntRange(1, LONGEST),
    metavar="SECONDS",
    help="Again every so many seconds, until Ctrl-C.",
)


def repeat(report: Callable[[], None], seconds: int | None) -> None:
    """Make the report once, or again every so many seconds.

    A repetition for which the daemon or its ledger does not answer shows why, and the next one is made nevertheless.
    Ctrl-C ends the command without a message, with the exit status that a shell gives a program which SIGINT ended.
    """
    if seconds is None:
        report()
        return
    try:
        report()
        while True:
            emit([""])
            time.sleep(seconds)
            _shown_or_why_not(report)
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


def _shown_or_why_not(report: Callable[[], None]) -> None:
    try:
        report()
    except (EndpointError, LedgerError) as error:
        click.echo(f"Error: {error}", err=True)
