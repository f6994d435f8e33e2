"""`slurmplug acct`: jobs as sacct shows them, with slurmplug's predictions and decisions."""

import time
from pathlib import Path

import click

from slurmplug.commands.options import (
    emit,
    jobs_option,
    json_option,
    ledger_options,
    noheader_option,
    open_reports,
    own_uid,
    require_known_users,
    split_list,
    users_option,
)
from slurmplug.console import table, times
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import STATE_CODES, JobId, Selection
from slurmplug.reports.acct import DEFAULT, FIELDS


class _Mistake(click.UsageError):
    exit_code = 1


class _LikeSacct(click.Command):
    """Exits with 1 on a mistake on the command line, as sacct does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _Mistake(error.format_message(), ctx) from error


@click.command(cls=_LikeSacct)
@ledger_options
@jobs_option
@users_option
@click.option("-a", "--allusers", is_flag=True, help="All users' jobs; the default for root.")
@click.option("-A", "--accounts", default="", metavar="NAMES", help="Only these accounts' jobs.")
@click.option("-s", "--state", "states", default="", metavar="STATES", help="Only jobs in these states: CD,TIMEOUT.")
@click.option("-S", "--starttime", default="", metavar="TIME", help="Jobs from then on; default as sacct's: midnight.")
@click.option("-E", "--endtime", default="", metavar="TIME", help="Jobs until then; default as sacct's: now.")
@click.option("-o", "--format", "wanted", default="", metavar="FIELDS", help="Fields, with widths: jobname%-30,loss.")
@click.option("-e", "--helpformat", is_flag=True, help="List the fields.")
@click.option("-X", "--allocations", is_flag=True, help="Jobs without steps, as always.")
@noheader_option
@click.option("-p", "--parsable", is_flag=True, help="Fields with a delimiter after each.")
@click.option("-P", "--parsable2", is_flag=True, help="Fields with a delimiter between them.")
@click.option("--delimiter", default="|", show_default=True, help="For --parsable and --parsable2.")
@json_option
def acct(
    *,
    config_path: Path,
    ledger_path: Path | None,
    jobs: tuple[JobId, ...],
    users: tuple[str, ...],
    allusers: bool,
    accounts: str,
    states: str,
    starttime: str,
    endtime: str,
    wanted: str,
    helpformat: bool,
    allocations: bool,  # noqa: ARG001 steps are never shown
    noheader: bool,
    parsable: bool,
    parsable2: bool,
    delimiter: str,
    wants_json: bool,
) -> None:
    """Show pending, running and ended jobs, with sacct's options, formats and fields, and slurmplug's own.

    TIME is HH:MM[:SS], MMDD[YY], MM/DD[/YY]-HH:MM, YYYY-MM-DD[THH:MM[:SS]], today, midnight, noon, now-2hours or
    seconds since the epoch.
    """
    if helpformat:
        emit(f"{field.name:<15} {field.about}" for field in FIELDS)
        return
    fields = table.parse_fields(wanted or DEFAULT, FIELDS)
    chosen_states = tuple(map(_state, split_list(states)))
    start, end = _window(bool(jobs), bool(chosen_states), starttime, endtime)
    mine = not (allusers or users or jobs) and own_uid() != "0"
    which = Selection(
        jobs=jobs,
        users=(own_uid(),) if mine else users,
        accounts=split_list(accounts),
        states=chosen_states,
        start=start,
        end=end,
        uneligible=bool(jobs),
    )
    with open_reports(config_path, ledger_path) as reports:
        require_known_users(reports, users)
        found = reports.jobs(which)
    if wants_json:
        emit([table.to_json({"jobs": [table.as_dict(FIELDS, job) for job in found]})])
    elif parsable or parsable2:
        emit(table.delimited_lines(fields, found, delimiter, header=not noheader, ending=not parsable2))
    else:
        emit(table.format_lines(fields, found, header=not noheader))


def _state(word: str) -> str:
    name = STATE_CODES.get(word.upper(), word.upper())
    if name not in STATE_CODES.values():
        raise UsageError(f"unrecognized job state value {word!r}; known: {', '.join(STATE_CODES)}")
    return name


def _window(by_job: bool, by_state: bool, starttime: str, endtime: str) -> tuple[float, float]:
    """The start and end, as sacct(1) has them (DEFAULT TIME WINDOW): whole seconds, at least one apart."""
    now = float(int(time.time()))
    if starttime:
        start = times.parse_time(starttime, now)
    else:
        start = 0.0 if by_job else now if by_state else times.parse_time("midnight", now)
    end = times.parse_time(endtime, now) if endtime else start if by_state and starttime else now
    if end < start:
        raise UsageError(
            f"Start time ({times.format_time(start)}) requested is after end time ({times.format_time(end)})"
        )
    return start, max(end, start + 1.0)
