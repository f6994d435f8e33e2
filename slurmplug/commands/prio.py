"""`slurmplug prio`: what a job's rank is made of."""

from pathlib import Path

import click

from slurmplug import reports, standings, table
from slurmplug.commands.options import (
    emit,
    jobs_option,
    json_option,
    ledger_options,
    noheader_option,
    opened,
    users_option,
    words,
)


@click.command()
@ledger_options
@jobs_option
@users_option
@click.option("-l", "--long", "wants_long", is_flag=True, help="Also account, partition, QOS and Slurm's priority.")
@noheader_option
@json_option
def prio(
    *,
    config_path: Path,
    ledger_path: Path | None,
    job_ids: str,
    users: str,
    wants_long: bool,
    noheader: bool,
    wants_json: bool,
) -> None:
    """Show each term of the rank of pending jobs, as sprio does of Slurm's priority; with -j of running ones too."""
    chosen = tuple(map(reports.JobId.parse, words(job_ids)))
    which = reports.Selection(jobs=chosen, users=words(users), live=True)
    with opened(config_path, ledger_path) as ledger:
        entries = [
            entry
            for entry in standings.queue(ledger, which)
            if entry.position or (chosen and entry.job.standing and entry.job.standing.rank is not None)
        ]
    if wants_json:
        emit([table.as_json({"jobs": [_mapping(entry) for entry in entries]})])
        return
    fields = table.as_wide_as_needed(standings.prio_fields(entries, long=wants_long), entries)
    emit(line.rstrip() for line in table.lines(fields, entries, header=not noheader, rule=False))


def _mapping(entry: standings.Entry) -> dict[str, object]:
    job, stood = entry.job, entry.job.standing
    facts = job.record.facts
    label = job.record.label
    return {
        "jobid": job.id,
        "position": entry.position,
        "user": facts.user,
        "account": facts.account,
        "partition": facts.partition,
        "qos": facts.qos,
        "label": None if label != label else label,
        "priority": stood.priority if stood else None,
        "rank": stood.rank if stood else None,
        "terms": dict(stood.terms) if stood else {},
    }
