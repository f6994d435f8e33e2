"""What users without directives lose or gain while others have them: mean turnarounds under the simulated Slurm."""

from dataclasses import replace

import numpy as np

from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load as workload

WORKLOAD, CLUSTER, INTERVAL = "gen:mlfs?x=1/4&elastic=off", "8x4", 300.0
USERS = 8
"""of the workload, user0 to user7"""


def turnarounds(policy: str, plain: int, seed: int) -> tuple[float, float, float]:
    """Mean JCT in seconds of the first `plain` users and of the others, and the mean wait of the former.

    The first have no directives; under `slurm` nobody has any. NaN where there is nobody.
    """
    given = workload.load(WORKLOAD, seed=seed)
    jobs = tuple(_without(job) if policy == "slurm" or _number(job) < plain else job for job in given.jobs)
    settings = SimulationSettings(CLUSTER, INTERVAL, seed, launcher="slurm")
    chosen = policy_registry.policy(Config.model_validate({"policy": policy}))
    finished = Simulation(Workload(given.name, jobs), chosen, settings).run().finished
    first = [job for job in finished if _number(job.job) < plain]
    rest = [job for job in finished if _number(job.job) >= plain]
    jct = [float(np.mean([job.ended - job.submitted for job in some])) if some else np.nan for some in (first, rest)]
    return jct[0], jct[1], float(np.mean([job.wait for job in first])) if first else np.nan


def _number(job: SimJob) -> int:
    return int(job.user.removeprefix("user"))


def _without(job: SimJob) -> SimJob:
    nan = float("nan")
    return replace(job, managed=False, urgency=nan, deadline=nan, target=nan, stop="iterations", downgrade="", kind="")
