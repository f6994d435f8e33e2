"""Risk and reward: what a job is worth, less what it delays."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from policies.allocation import allocate, gangs, in_order, ranked
from policies.baselines.common import admitted, remaining_seconds
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecasts, Need


@dataclass(frozen=True)
class RRHSettings:
    """threshold: utility that a job must bring beyond what it costs the others. reward: the weight of its utility
    against that cost, alpha. discount: share by which utility loses value in each hour until it comes. unknown: seconds
    that a job takes of which nothing tells how long."""

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

    A job is admitted if its utility, less the cost of the delay that it brings to the others, is above a threshold; one
    that is not is looked at again in each cycle. Those admitted go by reward for each GPU second (First Reward, section
    5.2): alpha times the present value of the utility, less (1 - alpha) times that cost. What runs goes on or is paused
    by the same, with the GPUs it asked for. Utility is that of OASiS, by the time from submission to completion; a job
    without one is worth its urgency, at any time. The cost counts what the utilities of the others lose while the job
    runs, in proportion to its GPUs; the paper's bound on penalties has no counterpart here.
    """

    name = "rrh"
    needs: frozenset[Need] = frozenset({"remaining"})

    def __init__(self, settings: RRHSettings | None = None) -> None:
        self.settings: RRHSettings = settings or RRHSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank by reward, admit what is worth more than it costs, and run what comes first."""
        jobs, settings = snapshot.jobs, self.settings
        seconds = remaining_seconds(snapshot, forecasts.remaining)
        seconds = np.maximum(np.where(np.isnan(seconds), settings.unknown, seconds), 1.0)
        worth = self._worth(snapshot, seconds)
        cost = self._cost(snapshot, seconds)
        taken = worth - cost > settings.threshold
        reward = (settings.reward * worth - (1 - settings.reward) * cost) / (seconds * np.maximum(jobs.gpus, 1))
        order = in_order(jobs, ~taken, -reward)
        wanted = gangs(snapshot, order[(taken | ~jobs.managed)[order]], preempt=True)
        actions = allocate(snapshot, order, wanted, exact=True).actions
        return Plan(ranked(jobs, order), {}, (*actions, *admitted(jobs, taken)))

    def _worth(self, snapshot: Snapshot, seconds: Floats) -> Floats:
        """(n,) present value of the utility of a job that runs now to its end."""
        jobs = snapshot.jobs
        at_end = utility(jobs, snapshot.now - jobs.submitted + seconds)
        return at_end / (1.0 + self.settings.discount * seconds / 3600.0)

    def _cost(self, snapshot: Snapshot, seconds: Floats) -> Floats:
        """(n,) utility that all others lose by the share of the GPUs that the job takes while it runs."""
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
    """(n,) OASiS' th1 / (1 + exp(th2 (latency - th3))) so many seconds after submission; else its urgency, or 1."""
    told = ~np.isnan(jobs.utility).any(axis=1)
    th1, th2, th3 = np.nan_to_num(jobs.utility).T
    plain = np.where(np.isnan(jobs.urgency), 1.0, jobs.urgency)
    return np.where(told, th1 * expit(-th2 * (latency - th3)), plain)
