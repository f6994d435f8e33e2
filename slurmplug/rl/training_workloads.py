"""The workloads that a policy is trained on: never one by which it is judged.

By seed: those from `FIRST_SEED` on are for training, 500 to 519 for choosing between trained models, and the lower ones
for results. Workloads that were recorded have no seeds that could be kept apart, so training takes generators alone.
"""

from dataclasses import dataclass, replace

import numpy as np

from slurmplug.errors import UsageError
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.simulation import check_size
from slurmplug.sim.workloads import load

FIRST_SEED = 1000
LAST_SEED = 2**31 - 1
CHOOSING = range(500, 520)
GENERATED = "gen:"


@dataclass(frozen=True)
class TrainingWorkloads:
    """Workloads of many sizes of cluster and loads, one for each seed.

    name: a generator's, with its options. clusters: one is drawn. jobs: of each. loads: the least and the most; at load
    1 a cluster has as many arrivals for its GPUs as the generator's own has. Jobs that a drawn cluster is too small
    for are left out.
    """

    name: str
    clusters: tuple[str, ...] = ("8x4", "16x4", "32x4")
    jobs: int = 100
    loads: tuple[float, float] = (0.5, 2.0)

    def __post_init__(self) -> None:
        """
        Raises:
            UsageError: the workload is not generated, or nothing can be drawn
        """
        require_generated(self.name)
        if not self.clusters or not 0 < self.loads[0] <= self.loads[1]:
            raise UsageError("name at least one cluster, and loads above 0, the least first")

    def sample(self, seed: int) -> tuple[Workload, str]:
        """The workload of a seed, and the cluster that it is for.

        Raises:
            UsageError: the seed is not one for training, or no job fits the cluster
            WorkloadError
        """
        require_for_training(seed)
        return self._drawn(seed)

    def for_choosing(self, number: int) -> tuple[Workload, str]:
        """A workload and its cluster, by number from 0, among those by which a trained model is chosen.

        Raises:
            UsageError
            WorkloadError
        """
        if not 0 <= number < len(CHOOSING):
            raise UsageError(f"there are {len(CHOOSING)} workloads to choose a model by, and no number {number}")
        return self._drawn(CHOOSING[number])

    def _drawn(self, seed: int) -> tuple[Workload, str]:
        rng = np.random.default_rng(seed)
        cluster = self.clusters[int(rng.integers(len(self.clusters)))]
        gpus = sum(parse(cluster).gpus)
        workload = load.load(self.name, seed=seed, jobs=self.jobs)
        own = workload.nodes * workload.gpus_a_node or gpus
        factor = float(np.exp(rng.uniform(*np.log(self.loads)))) * gpus / own
        fitting = tuple(job for job in workload.jobs if _fits(job, gpus))
        if not fitting:
            raise UsageError(f"no job of {self.name} fits {cluster}: name larger clusters")
        return load.at_load(replace(workload, jobs=fitting), factor), cluster


def require_for_training(seed: int) -> None:
    """
    Raises:
        UsageError: workloads of this seed judge policies
    """
    if not FIRST_SEED <= seed <= LAST_SEED:
        raise UsageError(
            f"seed {seed} is not one for training: give one from {FIRST_SEED} to {LAST_SEED}; others judge policies"
        )


def require_generated(name: str) -> None:
    """
    Raises:
        UsageError: it is not a generator's workload
    """
    if not name.startswith(GENERATED):
        raise UsageError(
            f"{name} is not a workload for training: name a generator, gen:{'|'.join(load.GENERATORS)}, whose seeds "
            "can be kept apart from those that policies are judged by"
        )


def _fits(job: SimJob, gpus: int) -> bool:
    try:
        check_size(job, gpus, elastic=True)
    except UsageError:
        return False
    return True
