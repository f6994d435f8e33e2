"""`slurmplug usage`: GPU hours, their charge and their urgency by month, account and user."""

import time
from pathlib import Path

import click

from slurmplug.commands.opened import open_ledger
from slurmplug.commands.options import config_of, emit, json_option, ledger_options, noheader_option
from slurmplug.commands.selecting import selecting
from slurmplug.console import table, times
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import Selection


@click.command()
@selecting(users=("-u", "--user"), accounts=("-A", "--account"))
@click.option("-S", "--start", default="", metavar="TIME", help="Usage from then on. Default: all in the ledger.")
@click.option("-E", "--end", default="", metavar="TIME", help="Usage until then. Default: now.")
@ledger_options
@noheader_option
@click.option("-P", "--parsable2", is_flag=True, help="Fields with | between them.")
@json_option
def usage(
    *,
    which: Selection,
    start: str,
    end: str,
    config_path: Path,
    ledger_path: Path | None,
    noheader: bool,
    parsable2: bool,
    wants_json: bool,
) -> None:
    """Show GPU hours, what they cost at the rates of the configuration (charging), and how urgent they were said to be.

    By month, account and user, as sreport's AccountUtilizationByUser: first of each account, then of each of its
    users. TIME is as for acct.
    """
    from slurmplug.ledger.usage_queries import jobs_that_ran  # noqa: PLC0415
    from slurmplug.reports import usage as report  # noqa: PLC0415  takes long to load

    now = time.time()
    since = times.parse_time(start, now) if start else 0.0
    until = times.parse_time(end, now) if end else times.LATEST
    if until < since:
        raise UsageError(f"the start ({times.format_time(since)}) is after the end ({times.format_time(until)})")
    with open_ledger(config_path, ledger_path) as ledger:
        ran = jobs_that_ran(ledger, which, since, until)
    found = report.used(ran, config_of(config_path, ledger_path), since, until)
    if wants_json:
        emit([table.to_json(report.as_json(found))])
    else:
        shown = report.delimited if parsable2 else report.lines
        emit(shown(found, header=not noheader))
