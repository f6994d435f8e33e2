"""How often jobs are found to take longer than before (`slurmplug.cycle.outcomes`) where nothing changed, and where the
longest go first from the middle of a workload on.

    python -m docs.measure_outcomes gen:dl2 --jobs 200 --seeds 20
"""

import argparse
from math import isfinite

import numpy as np

from policies.mlfs.mlfs import MLFH
from policies.mlfs.schedule import schedule
from policies.plan import NOTHING_REMEMBERED, Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.cycle.outcomes import FEWEST, Outcomes, expected_seconds, worse
from slurmplug.sim.engine.job import Workload
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load

INTERVAL = 600.0


class LongestFirst(Policy):
    """MLF-H, whose order is turned round from a time on."""

    name = "longest-first"

    def __init__(self, begins: float) -> None:
        self._of, self._begins = MLFH(), begins
        self.needs, self.settings = self._of.needs, self._of.settings

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 it has none
        """MLF-H's plan, or its actions by the reverse of its scores."""
        plan = self._of.decide(snapshot, forecasts, NOTHING_REMEMBERED)
        if snapshot.now < self._begins:
            return plan
        score, left = 1.0 / np.maximum(plan.score, 1e-12), np.nan_to_num(forecasts.remaining.median)
        return Plan(score, actions=schedule(snapshot, score, left, np.zeros(0, dtype=np.int64), self.settings))


def jobs_of(workload: Workload, policy: Policy, cluster: str, seed: int) -> np.ndarray:
    """(n, 3): when each job was first ranked, what was forecast of its time to the end, and when it ended."""
    simulation = Simulation(workload, policy, SimulationSettings(cluster, INTERVAL, seed))
    foreseen: dict[int, tuple[float, float]] = {}
    cycles, decided = simulation.cycles(), None
    while True:
        try:
            observed = cycles.send(decided)
        except StopIteration:
            break
        snapshot, expected = observed.snapshot, expected_seconds(observed.snapshot, observed.forecasts)
        for row in np.flatnonzero(~np.isnan(expected)).tolist():
            foreseen.setdefault(snapshot.jobs.keys[row].job_id, (snapshot.now, float(expected[row])))
        decided = simulation.scheduler.decide(observed)
    ended = [job.ended for job in simulation.result(0.0).finished]
    return np.array([(*told, ended[job - 1]) for job, told in foreseen.items() if isfinite(ended[job - 1])])


def found_after(jobs: np.ndarray, middle: float) -> int:
    """After how many ended jobs of those that came later it is found that they take longer; 0 where it is not."""
    before, later = jobs[jobs[:, 2] <= middle], jobs[jobs[:, 0] > middle]
    took_before = Outcomes((before[:, 2] - before[:, 0]) / before[:, 1], np.ones(len(before), dtype=bool))
    for count, now in enumerate(np.sort(later[:, 2]), start=1):
        there = later[later[:, 0] < now]
        took = (np.minimum(there[:, 2], now) - there[:, 0]) / there[:, 1]
        if count >= FEWEST and worse(Outcomes(took, there[:, 2] <= now), took_before):
            return count
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--cluster", default="16x4")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    found: dict[str, list[int]] = {"nothing changed": [], "longest first": []}
    for seed in range(given.seeds):
        workload = load.load(given.workload, seed=seed, jobs=given.jobs)
        middle = float(np.median([job.submit for job in workload.jobs]))
        for name, policy in zip(found, (MLFH(), LongestFirst(middle)), strict=True):
            found[name].append(found_after(jobs_of(workload, policy, given.cluster, seed), middle))
    for name, counts in found.items():
        after = sorted(count for count in counts if count)
        print(f"{given.workload}, {given.cluster}, {name}: found in {len(after)} of {given.seeds}, after {after} jobs")


if __name__ == "__main__":
    main()
