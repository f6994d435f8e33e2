"""`slurmplug why`: explains a job's rank, and what was done to it."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from slurmplug.commands import curve_plot
from slurmplug.commands.opened import open_reports, warn_of_dead_daemon
from slurmplug.commands.options import emit, json_option, ledger_options, terminal_width
from slurmplug.console import table
from slurmplug.console.table import Field, printable
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import JobId
from slurmplug.reports.acct import FIELDS
from slurmplug.reports.asked_job import NOT_KNOWN, AskedJob, asked_job
from slurmplug.reports.interface import JobExplanation, Reports

ELEMENTS = "jobid%-16,state%-10,gpus,elapsed,waited,iterations,target%18,value,stop"
"""The columns of an array's elements, of which one alone is explained."""


@click.command()
@click.argument("job", metavar="JOBID")
@click.option("--plot", is_flag=True, help="The learning curve, its predicted end, the target and the stop.")
@ledger_options
@json_option
def why(*, job: str, plot: bool, config_path: Path, ledger_path: Path | None, wants_json: bool) -> None:
    """Explain the rank of JOBID (12, or 12_3 of an array), and what was done to it, by which rule.

    Of an array it shows a table, and how values and run times are distributed; of a component of a heterogeneous job
    what its leader is told.
    """
    with open_reports(config_path, ledger_path) as reports:
        warn_of_dead_daemon(reports)
        asked = ask(reports, job, curves=plot, each=wants_json)
    if wants_json:
        explained = [*asked.explained, *asked.together]
        emit([table.to_json({"jobs": [{"job": each.job, **each.story} for each in explained]})])
        return
    unicode = curve_plot.shows_unicode()

    def shown(each: JobExplanation) -> Iterator[str]:
        plotted = plot and "curve" in each.story
        return curve(each, terminal_width(), unicode=unicode) if plotted else story(each)

    emit(list(lines(job, asked, shown)))


def ask(reports: Reports, job: str, *, curves: bool, each: bool = False) -> AskedJob:
    """What this id stands for. Raises UsageError where no such job is known."""
    asked = asked_job(reports, JobId.parse(job), _names(), curves=curves, each=each)
    if asked is None:
        raise UsageError(f"slurmplug knows no job {job}: {NOT_KNOWN}")
    return asked


def lines(job: str, asked: AskedJob, shown: Callable[[JobExplanation], Iterable[str]]) -> Iterator[str]:
    """What is shown of a job; `shown`: of each that is explained."""
    if asked.several:
        from slurmplug.reports import array_summary  # noqa: PLC0415  one job needs no NumPy

        yield from table.format_lines(_elements(), asked.values)
        yield from array_summary.lines(asked.ids, asked.values, _names(), unicode=curve_plot.shows_unicode())
        yield f"One of them: slurmplug why {asked.ids[0]}"
        return
    if asked.together:
        yield f"{job} has not started; if the array has it, it is one of these pending elements:"
    if asked.component is not None:
        leader = asked.explained[0].job["jobidraw"]
        yield f"{asked.component} is a component of the heterogeneous job {leader}, with which it shares all this:"
    for each in (*asked.explained, *asked.together):
        yield from shown(each)


def story(explained: JobExplanation) -> Iterator[str]:
    """A job's paragraphs."""
    for paragraph in explained.story["story"]:
        yield f"{paragraph['about']}:"
        yield from (f"  {sentence}" for sentence in paragraph["sentences"])


def curve(explained: JobExplanation, width: int | None, *, unicode: bool) -> Iterator[str]:
    """A job's learning curve, which was asked for. width: the terminal's columns, None without one."""
    job = printable(str(explained.job["jobid"]))
    return curve_plot.lines(job, explained.story["curve"], width, unicode=unicode)


def _elements() -> list[Field[Any]]:
    return table.parse_fields(ELEMENTS, FIELDS)


def _names() -> list[str]:
    return [field.name.lower() for field in _elements()]
