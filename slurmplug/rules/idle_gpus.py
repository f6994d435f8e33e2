"""Stops of jobs whose GPUs stayed idle after their user was told so, where the site wants them. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from policies.plan import Action, Plan, Reason
from policies.snapshot import JobKey, Snapshot

RULE = "idle GPUs"
HOUR = 3600.0
_ENDS_RUN = frozenset({"resize", "migrate", "preempt"})


class ToldIdle(NamedTuple):
    """A notification that a job's GPUs are idle. at: when it was sent, in seconds since the epoch. announced: the
    seconds after which it says that the job is stopped; None where it does not."""

    at: float
    announced: float | None


def with_stops(
    plan: Plan, snapshot: Snapshot, told: Mapping[JobKey, ToldIdle], after: float | None, *, acts: bool
) -> Plan:
    """The plan with a stop of each such job, in place of what else would end its run.

    A report by which its GPUs are in use ends that for good, as nobody is told twice; so do a requeue, and reports that
    do not come any more or do not say how much the GPUs are in use.

    Args:
        plan: jobs that it stops are stopped for its reasons.
        snapshot: of the same jobs.
        told: what the user of each job was told.
        after: seconds that a job has then run on; None for no such stops.
        acts: whether stops are carried out: then only those that were announced, and not sooner.
    """
    if after is None or not told:
        return plan
    stopped = {action.job for action in plan.actions if action.kind == "stop"}
    rows = [(row, key) for row, key in enumerate(snapshot.jobs.keys) if key in told and key not in stopped]
    stops = [
        stop
        for row, key in rows
        if (told[key].announced is not None or not acts)
        and (stop := _stop(snapshot, row, told[key].at, max(after, told[key].announced or 0.0)))
    ]
    ended = {stop.job for stop in stops}
    others = (each for each in plan.actions if each.job not in ended or each.kind not in _ENDS_RUN)
    return replace(plan, actions=(*others, *stops)) if stops else plan


def picked_up(reason: Reason, decided: float, used_at: float) -> bool:
    """Whether a job's GPUs were in use after its user was told that they are idle, for which it was to be stopped.

    decided: when. used_at: when they were in use last. Both in seconds since the epoch.
    """
    ran_on = reason.facts.get("hours")
    return reason.rule == RULE and isinstance(ran_on, float) and used_at > decided - ran_on * HOUR


def _stop(snapshot: Snapshot, row: int, told: float, after: float) -> Action | None:
    jobs = snapshot.jobs
    ran_on = float(snapshot.elapsed[row] - (told - jobs.started[row]))  # suspensions before it count as after it
    idle = jobs.started[row] < told and jobs.gpus_used[row] < told
    doubtful = jobs.unit_mismatch[row] != ""  # its user was told that it is stopped by no rule
    if not (jobs.running[row] and idle and ran_on >= after) or doubtful:
        return None
    return Action("stop", jobs.keys[row], Reason(RULE, {"cause": "idle", "hours": ran_on / HOUR}))
