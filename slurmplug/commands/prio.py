"""`slurmplug prio`: the terms that add up to each pending job's score, beside those of Slurm's priority."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from slurmplug.commands import prio_table
from slurmplug.commands.opened import (
    each_cluster,
    require_known_users,
    stderr_is_terminal,
    user_client,
    warn_of_dead_daemon,
)
from slurmplug.commands.options import (
    clusters_option,
    emit,
    json_option,
    ledger_options,
    noheader_option,
    terminal_width,
)
from slurmplug.commands.repeating import iterate_option, repeat
from slurmplug.commands.selecting import me_option, of_caller, selecting
from slurmplug.console import table
from slurmplug.errors import ReadFailed
from slurmplug.ledger.selection import WAITING, Selection


@click.command()
@ledger_options
@click.option("-l", "--long", "wants_long", is_flag=True, help="Also account, partition, QOS and SiteFactor.")
@selecting(
    jobs=("-j", "--jobs"),
    users=("-u", "--user"),
    accounts=("-A", "--account"),
    partitions=("-p", "--partition"),
    qos=("-q", "--qos"),
    names=("--name",),
)
@me_option
@iterate_option
@clusters_option
@noheader_option
@json_option
def prio(
    *,
    config_path: Path,
    ledger_path: Path | None,
    wants_long: bool,
    which: Selection,
    me: bool,
    seconds: int | None,
    clusters: tuple[str, ...],
    noheader: bool,
    wants_json: bool,
) -> None:
    """Show each pending job in its place, with the terms of its score and those of Slurm's priority, as sprio has them.

    Jobs without directives have no rank, and keep the places that Slurm's priority gives them. On a terminal that is
    too narrow, terms that are 0 for every job are left out, then those of Slurm's priority, and that priority.
    """
    users = which.users
    which = replace(which, live=True, states=tuple(sorted(WAITING)), users=(*users, *of_caller()) if me else users)

    def show() -> None:
        rows = []
        for cluster, reports in each_cluster(config_path, ledger_path, clusters):
            require_known_users(reports, users)
            names = prio_table.FIELDS_SHOWN
            jobs = prio_table.in_place(dict(zip(names, reports.queue(which, names), strict=True)))
            warn_of_dead_daemon(reports)
            slurms = _slurms(config_path, ledger_path, cluster)
            if wants_json:
                rows += prio_table.as_json(jobs, slurms)
                continue
            if cluster and not noheader:
                emit([f"CLUSTER: {cluster}"])
            emit(prio_table.lines(jobs, slurms, terminal_width(), header=not noheader, long=wants_long))
        if wants_json:
            emit(list(table.rows_as_json(tuple(rows[0]) if rows else (), (tuple(each.values()) for each in rows))))

    repeat(show, seconds)


def _slurms(config_path: Path, ledger_path: Path | None, cluster: str) -> Mapping[int, Mapping[str, float]]:
    """The terms of Slurm's priority by job id, as sprio shows them this user; on a terminal, why it does not."""
    try:
        return user_client(config_path, ledger_path, cluster).priority_terms()
    except ReadFailed as error:
        if stderr_is_terminal():
            click.echo(f"The terms of Slurm's priority are not known: {error}", err=True)
        return {}
