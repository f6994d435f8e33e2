"""What the ledger keeps of a decision."""

from typing import Any

import numpy as np

from policies.plan import Action, Plan, Reason
from policies.snapshot import JobKey
from slurmplug.ledger import codec
from slurmplug.ledger.decided import as_kept, first_difference

JOB = JobKey("here", 7, 1)


def kept(*servers: int) -> Any:
    action = Action("place", JOB, Reason("its turn"), 2, ("n1",), (2,), servers=servers)
    return codec.loads(codec.dumps(as_kept(Plan(np.zeros(1), actions=(action,)))))


def test_an_action_without_parameter_servers_is_kept_as_before_there_were_any() -> None:
    (action,) = kept()["actions"]
    assert set(action) == {"kind", "job", "reason", "gpus", "nodes", "shares", "begin", "time_limit"}
    assert first_difference(kept(), kept(), [JOB]) is None


def test_parameter_servers_are_part_of_a_decision() -> None:
    difference = first_difference(kept(2), kept(3), [JOB])
    assert difference is not None
    assert (difference.job, difference.field) == (JOB, "servers of the action place")
