"""Time limits as a resource: which sizes a job may have within its own, and what is done before it ends a run. Pure.

A job that gets fewer GPUs needs more time. Its limit is raised where the site allows that, as far as the limits of its
partition, QOS and association go; or it is requeued before its limit, once it has saved, and goes on in another run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from policies.plan import Action, Plan, Reason
from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.forecast import Forecasts, Need
from slurmplug.cluster.limits import Limits
from slurmplug.config.schema import Guardrails
from slurmplug.rules.grace import grace_seconds

NEEDS: frozenset[Need] = frozenset({"remaining", "speed"})
"""The forecasts by which the rule decides."""
LEVEL = 0.9
"""The quantile of the run time that has to be within the limit."""
PACE_MARGIN = 1.9
"""What a job by its own pace may need more: 90% of a lognormal whose logarithm has a standard deviation of 0.5."""
FROM_THE_LIMIT = "time limit"
"""The source of a forecast by `predictors.runtime` for a job of which only the time limit is known."""
OUTLIVED = "outlived"
"""The source of one, also by the time limit, for a job that has run for longer than was forecast."""
HOUR = 3_600.0
_ENDS_RUN = frozenset({"resize", "migrate", "preempt"})


@dataclass(frozen=True)
class BeforeLimit:
    """When a run is ended before its time limit does it: so many seconds before the job's grace period.

    ahead: 0 for never. grace: the least such period of jobs that declared none. acts: whether that is done, and not
    only noted.
    """

    ahead: float = 0.0
    grace: float = 0.0
    acts: bool = True

    def seconds(self, snapshot: Snapshot, row: int) -> float:
        """How long before its limit this job is asked to save."""
        return self.ahead + grace_seconds(snapshot, row, self.grace)

    def rows(self, snapshot: Snapshot) -> list[int]:
        """The running jobs that could go on in another run, and whose present one is about to reach its limit."""
        jobs = snapshot.jobs
        if not self.ahead:
            return []
        left = jobs.time_limit - snapshot.elapsed
        rows = np.flatnonzero(jobs.running & jobs.restartable & jobs.managed & ~np.isnan(left))
        return [row for row in rows.tolist() if left[row] <= self.seconds(snapshot, row)]


NEVER = BeforeLimit()


@dataclass(frozen=True)
class TimeLimits:
    """What jobs need of their time limits in one cycle, and what the site allows.

    forecasts: those of NEEDS. walls: the limits of partitions, QOS and associations; None where they are not known, and
    no time limit is raised. ending: the rows of `before`. requeued: how often each job was requeued, where it was.
    """

    snapshot: Snapshot
    forecasts: Forecasts
    site: Guardrails
    walls: Limits | None = None
    before: BeforeLimit = NEVER
    ending: Sequence[int] = ()
    requeued: Mapping[JobKey, int] = field(default_factory=dict)

    def fits(self, row: int, gpus: int) -> bool:
        """Whether the job would end in the time that it may have with so many GPUs, as far as that is known."""
        if gpus >= self.snapshot.jobs.gpus[row]:
            return True
        return not self._needs(row, gpus) > max(self._raised(row), self._in_all_runs(row))

    def fitted(self, action: Action, row: int) -> Action | Reason:
        """The action, if the job may have the time that it needs at that size, or that is not known; else why not.

        An action for which its time limit has to be raised says to how much (`Action.time_limit`).
        """
        limit, gpus = float(self.snapshot.jobs.time_limit[row]), action.gpus
        if gpus is None or not resizes(action) or gpus == self.snapshot.jobs.gpus[row]:
            return action
        seconds = self._needs(row, gpus)
        if not seconds > limit:  # also where one is NaN
            return action
        raised = self._raised(row) if action.kind == "resize" else limit
        if seconds <= raised:
            return replace(action, time_limit=seconds)
        if seconds <= self._in_all_runs(row):
            return action
        facts = {"gpus": float(gpus), "needs": seconds / HOUR, "limit": limit / HOUR}
        return Reason("time limit", {**facts, **({"raised": raised / HOUR} if raised > limit else {})})

    def last_calls(self) -> Iterator[Action]:
        """Preemptions of the jobs whose limit would end their run before they are done."""
        jobs = self.snapshot.jobs
        for row in self.ending:
            left = float(jobs.time_limit[row] - self.snapshot.elapsed[row])
            needs = _to_its_end(jobs, row, self.forecasts)
            if not needs <= left:
                known = {} if np.isnan(needs) else {"needs": needs / HOUR}
                facts = {"limit": float(jobs.time_limit[row]) / HOUR, "left": max(0.0, left), **known}
                yield Action("preempt", jobs.keys[row], Reason("time limit ahead", facts))

    def _needs(self, row: int, gpus: int) -> float:
        """Seconds of which nine of ten such jobs need less to end on so many GPUs; NaN where that is not known.

        A run that begins again has its whole time limit. Its 90% quantile changes as the median speed does.
        """
        present, then = self.forecasts.speed.at([row, row], [self.snapshot.jobs.gpus[row], gpus]).median
        return _remaining(self.snapshot.jobs, row, self.forecasts) * float(present / then) if then > 0 else np.nan

    def _raised(self, row: int) -> float:
        """The seconds to which the job's limit may be raised; those that it has where it may not."""
        jobs = self.snapshot.jobs
        own = float(jobs.time_limit[row])
        if self.walls is None or self.site.raise_time_limit <= 1:
            return own
        whose = (jobs.user[row], jobs.account[row], jobs.qos[row], jobs.partition[row])
        return max(own, min(self.site.raise_time_limit * own, self.walls.longest(*map(str, whose))))

    def _in_all_runs(self, row: int) -> float:
        """The seconds that the job may have in all, where it is requeued before its limit as often as it may be."""
        jobs, site = self.snapshot.jobs, self.site
        own = float(jobs.time_limit[row])
        if not (self.before.ahead and self.before.acts and jobs.restartable[row]):
            return own
        each = own - self.before.seconds(self.snapshot, row)
        paid = site.requeue_cost / site.requeue_waste if site.requeue_waste else np.inf
        if each < max(site.requeue_cooldown, site.minimum_run, paid):
            return own
        done = self.requeued.get(jobs.keys[row], 0) + int(jobs.running[row])
        return own + max(0, site.requeues_per_job - done) * each


def resizes(action: Action) -> bool:
    """Whether the action decides on the job's number of GPUs."""
    return action.kind in ("resize", "release") and action.gpus is not None


def with_last_calls(plan: Plan, times: TimeLimits) -> Plan:
    """The plan with the preemptions before time limits, in place of what else would end these runs."""
    calls = tuple(times.last_calls())
    if not calls:
        return plan
    called = {each.job for each in calls}
    others = (each for each in plan.actions if each.job not in called or each.kind not in _ENDS_RUN)
    return replace(plan, actions=(*calls, *others))


def _remaining(jobs: Jobs, row: int, forecasts: Forecasts) -> float:
    """Seconds that the job needs no more than, at its present size; NaN where that is not known.

    A forecast from the time limit itself, as nothing better is known, tells nothing about it. By the pace that a job
    reports it may need less than is forecast, as that is believed only in time: here it is at once, since the veto is
    for that job's own good.
    """
    pace = _by_pace(jobs, row)
    by_limit = forecasts.remaining.source[row] == FROM_THE_LIMIT
    quantile = np.nan if by_limit else float(forecasts.remaining[row].quantile(LEVEL)[0])
    return float(np.fmin(quantile, pace if pace > 0 else np.nan))


def _to_its_end(jobs: Jobs, row: int, forecasts: Forecasts) -> float:
    """Seconds in which the job ends where it runs, by its own pace before any forecast, which goes no further than the
    time limit; NaN where that is not known."""
    pace = _by_pace(jobs, row)
    by_limit = forecasts.remaining.source[row] in (FROM_THE_LIMIT, OUTLIVED)
    return pace if pace >= 0 else np.nan if by_limit else float(forecasts.remaining[row].quantile(LEVEL)[0])


def _by_pace(jobs: Jobs, row: int) -> float:
    """Seconds that the rest of the job's iterations may take as it reports them; NaN or less than 0 for none."""
    return PACE_MARGIN * float((jobs.max_iterations[row] - jobs.iteration[row]) * jobs.iteration_time[row])
