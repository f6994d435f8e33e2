"""`slurmplug queue`: the pending and running jobs, as slurmplug ranks them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from slurmplug.commands import array_rows, queue_table, squeue_format
from slurmplug.commands.opened import each_cluster, require_known_users, warn_of_dead_daemon
from slurmplug.commands.options import (
    clusters_option,
    emit,
    json_option,
    ledger_options,
    noheader_option,
    terminal_width,
)
from slurmplug.commands.queue_table import Values
from slurmplug.commands.repeating import iterate_option, repeat
from slurmplug.commands.selecting import me_option, of_caller, selecting
from slurmplug.console import table
from slurmplug.ledger.selection import WAITING, Selection
from slurmplug.reports import acct
from slurmplug.reports.interface import Reports
from slurmplug.reports.queue_fields import FIELDS

_JSON = (
    "position", *(field.name.lower() for field in acct.FIELDS), "doing", "chance", "starttime", "startlow", "starthigh",
    "endtime", "endlow", "endhigh", "forecastat",
)  # fmt: skip


@click.command()
@ledger_options
@selecting(
    jobs=("-j", "--jobs", "--job"),
    users=("-u", "--user"),
    accounts=("-A", "--account"),
    partitions=("-p", "--partition"),
    qos=("-q", "--qos"),
    names=("--name",),
    nodes=("-w", "--nodelist"),
    states=("-t", "--states"),
)
@me_option
@click.option("-a", "--all", "everything", is_flag=True, help="Jobs in all partitions, as always.")
@click.option("-r", "--array", "one_by_one", is_flag=True, help="A line for each element of an array that waits.")
@click.option("-l", "--long", "wants_long", is_flag=True, help="squeue's columns of --long.")
@click.option("--start", "wants_start", is_flag=True, help="Pending jobs, the first to start first.")
@click.option("-o", "--format", "letters", default="", metavar="FORMAT", help="squeue's: '%.18i %j %M %R'.")
@click.option("-O", "--Format", "types", default="", metavar="TYPES", help="squeue's, or slurmplug's: JobID:8,Score.")
@click.option("--helpformat", is_flag=True, help="List the types of --Format.")
@click.option("-S", "--sort", default="", metavar="TYPES", help="By these types of both formats: P,-Score.")
@iterate_option
@clusters_option
@noheader_option
@json_option
def queue(
    *,
    config_path: Path,
    ledger_path: Path | None,
    which: Selection,
    me: bool,
    everything: bool,  # noqa: ARG001 no partition is hidden
    one_by_one: bool,
    wants_long: bool,
    wants_start: bool,
    letters: str,
    types: str,
    helpformat: bool,
    sort: str,
    seconds: int | None,
    clusters: tuple[str, ...],
    noheader: bool,
    wants_json: bool,
) -> None:
    """Show running and pending jobs: rank, progress, score, time left, deadline, and what is done or would be done.

    Options and formats are squeue's. On a terminal, columns are shortened or left out to fit its width; otherwise all
    are shown, uncut.
    """
    if helpformat:
        emit(_types())
        return
    users = which.users
    which = replace(which, live=True, users=(*users, *of_caller()) if me else users)
    if wants_start:
        which, sort = replace(which, states=tuple(sorted(WAITING))), sort or "S"
    columns = _columns(letters, types, wants_long=wants_long, wants_start=wants_start)
    keys = squeue_format.parse_sort(sort)
    shown = _JSON if wants_json else [each.field for each in columns] or queue_table.FIELDS_SHOWN
    by_element = ("jobid", array_rows.TASKS) if one_by_one else ()
    names = list(dict.fromkeys((*shown, *(key.field for key in keys), *by_element)))

    def show() -> None:
        found = []
        for cluster, reports in each_cluster(config_path, ledger_path, clusters):
            require_known_users(reports, users)
            values = _values(reports, which, names, keys)
            found.append((cluster, array_rows.one_by_one(values) if one_by_one else values))
        if wants_json:
            emit(list(table.rows_as_json(_JSON, (row for _, values in found for row in _rows(values)))))
        else:
            emit(list(_lines(found, columns, header=not noheader, dated=wants_long or seconds is not None)))

    repeat(show, seconds)


def _values(reports: Reports, which: Selection, names: Sequence[str], keys: Sequence[squeue_format.SortKey]) -> Values:
    found = dict(zip(names, reports.queue(which, names), strict=True))
    warn_of_dead_daemon(reports)
    if not keys:
        return found
    order = squeue_format.sorted_rows(keys, found, len(found[names[0]]))
    return {name: [column[row] for row in order] for name, column in found.items()}


def _columns(letters: str, types: str, *, wants_long: bool, wants_start: bool) -> list[squeue_format.Column]:
    """The columns in squeue's manner; none for slurmplug's own table."""
    if types:
        return squeue_format.parse_long_format(types)
    letters = letters or (squeue_format.START if wants_start else squeue_format.LONG if wants_long else "")
    return squeue_format.parse_format(letters) if letters else []


def _lines(
    found: Sequence[tuple[str, Values]], columns: Sequence[squeue_format.Column], *, header: bool, dated: bool
) -> Iterator[str]:
    if dated and header:
        yield time.strftime("%a %b %d %H:%M:%S %Y")
    for cluster, values in found:
        if cluster and header:
            yield f"CLUSTER: {cluster}"
        if columns:
            yield from squeue_format.lines(columns, values, header=header)
        else:
            yield from queue_table.lines(values, terminal_width(), header=header)


def _rows(values: Values) -> Iterator[tuple[object, ...]]:
    return zip(*(values[name] for name in _JSON), strict=True)


def _types() -> Iterator[str]:
    for each in squeue_format.TYPES:
        yield f"%{each.letter} {each.name:<15} {FIELDS[each.field].about}"
    for name, field in FIELDS.items():
        if name != "terms":
            yield f"   {field.name:<15} {field.about}"
