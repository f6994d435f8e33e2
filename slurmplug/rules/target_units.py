"""Jobs whose target seems to be in another unit than what they report are not stopped, by any rule. Pure."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from policies.plan import Reason
from policies.snapshot import JobKey, Snapshot

UNIT_RULES: Mapping[str, str] = {"percent": "reports in percent", "share": "target in percent"}
"""The rule of the note on a job, by `Jobs.unit_mismatch`."""


def hold_mismatched(snapshot: Snapshot) -> tuple[Snapshot, Mapping[JobKey, Reason]]:
    """The snapshot in which such jobs have no target and do not ask to be stopped, and for each of them the reason.

    86 is not an accuracy of at least 0.92, and 0.86 not one that will never reach 92: whichever of the two the user
    meant, a stop would be wrong.
    """
    jobs = snapshot.jobs
    doubtful = jobs.unit_mismatch != ""
    rows = np.flatnonzero(doubtful & jobs.managed & ~np.isnan(jobs.target)).tolist()
    if not rows:
        return snapshot, {}
    notes = {
        jobs.keys[row]: Reason(
            UNIT_RULES[str(jobs.unit_mismatch[row])],
            {"target": float(abs(jobs.target[row])), "reported": float(abs(jobs.accuracies.row(row)[1][-1]))},
        )
        for row in rows
    }
    held = replace(
        jobs,
        target=np.where(doubtful, np.nan, jobs.target),
        stop=np.where(doubtful, "iterations", jobs.stop),
        downgrade=np.where(doubtful, "", jobs.downgrade),
    )
    return replace(snapshot, jobs=held), notes
