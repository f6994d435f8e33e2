"""`slurmplug acct`: jobs as sacct shows them, with slurmplug's predictions and decisions."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from slurmplug.commands import sacct_rows
from slurmplug.commands.opened import each_cluster, require_known_users, user_client
from slurmplug.commands.options import (
    clusters_option,
    emit,
    json_option,
    ledger_options,
    noheader_option,
    own_uid,
)
from slurmplug.commands.selecting import of_caller, selecting
from slurmplug.console import table, times
from slurmplug.console.table import Field
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import Selection
from slurmplug.reports.acct import ALL_FIELDS, DEFAULT, FIELDS


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
@selecting(
    jobs=("-j", "--jobs"),
    users=("-u", "--user", "--uid"),
    accounts=("-A", "--accounts", "--account"),
    partitions=("-r", "--partition"),
    qos=("-q", "--qos"),
    names=("--name",),
    nodes=("-N", "--nodelist"),
    states=("-s", "--state"),
)
@click.option("-a", "--allusers", is_flag=True, help="All users' jobs; the default for root.")
@click.option("-k", "--timelimit-min", "least", default="", metavar="TIME", help="Only jobs with this time limit,")
@click.option("-K", "--timelimit-max", "most", default="", metavar="TIME", help="or one from that to this.")
@click.option("-S", "--starttime", default="", metavar="TIME", help="Jobs from then on; default as sacct's: midnight.")
@click.option("-E", "--endtime", default="", metavar="TIME", help="Jobs until then; default as sacct's: now.")
@click.option("-o", "--format", "wanted", default="", metavar="FIELDS", help="Fields, with widths: jobname%-30,loss.")
@click.option("-e", "--helpformat", is_flag=True, help="List the fields.")
@click.option("-D", "--duplicates", is_flag=True, help="Also earlier runs of requeued jobs, from sacct.")
@click.option("--steps", is_flag=True, help="Also the steps of each job, from sacct.")
@click.option("-X", "--allocations", is_flag=True, help="No steps, as always without --steps.")
@click.option("--units", type=click.Choice(list("KMGTP")), help="The unit of memory; MiB without one.")
@clusters_option
@noheader_option
@click.option("-p", "--parsable", is_flag=True, help="Fields with a delimiter after each.")
@click.option("-P", "--parsable2", is_flag=True, help="Fields with a delimiter between them.")
@click.option("--delimiter", default="|", show_default=True, help="For --parsable and --parsable2.")
@json_option
def acct(
    *,
    config_path: Path,
    ledger_path: Path | None,
    which: Selection,
    allusers: bool,
    least: str,
    most: str,
    starttime: str,
    endtime: str,
    wanted: str,
    helpformat: bool,
    duplicates: bool,
    steps: bool,
    allocations: bool,
    units: str | None,
    clusters: tuple[str, ...],
    noheader: bool,
    parsable: bool,
    parsable2: bool,
    delimiter: str,
    wants_json: bool,
) -> None:
    """Show pending, running and ended jobs, with sacct's options, formats and fields, and slurmplug's own.

    TIME is HH:MM[:SS], MMDD[YY], MM/DD[/YY]-HH:MM, YYYY-MM-DD[THH:MM[:SS]], today, midnight, noon, now-2hours or
    seconds since the epoch; of a time limit, minutes or [days-]hours:minutes:seconds.
    """
    if helpformat:
        emit(f"{field.name:<15} {field.about}" for field in ALL_FIELDS)
        return
    fields: Sequence[Field[Any]] = table.parse_fields(wanted or DEFAULT, ALL_FIELDS, FIELDS)
    if wants_json and not wanted:
        fields = FIELDS
    start, end = _window(bool(which.jobs), bool(which.states), starttime, endtime)
    which = replace(which, start=start, end=end, uneligible=bool(which.jobs), limits=_limits(least, most))
    users = which.users
    if not (allusers or users or which.jobs) and own_uid() != "0":
        which = replace(which, users=of_caller())
    names = [field.name.lower() for field in fields]
    extra = sacct_rows.Extra(duplicates=duplicates, steps=steps and not allocations)
    found: list[list[Any]] = [[] for _ in names]
    for cluster, reports in each_cluster(config_path, ledger_path, clusters):
        require_known_users(reports, users)
        slurm = partial(user_client, config_path, ledger_path, cluster)
        more = sacct_rows.rows(reports, which, names, extra, slurm)
        found = [[*before, *after] for before, after in zip(found, more, strict=True)]
    if units:
        fields, found = _in_units(fields, found, units)
    if wants_json:
        emit(list(table.rows_as_json(names, zip(*found, strict=True))))
    elif parsable or parsable2:
        emit(table.delimited_lines(fields, found, delimiter, header=not noheader, ending=not parsable2))
    else:
        emit(table.format_lines(fields, found, header=not noheader))


def _in_units(
    fields: Sequence[Field[Any]], found: Sequence[Sequence[Any]], unit: str
) -> tuple[list[Field[Any]], list[list[Any]]]:
    """Sizes of memory as texts."""
    sizes = [field.kind == "memory" for field in fields]
    shown = [replace(field, kind="text") if size else field for field, size in zip(fields, sizes, strict=True)]
    texts = [
        [None if value is None else table.in_unit(value, unit) for value in column] if size else list(column)
        for column, size in zip(found, sizes, strict=True)
    ]
    return shown, texts


def _limits(least: str, most: str) -> tuple[float, float] | None:
    """As sacct's: jobs of one limit, or of a range; the most alone means nothing."""
    if not least:
        return None
    low = times.parse_limit(least)
    return low, times.parse_limit(most) if most else low


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
