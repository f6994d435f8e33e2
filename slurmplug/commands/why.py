"""`slurmplug why`: explains a job's rank, and what was done to it."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from slurmplug.commands.options import emit, json_option, ledger_options, open_reports, warn_of_dead_daemon
from slurmplug.console import table
from slurmplug.errors import UsageError
from slurmplug.ledger.selection import JobId
from slurmplug.reports.acct import FIELDS
from slurmplug.reports.service import JobExplanation
from slurmplug.reports.why import Paragraph

MAX_ELEMENTS = 5
"""The most elements of an array that are explained at once."""


@click.command()
@click.argument("job", metavar="JOBID")
@ledger_options
@json_option
def why(*, job: str, config_path: Path, ledger_path: Path | None, wants_json: bool) -> None:
    """Explain the rank of JOBID (12, or 12_3 of an array), and what was done to it, by which rule."""
    wanted = JobId.parse(job)
    with open_reports(config_path, ledger_path) as reports:
        found = reports.explain_job(wanted)
        together = [] if found or wanted.task is None else _waiting(reports.explain_job(JobId(wanted.number)))
        warn_of_dead_daemon(reports)
    if not (found or together):
        raise UsageError(
            f"slurmplug knows no job {job}: it was submitted after the last cycle, never existed, is older than the "
            "retention, or Slurm does not show it to you"
        )
    if wants_json:
        mappings = [{"job": table.as_dict(FIELDS, each.job), **each.story} for each in found or together]
        emit([table.to_json({"jobs": mappings})])
        return
    if together:
        emit([f"{job} has not started; if the array has it, it is one of these pending elements:"])
    for each in (found or together)[:MAX_ELEMENTS]:
        emit(_lines(each.paragraphs))
    if len(found) > MAX_ELEMENTS:
        others = [each.job.id for each in found[MAX_ELEMENTS:]]
        emit([f"{len(others)} more elements: name one of {', '.join(others[:20])}."])


def _waiting(array: Iterable[JobExplanation]) -> list[JobExplanation]:
    """The entry for the elements of an array that are pending as one job."""
    return [each for each in array if each.job.record.facts.array_task < 0]


def _lines(paragraphs: Iterable[Paragraph]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield f"{paragraph.about}:"
        yield from (f"  {sentence}" for sentence in paragraph.sentences)
