"""`slurmplug why`: the story of one job."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from slurmplug.commands.options import answering, emit, json_option, ledger_options, tell_of_a_dead_daemon
from slurmplug.console import table
from slurmplug.errors import UsageError
from slurmplug.reports import acct as job_fields
from slurmplug.reports.job_view import JobId
from slurmplug.reports.service import Told
from slurmplug.reports.why import Paragraph

MOST = 5
"""Elements of an array whose stories are told when the array is named."""


@click.command()
@click.argument("job", metavar="JOBID")
@ledger_options
@json_option
def why(*, job: str, config_path: Path, ledger_path: Path | None, wants_json: bool) -> None:
    """Tell why JOBID (12, or 12_3 of an array) stands where it stands, and what was done to it by which rule."""
    wanted = JobId.parse(job)
    with answering(config_path, ledger_path) as answers:
        told = answers.story(wanted)
        together = [] if told or wanted.task is None else _waiting(answers.story(JobId(wanted.number)))
        tell_of_a_dead_daemon(answers)
    if not (told or together):
        raise UsageError(
            f"slurmplug knows no job {job}: it came after the last cycle, never was, is older than the retention, or "
            "Slurm does not show it to you"
        )
    if wants_json:
        mappings = [{"job": table.as_mapping(job_fields.FIELDS, each.job), **each.story} for each in told or together]
        emit([table.as_json({"jobs": mappings})])
        return
    if together:
        emit([f"{job} has not started; if it is one of its array, it is one of these that wait together:"])
    for each in (told or together)[:MOST]:
        emit(_lines(each.paragraphs))
    if len(told) > MOST:
        emit([f"{len(told) - MOST} more elements: name one of {', '.join(e.job.id for e in told[MOST:][:20])}."])


def _waiting(array: Iterable[Told]) -> list[Told]:
    """What stands for the elements that wait together."""
    return [each for each in array if each.job.record.facts.array_task < 0]


def _lines(paragraphs: Iterable[Paragraph]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield f"{paragraph.about}:"
        yield from (f"  {sentence}" for sentence in paragraph.sentences)
