"""A job that is first in the queue by an operation that has ended waits like any other again. Pure.

A run that ends before its operation could take the nice value back keeps it, as Slurm changes nothing of a job that has
ended; and its user may requeue it.
"""

from collections.abc import Iterator, Set
from dataclasses import replace

import numpy as np

from policies.plan import Action, Reason
from policies.snapshot import JobKey
from slurmplug.operations.steps import Transition, issue, new_operation
from slurmplug.operations.values import GOES_FIRST, NO_LIMIT, Observation, OperationOutcome


def begin_all(observation: Observation, busy: Set[JobKey]) -> Iterator[Transition]:
    """An operation for each such job, which takes the value back; not for those in `busy`, of which others do.

    Which nice value the job had before is not known, so it has none then.
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
