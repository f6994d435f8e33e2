"""Whether a policy's plan can be followed and recorded, before any guardrail looks at it."""

import numpy as np

from policies.plan import Action, OtherJob, Plan
from policies.snapshot import Snapshot


def validate_plan(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan unchanged, if it is valid for this snapshot and can be recorded.

    Raises:
        ValueError: a score or a term is not one number per job, an action names a job that is not in the snapshot, or
            gives parameter servers to one that has none, as no job of Slurm's has, or a fact or the memory cannot be
            recorded.
    """
    jobs = set(snapshot.jobs.keys) if plan.actions or plan.notes else frozenset()
    for name, column in {"score": plan.score, **plan.terms}.items():
        if np.shape(column) != (len(snapshot.jobs),) or np.asarray(column).dtype.kind not in "bif":
            raise ValueError(f"{name} is one number per job, not {np.asarray(column).dtype} {np.shape(column)}")
    for job, reason in [*((action.job, action.reason) for action in plan.actions), *plan.notes.items()]:
        if job not in jobs:
            raise ValueError(f"job {job} is not in the snapshot")
        if not all(isinstance(fact, float | int | str | OtherJob) for fact in reason.facts.values()):
            raise ValueError(f"the facts of {reason.rule} are numbers and texts of Python's own types, or OtherJob")
    for action in plan.actions:
        if action.servers:
            _require_servers(snapshot, action)
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "bifuU" for array in plan.memory.values()):
        raise ValueError("memory is arrays of numbers, truth values or texts")
    return plan


def _require_servers(snapshot: Snapshot, action: Action) -> None:
    """Raises ValueError: the job has no parameter servers, or the action does not say how many for each node."""
    servers = snapshot.servers
    if servers is None or not servers.most[snapshot.jobs.keys.index(action.job)]:
        raise ValueError(f"job {action.job} has no parameter servers: only simulated jobs can be given any")
    if len(action.servers) != len(action.nodes):
        raise ValueError(
            f"job {action.job} is given parameter servers on {len(action.servers)} of {len(action.nodes)} nodes"
        )
