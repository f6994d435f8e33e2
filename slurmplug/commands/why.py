"""`slurmplug why`: explains a job's rank, and what was done to it."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from slurmplug.commands import curve_plot
from slurmplug.commands.opened import open_reports, warn_of_dead_daemon
from slurmplug.commands.options import emit, json_option, ledger_options, terminal_width
from slurmplug.console import table
from slurmplug.console.table import printable
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import JobId
from slurmplug.reports.acct import FIELDS
from slurmplug.reports.asked_job import NOT_KNOWN, asked_job

ELEMENTS = "jobid%-16,state%-10,gpus,elapsed,waited,iterations,target%18,value,stop"
"""The columns of an array's elements, of which one alone is explained."""


@click.command()
@click.argument("job", metavar="JOBID")
@click.option("--plot", is_flag=True, help="The learning curve, its predicted end, the target and the stop.")
@ledger_options
@json_option
def why(*, job: str, plot: bool, config_path: Path, ledger_path: Path | None, wants_json: bool) -> None:
    """Explain the rank of JOBID (12, or 12_3 of an array), and what was done to it, by which rule.

    Of an array it shows a table, of a component of a heterogeneous job what its leader is told.
    """
    wanted = JobId.parse(job)
    fields = table.parse_fields(ELEMENTS, FIELDS)
    with open_reports(config_path, ledger_path) as reports:
        names = [field.name.lower() for field in fields]
        asked = asked_job(reports, wanted, names, curves=plot, each=wants_json)
        warn_of_dead_daemon(reports)
    if asked is None:
        raise UsageError(f"slurmplug knows no job {job}: {NOT_KNOWN}")
    explained = [*asked.explained, *asked.together]
    if wants_json:
        emit([table.to_json({"jobs": [{"job": each.job, **each.story} for each in explained]})])
        return
    if asked.several:
        emit(table.format_lines(fields, asked.values))
        emit([f"One of them: slurmplug why {asked.ids[0]}"])
        return
    if asked.together:
        emit([f"{job} has not started; if the array has it, it is one of these pending elements:"])
    if asked.component is not None:
        leader = asked.explained[0].job["jobidraw"]
        emit([f"{asked.component} is a component of the heterogeneous job {leader}, with which it shares all this:"])
    for each in explained:
        if plot and "curve" in each.story:
            shown, unicode = printable(str(each.job["jobid"])), curve_plot.shows_unicode()
            emit(curve_plot.lines(shown, each.story["curve"], terminal_width(), unicode=unicode))
        else:
            emit(_lines(each.story["story"]))


def _lines(paragraphs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield f"{paragraph['about']}:"
        yield from (f"  {sentence}" for sentence in paragraph["sentences"])
