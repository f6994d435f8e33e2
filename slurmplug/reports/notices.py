"""Notices that running jobs print on their standard error, where the user of a job should change something."""

from collections.abc import Mapping

import numpy as np

from slurmplug.cycle.record import CycleRecord
from slurmplug.reports import explain
from slurmplug.rules.guardrails import SET_BY_OTHERS
from slurmplug.rules.target_units import UNIT_RULES
from slurmplug.spool.values import RunId


def of_running_jobs(record: CycleRecord) -> Mapping[RunId, str]:
    """By run, what is said to the jobs of a cycle whose target and reports seem to be in different units, but to none
    that are left to Slurm."""
    jobs = record.snapshot.jobs
    protections = [mask for rule, mask in record.verdict.protected_by.items() if rule != SET_BY_OTHERS]
    told = jobs.running & (jobs.unit_mismatch != "") & ~np.logical_or.reduce(protections)
    return {
        RunId(jobs.keys[row].job_id, int(jobs.restarts[row])): f"{explain.sentence(note)}."
        for row in np.flatnonzero(told).tolist()
        if (note := record.plan.notes.get(jobs.keys[row])) is not None and note.rule in UNIT_RULES.values()
    }
