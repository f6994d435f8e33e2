"""`slurmplug why`: the story of one job."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from slurmplug import job_fields, reports, story, table
from slurmplug.commands.options import emit, json_option, ledger_options, opened
from slurmplug.deeds import Deeds
from slurmplug.errors import UsageError
from slurmplug.story import Paragraph

MOST = 5
"""Elements of an array whose stories are told when the array is named."""


@click.command()
@click.argument("job", metavar="JOBID")
@ledger_options
@json_option
def why(*, job: str, config_path: Path, ledger_path: Path | None, wants_json: bool) -> None:
    """Tell why JOBID (12, or 12_3 of an array) stands where it stands, and what was done to it by which rule."""
    wanted = reports.JobId.parse(job)
    with opened(config_path, ledger_path) as ledger:
        found = reports.jobs(ledger, reports.Selection(jobs=(wanted,)))
        if not found:
            raise UsageError(
                f"slurmplug knows no job {job}: it came after the last cycle, never was, or is older than the retention"
            )
        queue = reports.jobs(ledger, reports.Selection(live=True))
        cycle = reports.last_cycle(ledger)
        deeds = [Deeds.of(ledger, each) for each in found]
    if wants_json:
        told = [
            {
                "job": table.as_mapping(job_fields.FIELDS, each),
                **story.as_mapping(story.tell(each, queue, cycle, done), done),
            }
            for each, done in zip(found, deeds, strict=True)
        ]
        emit([table.as_json({"jobs": told})])
        return
    for each, done in list(zip(found, deeds, strict=True))[:MOST]:
        emit(_lines(story.tell(each, queue, cycle, done)))
    if len(found) > MOST:
        emit([f"{len(found) - MOST} more elements: name one of {', '.join(each.id for each in found[MOST:][:20])}."])


def _lines(paragraphs: Iterable[Paragraph]) -> Iterator[str]:
    for paragraph in paragraphs:
        yield f"{paragraph.about}:"
        yield from (f"  {sentence}" for sentence in paragraph.sentences)
