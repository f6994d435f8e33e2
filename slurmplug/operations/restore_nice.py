"""Takes the nice value back that an ended operation left on a job, so that it is not first in the queue. Pure.

If a run ends before its operation could take the value back, the job keeps it, as Slurm changes nothing of a job that
has ended; and its user may requeue it.
"""

from collections.abc import Iterator, Set
from dataclasses import replace

import numpy as np

from policies.plan import Action, Reason
from policies.snapshot import JobKey
from slurmplug.operations.steps import Transition, issue, new_operation
from slurmplug.operations.values import GOES_FIRST, NO_LIMIT, Observation, OperationOutcome


def begin_all(observation: Observation, busy: Set[JobKey]) -> Iterator[Transition]:
    """An operation that sets the nice value to 0 for each pending job that has that of `GOES_FIRST`.

    The value that the job had before is not known. busy: jobs to leave out, as their own operations take it back.
    """
    jobs = observation.snapshot.jobs
    for row in np.flatnonzero(jobs.pending & (jobs.nice == int(GOES_FIRST["Nice"]))).tolist():
        if jobs.keys[row] not in busy:
            action = Action("migrate", jobs.keys[row], Reason("left first"))
            freed = replace(
                new_operation(action, observation, row, "free", NO_LIMIT),
                outcome=OperationOutcome.DONE,
                result=OperationOutcome.DONE.value,
                pending_cleanup=("free",),
                goal={"Nice": GOES_FIRST["Nice"]},
                undo={"Nice": "0"},
            )
            yield issue(freed, observation)
