"""Compares the SiteFactors that slurmplug knows of with those in Slurm."""

import logging
from collections.abc import Iterable, Iterator

from slurmplug.cluster.port import Reading
from slurmplug.intake.job_record import JobRecord
from slurmplug.intake.site_factor import NAN, after_comparison

SHOWN = ("None", "Priority", "Resources")
"""The reasons of pending jobs that sprio lists, unless their priority is pinned."""
log = logging.getLogger(__name__)


def compare_site_factors(records: Iterable[JobRecord], reading: Reading) -> Iterator[JobRecord]:
    """Update the records of pending jobs from the reading's SiteFactors, if it has any; yields those that changed.

    What Slurm does not show (see `ClusterPort.site_factors_in_slurm`) stays as it is, except where it would show it if
    the priority was not pinned: there no SiteFactor has an effect, so that it counts as not known.
    """
    in_slurm = reading.site_factors or {}
    gone = 0
    for record in records if in_slurm else ():
        job_id, before = record.facts.job_id, record.placed
        if record.facts.state != "PENDING":
            continue
        if job_id not in in_slurm:
            if before.value and record.facts.reason in SHOWN:
                record.placed = before._replace(value=NAN)
                yield record
            continue
        after = after_comparison(before, float(in_slurm[job_id]), reading.site.booted)
        if after == before:
            continue
        record.placed = after
        yield record
        if after.by_others and not before.by_others:
            log.warning(
                "job %d: somebody else set its SiteFactor to %.0f (it was %.0f); slurmplug does not rank it",
                job_id, after.value, before.value,
            )  # fmt: skip
        gone += not after.by_others and not before.by_others and after.value != before.value == before.value
    if gone:
        log.warning("the SiteFactors of %d jobs are gone from Slurm; they are written again where needed", gone)
