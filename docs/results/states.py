"""How many of the states of a run a learnt policy knows."""

from docs.results.cases import Case, jobs_of
from policies.dl2 import DL2
from policies.mlfs.rl import MLFRL
from slurmplug.config import model_files
from slurmplug.sim.experiment.evaluation import Watched
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings

KINDS: dict[str, type[DL2 | MLFRL]] = {"dl2": DL2, "mlf-rl": MLFRL}


def states_known(case: Case) -> tuple[int, int]:
    """Of a run of a learnt policy with its shipped model, how many states it knew, and of how many."""
    policy = Watched(KINDS[case.policy](model=model_files.shipped(case.policy)))
    settings = SimulationSettings(case.cluster, case.interval, case.seed)
    Simulation(jobs_of(case.workload, case.seed, case.load, case.jobs), policy, settings).run()
    return sum(policy.known), len(policy.known)
