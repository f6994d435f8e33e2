"""What users without directives lose or gain while others have them: mean turnarounds under the simulated Slurm."""

from dataclasses import dataclass, replace

import numpy as np

from policies.mlfs.growth import GrowthSettings
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config, Guardrails
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.experiment import summary
from slurmplug.sim.experiment.result import RunResult
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load as workload

RIGID, ELASTIC, CLUSTER, INTERVAL = "gen:mlfs?x=1/4&elastic=off", "gen:mlfs?x=1/4", "8x4", 300.0
USERS = 8
"""of the workload, user0 to user7"""


@dataclass(frozen=True)
class Setup:
    """The policy of the users with directives, its setting `keep`, and the guardrail `max_bypass`."""

    policy: str
    keep: float = GrowthSettings.keep
    max_bypass: float = Guardrails().max_bypass


def turnarounds(policy: str, plain: int, seed: int, jobs_of: str) -> tuple[float, float, float]:
    """Mean JCT in seconds of the first `plain` users and of the others, and the mean wait of the former.

    The first have no directives; under `slurm` nobody has any. NaN where there is nobody.
    """
    finished = simulated(Setup(policy), plain, seed, jobs_of).finished
    first = [job for job in finished if _number(job.job) < plain]
    rest = [job for job in finished if _number(job.job) >= plain]
    jct = [float(np.mean([job.ended - job.submitted for job in some])) if some else np.nan for some in (first, rest)]
    return jct[0], jct[1], float(np.mean([job.wait for job in first])) if first else np.nan


def priced(setup: Setup, plain: int, seed: int, jobs_of: str) -> tuple[float, ...]:
    """Mean JCT in seconds of all, of the first `plain` users, who have no directives, and their mean wait; the share of
    all jobs above 1.1 in finish-time fairness, the largest, and the largest slowdown."""
    result = simulated(setup, plain, seed, jobs_of)
    of_plain = [(job.ended - job.submitted, job.wait) for job in result.finished if _number(job.job) < plain]
    figures = summary.summary(result)
    fairness = (figures["unfair_ratio"], figures["rho_max"], figures["slowdown_max"])
    return (float(figures["jct_mean"]), *np.mean(of_plain, axis=0).tolist(), *map(float, fairness))


def simulated(setup: Setup, plain: int, seed: int, jobs_of: str) -> RunResult:
    """A run in which the first `plain` users have no directives; under `slurm` nobody has any."""
    given = workload.load(jobs_of, seed=seed)
    jobs = tuple(_without(job) if setup.policy == "slurm" or _number(job) < plain else job for job in given.jobs)
    guardrails = Guardrails(max_bypass=setup.max_bypass)
    settings = SimulationSettings(CLUSTER, INTERVAL, seed, launcher="slurm", guardrails=guardrails)
    own = {setup.policy: {"keep": setup.keep}} if setup.keep != GrowthSettings.keep else {}
    chosen = policy_registry.policy(Config.from_table({"policy": setup.policy, "policies": own}))
    return Simulation(Workload(given.name, jobs), chosen, settings).run()


def _number(job: SimJob) -> int:
    return int(job.user.removeprefix("user"))


def _without(job: SimJob) -> SimJob:
    nan = float("nan")
    told = replace(job, urgency=nan, deadline=nan, target=nan, stop="iterations", downgrade="", kind="")
    return replace(told, managed=False, gpus_min=0, gpus_max=0)
