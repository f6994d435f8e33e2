"""What explains a job, from the ledger: the paragraphs of `slurmplug why`, and the rows that they are made from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurmplug.config.schema import Config
from slurmplug.ledger import queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.queries import LastCycle
from slurmplug.ledger.selection import Selection
from slurmplug.reports import job_view, live_order, not_done, why
from slurmplug.reports.job_view import Job
from slurmplug.reports.live_order import Placed
from slurmplug.reports.viewer import Viewer, named_in, queue_place, seen_by, shown_audit, shown_error

MOST_CURVES = 10
"""jobs of which the learning curve is shown"""


def explained(
    ledger: LedgerFile, which: Selection, viewer: Viewer, config: Config, *, curves: bool = False
) -> Iterator[tuple[Job, Mapping[str, Any]]]:
    """Each of these jobs with its paragraphs as `story`, and the rows by table; with `curves` the learning curve of the
    first MOST_CURVES as `curve`."""
    found = job_view.jobs(ledger, which, others=viewer.sees_all, whole=True)
    order = [placed for placed in live_order.live_order(ledger) if placed.waits] if found else []
    cycle = queries.last_cycle(ledger)
    if cycle is not None:
        cycle = cycle._replace(error=shown_error(cycle.error, viewer))
    for number, job in enumerate(found):
        story = _story(ledger, job, order, cycle, viewer, no_sizes=not_done.no_sizes(config))
        yield job, {**story, "curve": _curve(ledger, job, config)} if curves and number < MOST_CURVES else story


def _curve(ledger: LedgerFile, job: Job, config: Config) -> Mapping[str, Any]:
    from slurmplug.reports.curve import curve  # noqa: PLC0415  the predictors take a second to load

    return curve(ledger, job, config)


def _story(
    ledger: LedgerFile, job: Job, order: Sequence[Placed], cycle: LastCycle | None, viewer: Viewer, *, no_sizes: str
) -> Mapping[str, Any]:
    audit = queries.job_audit(ledger, job.row, job.record)
    sees = seen_by(viewer, named_in(audit), lambda keys: queries.owners(ledger, keys))
    place = queue_place(job, order, viewer, lambda rows: job_view.jobs_in_rows(ledger, rows))
    paragraphs = why.explain_job(job, place, cycle, audit, sees, no_sizes=no_sizes)
    story = [{"about": each.about, "sentences": list(each.sentences)} for each in paragraphs]
    return {"story": story, **shown_audit(audit, sees)}
