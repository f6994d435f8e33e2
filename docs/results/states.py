"""How many of the states of a run a learnt policy knows."""

from docs.results.cases import Case, jobs_of
from policies.dl2 import DL2
from policies.mlfs.rl import MLFRL
from policies.plan import Memory, Plan
from policies.policy import LearntPolicy, Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.config import model_files
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings

KINDS: dict[str, type[DL2 | MLFRL]] = {"dl2": DL2, "mlf-rl": MLFRL}


class Watched(Policy):
    """Decides as another policy does, and notes of each state with managed jobs whether that knows it."""

    def __init__(self, policy: Policy) -> None:
        self.name, self.needs, self.settings = policy.name, policy.needs, policy.settings
        self.decides_on, self.until = policy.decides_on, policy.until  # type: ignore[method-assign]
        self._policy = policy
        self.known: list[bool] = []

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        """As the policy does."""
        if snapshot.jobs.managed.any():
            distance = self._policy.distance(snapshot, forecasts) if isinstance(self._policy, LearntPolicy) else 0.0
            self.known.append(0.0 <= distance <= 1.0)
        return self._policy.decide(snapshot, forecasts, memory)


def states_known(case: Case) -> tuple[int, int]:
    """Of a run of a learnt policy with its shipped model, how many states it knew, and of how many."""
    policy = Watched(KINDS[case.policy](model=model_files.shipped(case.policy)))
    settings = SimulationSettings(case.cluster, case.interval, case.seed)
    Simulation(jobs_of(case.workload, case.seed, case.load, case.jobs), policy, settings).run()
    return sum(policy.known), len(policy.known)
