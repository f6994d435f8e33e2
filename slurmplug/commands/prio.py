"""`slurmplug prio`: the terms that add up to each pending job's score."""

from collections.abc import Sequence

import click

from slurmplug.commands.options import emit, queue_options, terminal_width
from slurmplug.console import table
from slurmplug.reports.queue import QueueEntry, prio_fields, term_names


@click.command()
@click.option("-l", "--long", "wants_long", is_flag=True, help="Also account, partition, QOS and Slurm's priority.")
@queue_options
def prio(*, entries: Sequence[QueueEntry], wants_long: bool, noheader: bool, wants_json: bool) -> None:
    """Show the rank of pending jobs and each term of their score, as sprio does of Slurm's priority.

    On a terminal that is too narrow, terms that are 0 for every job are left out.
    """
    pending = [entry for entry in entries if entry.rank]
    if wants_json:
        emit([table.to_json({"jobs": [_mapping(entry) for entry in pending]})])
        return
    fields = table.fit_widths(prio_fields(pending, long=wants_long), pending)
    width, terms = terminal_width(), term_names(pending)
    if width is not None and sum(field.width + 1 for field in fields) > width + 1:
        fields = [field for field in fields if field.name not in terms or any(map(field.value, pending))]
    emit(line.rstrip() for line in table.format_lines(fields, pending, header=not noheader, rule=False))


def _mapping(entry: QueueEntry) -> dict[str, object]:
    job, ranking = entry.job, entry.job.ranking
    facts = job.record.facts
    site_factor = job.record.site_factor
    return {
        "jobid": job.id,
        "position": entry.rank,
        "user": facts.user,
        "account": facts.account,
        "partition": facts.partition,
        "qos": facts.qos,
        "label": None if site_factor != site_factor else site_factor,
        "priority": ranking.priority if ranking else None,
        "rank": ranking.score if ranking else None,
        "terms": dict(ranking.terms) if ranking else {},
    }
