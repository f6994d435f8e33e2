"""Compares the SiteFactors that slurmplug knows of with those in Slurm."""

import logging
from collections.abc import Iterable, Iterator

from slurmplug.cluster.port import Reading
from slurmplug.intake.job_record import JobRecord
from slurmplug.intake.site_factor import after_comparison

log = logging.getLogger(__name__)


def compare_site_factors(records: Iterable[JobRecord], reading: Reading) -> Iterator[JobRecord]:
    """Update the records of pending jobs from the reading's SiteFactors, if it has any; yields those that changed.

    What Slurm does not show (see `ClusterPort.site_factors_in_slurm`) stays as it is.
    """
    in_slurm = reading.site_factors or {}
    gone = 0
    for record in records if in_slurm else ():
        job_id, before = record.facts.job_id, record.placed
        if job_id not in in_slurm or record.facts.state != "PENDING":
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
