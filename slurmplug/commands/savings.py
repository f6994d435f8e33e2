"""`slurmplug savings`: GPU hours that stops saved, or would have saved, and how often a stop would have been wrong."""

import time
from pathlib import Path

import click

from slurmplug.commands.opened import open_ledger
from slurmplug.commands.options import emit, json_option, ledger_options
from slurmplug.console import table, times

BY = ("user", "account", "rule", "week", "job")


@click.command()
@click.option(
    "--by",
    multiple=True,
    type=click.Choice(BY),
    default=("rule",),
    show_default=True,
    help="A line for each; repeated, for each combination.",
)
@click.option("-S", "--starttime", default="", metavar="TIME", help="Stops from then on. Default: all in the ledger.")
@click.option("-E", "--endtime", default="", metavar="TIME", help="Stops until then. Default: now.")
@ledger_options
@json_option
def savings(
    *,
    by: tuple[str, ...],
    starttime: str,
    endtime: str,
    config_path: Path,
    ledger_path: Path | None,
    wants_json: bool,
) -> None:
    """Show the GPU hours that stops saved, and those that they would have saved in the modes observe and advise.

    Of the latter jobs, which went on, also for how many of them the stop would have been wrong. TIME is as for acct.
    """
    from slurmplug.ledger import stop_queries  # noqa: PLC0415  the predictors take a second to load
    from slurmplug.reports import savings as report  # noqa: PLC0415

    now = time.time()
    start = times.parse_time(starttime, now) if starttime else 0.0
    end = times.parse_time(endtime, now) if endtime else times.LATEST
    with open_ledger(config_path, ledger_path) as ledger:
        found = report.savings(stop_queries.decided_stops(ledger, start, end))
    emit([table.to_json(report.as_json(found, by))] if wants_json else report.lines(found, by))
