"""Risk and reward: the utility of a job, less what the others lose by it."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from policies.placement.allocation import allocate, gang_gpus, queue_order, score_from_order
from policies.placement.demand import remaining_seconds
from policies.placement.plans import admission_releases
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class RRHSettings:
    """threshold: utility beyond a job's cost to the others that admits it. reward: alpha, the weight of its utility
    against that cost. discount: share by which utility loses value in each hour until completion. unknown: seconds that
    a job of unknown duration is assumed to take."""

    threshold: float = 0.0
    reward: float = 0.5
    discount: float = 0.01
    unknown: float = 3600.0

    def __post_init__(self) -> None:
        if not 0 <= self.reward <= 1:
            raise ValueError(f"reward is between 0 and 1, not {self.reward}")
        if not self.discount >= 0:
            raise ValueError(f"discount is a number not less than 0, not {self.discount}")
        if not self.unknown > 0:
            raise ValueError(f"unknown is a number of seconds greater than 0, not {self.unknown}")


class RRH(Policy):
    """The risk-reward heuristic (Irwin, Grit, Chase, HPDC 2004), as OASiS (INFOCOM 2018, section V) compares with it.

    A job is admitted if its utility, less the cost of the delay that it causes others, exceeds a threshold; a rejected
    job is evaluated again in each cycle. Admitted jobs are ranked by reward per GPU second (First Reward, section 5.2):
    alpha times the present value of the utility, less (1 - alpha) times that cost. Running jobs continue or are
    preempted by the same rank, on the GPUs that they requested. Utility is that of OASiS, by the time from submission
    to completion; a job without one has its urgency as utility at any time. The cost is what the utilities of the
    others lose while the job runs, in proportion to its GPUs; the paper's bound on penalties has no counterpart here.
    """

    name = "rrh"
    needs: frozenset[Need] = frozenset({"remaining"})

    def __init__(self, settings: RRHSettings | None = None) -> None:
        self.settings: RRHSettings = settings or RRHSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 unused here
        """Rank by reward, admit the jobs whose utility exceeds their cost, and run them in this order."""
        jobs, settings = snapshot.jobs, self.settings
        seconds = remaining_seconds(snapshot, forecasts.remaining)
        seconds = np.maximum(np.where(np.isnan(seconds), settings.unknown, seconds), 1.0)
        value = self._present_value(snapshot, seconds)
        cost = self._cost(snapshot, seconds)
        admitted = value - cost > settings.threshold
        reward = (settings.reward * value - (1 - settings.reward) * cost) / (seconds * np.maximum(jobs.gpus, 1))
        order = queue_order(jobs, ~admitted, -reward)
        wanted = gang_gpus(snapshot, order[(admitted | ~jobs.managed)[order]], preempt=True)
        actions = allocate(snapshot, order, wanted, exact=True).actions
        return Plan(score_from_order(jobs, order), {}, (*actions, *admission_releases(jobs, admitted)))

    def _present_value(self, snapshot: Snapshot, seconds: Floats) -> Floats:
        """(n,) present value of the utility of each job if it runs from now to its end."""
        jobs = snapshot.jobs
        at_end = utility(jobs, snapshot.now - jobs.submitted + seconds)
        return at_end / (1.0 + self.settings.discount * seconds / 3600.0)

    def _cost(self, snapshot: Snapshot, seconds: Floats) -> Floats:
        """(n,) the utility that all others lose while the job runs, by its share of the GPUs."""
        jobs, nodes = snapshot.jobs, snapshot.nodes
        if not len(jobs):
            return np.zeros(0)
        end = snapshot.now - jobs.submitted + seconds
        ahead = float(seconds.mean())
        decay = (utility(jobs, end) - utility(jobs, end + ahead)) / ahead
        decay = np.where(jobs.managed, decay, 0.0)
        capacity = max(float(nodes.capacity[nodes.up, 0].sum()), 1.0)
        return np.asarray(seconds * np.minimum(jobs.gpus / capacity, 1.0) * (decay.sum() - decay))


def utility(jobs: Jobs, latency: Floats) -> Floats:
    """(n,) OASiS' th1 / (1 + exp(th2 (latency - th3))) at `latency` seconds after submission; else the urgency, or
    1."""
    declared = ~np.isnan(jobs.utility).any(axis=1)
    th1, th2, th3 = np.nan_to_num(jobs.utility).T
    plain = np.where(np.isnan(jobs.urgency), 1.0, jobs.urgency)
    return np.where(declared, th1 * expit(-th2 * (latency - th3)), plain)
