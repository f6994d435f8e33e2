"""`slurmplug acct`: the jobs as sacct shows them, and what slurmplug predicted and decided about each."""

import time
from pathlib import Path

import click

from slurmplug import table, times
from slurmplug.commands.options import (
    emit,
    jobs_option,
    json_option,
    ledger_options,
    noheader_option,
    opened_reports,
    own_uid,
    require_users,
    users_option,
    words,
)
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import STATES, JobId, Selection
from slurmplug.reports.acct import DEFAULT, FIELDS


class _Mistake(click.UsageError):
    exit_code = 1


class _LikeSacct(click.Command):
    """A mistake on the command line ends it with 1, as sacct's do."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _Mistake(error.format_message(), ctx) from error


@click.command(cls=_LikeSacct)
@ledger_options
@jobs_option
@users_option
@click.option("-a", "--allusers", is_flag=True, help="All users' jobs; root sees them anyway.")
@click.option("-A", "--accounts", default="", metavar="NAMES", help="Only these accounts' jobs.")
@click.option("-s", "--state", "states", default="", metavar="STATES", help="Only jobs in these states: CD,TIMEOUT.")
@click.option("-S", "--starttime", default="", metavar="TIME", help="From then on; by default as sacct: midnight.")
@click.option("-E", "--endtime", default="", metavar="TIME", help="Until then; by default as sacct: now.")
@click.option("-o", "--format", "wanted", default="", metavar="FIELDS", help="Fields, with widths: jobname%-30,loss.")
@click.option("-e", "--helpformat", is_flag=True, help="List the fields.")
@click.option("-X", "--allocations", is_flag=True, help="Jobs without their steps, which is all there is.")
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
    allocations: bool,  # noqa: ARG001 nothing else is shown
    noheader: bool,
    parsable: bool,
    parsable2: bool,
    delimiter: str,
    wants_json: bool,
) -> None:
    """Show jobs that wait, run and ended: sacct's options, formats and fields, and slurmplug's.

    TIME is HH:MM[:SS], MMDD[YY], MM/DD[/YY]-HH:MM, YYYY-MM-DD[THH:MM[:SS]], today, midnight, noon, now-2hours or
    seconds since the epoch.
    """
    if helpformat:
        emit(f"{field.name:<15} {field.about}" for field in FIELDS)
        return
    fields = table.chosen(wanted or DEFAULT, FIELDS)
    chosen_states = tuple(map(_state, words(states)))
    start, end = _window(bool(jobs), bool(chosen_states), starttime, endtime)
    mine = not (allusers or users or jobs) and own_uid() != "0"
    which = Selection(
        jobs=jobs,
        users=(own_uid(),) if mine else users,
        accounts=words(accounts),
        states=chosen_states,
        start=start,
        end=end,
        uneligible=bool(jobs),
    )
    with opened_reports(config_path, ledger_path) as reports:
        require_users(reports, users)
        found = reports.jobs(which)
    if wants_json:
        emit([table.as_json({"jobs": [table.as_mapping(FIELDS, job) for job in found]})])
    elif parsable or parsable2:
        emit(table.separated(fields, found, delimiter, header=not noheader, ending=not parsable2))
    else:
        emit(table.lines(fields, found, header=not noheader))


def _state(word: str) -> str:
    name = STATES.get(word.upper(), word.upper())
    if name not in STATES.values():
        raise UsageError(f"unrecognized job state value {word!r}; known: {', '.join(STATES)}")
    return name


def _window(by_job: bool, by_state: bool, starttime: str, endtime: str) -> tuple[float, float]:
    """sacct(1), DEFAULT TIME WINDOW. Times are whole seconds, as sacct's; a moment is the second that begins then."""
    now = float(int(time.time()))
    if starttime:
        start = times.moment(starttime, now)
    else:
        start = 0.0 if by_job else now if by_state else times.moment("midnight", now)
    end = times.moment(endtime, now) if endtime else start if by_state and starttime else now
    if end < start:
        raise UsageError(f"Start time ({times.shown(start)}) requested is after end time ({times.shown(end)})")
    return start, max(end, start + 1.0)
