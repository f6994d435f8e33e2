"""A model of a learnt policy beside the policy that it would take the place of, on workloads that it has not seen.

A generated workload is drawn by seed. A recorded one is cut, in the order of submission, into as many parts as there
are seeds. Both decide in the same simulations; differences are paired. Live, the configured policy decides wherever the
state is unlike those that the model was trained on. Here the model does, and how often it knew the state is a figure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

from policies.plan import Memory, Plan
from policies.policy import LearntPolicy, Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.errors import UsageError
from slurmplug.sim.adapters.forecaster import once_grown
from slurmplug.sim.engine.job import SimJob, Workload
from slurmplug.sim.experiment import comparison, summary
from slurmplug.sim.experiment.comparison import BySeed, RunFigures
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load

CONFIDENCE = 0.95
FIGURES = ("jct_mean", "wait_mean", "makespan", "deadline_ratio", "accuracy_by_deadline", "bandwidth_bytes",
           "unfair_ratio", "preemptions")  # fmt: skip
"""of `summary`, those that are compared"""
KNOWN = "known_states"
"""the figure of the share of decisions in which the policy knew the state"""
GENERATED = "gen:"
FEWEST_JOBS = 10
"""in a part of a recorded workload"""


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

    @property
    def share(self) -> float:
        """The share of states that were known; NaN without any."""
        return sum(self.known) / len(self.known) if self.known else nan


def workloads(name: str, seeds: Sequence[int], jobs: int | None) -> dict[int, Workload]:
    """The workload of each seed: drawn by it, or a part of a recorded one. jobs: as for `load`.

    Raises:
        UsageError: a recorded workload has too few jobs for so many parts
        WorkloadError
    """
    if name.startswith(GENERATED):
        return {seed: load.load(name, seed=seed, jobs=jobs) for seed in seeds}
    whole, parts = load.load(name, jobs=jobs), len(seeds)
    if len(whole.jobs) < parts * FEWEST_JOBS:
        raise UsageError(
            f"{name} has {len(whole.jobs)} jobs, too few for {parts} parts of {FEWEST_JOBS}: name fewer seeds"
        )
    cuts = [len(whole.jobs) * part // parts for part in range(parts + 1)]
    return {
        seed: replace(whole, jobs=_from_its_start(whole, first, last))
        for seed, first, last in zip(seeds, cuts, cuts[1:], strict=False)
    }


def evaluate(
    made: Mapping[int, Workload],
    candidate: Policy,
    configured: Policy,
    *,
    cluster: str,
    interval: float,
    on_run: Callable[[str, int], Any] = lambda *_: None,
) -> dict[str, dict[str, Any]]:
    """The figures of both on these workloads by seed, by name; `before` is the configured policy's.

    on_run: called before each simulation, with the policy's name and the seed.

    Raises:
        UsageError: the cluster cannot be read, or is smaller than a job
    """
    both = runs(made, candidate, configured, cluster=cluster, interval=interval, on_run=on_run)
    compared = comparison.compare_figures(*both, CONFIDENCE)
    return {row.figure: row.as_json() for row in compared}


def runs(
    made: Mapping[int, Workload],
    candidate: Policy,
    configured: Policy,
    *,
    cluster: str,
    interval: float,
    on_run: Callable[[str, int], Any] = lambda *_: None,
) -> tuple[BySeed, BySeed]:
    """The runs of the configured policy and of the candidate; arguments and errors as of `evaluate`."""
    both: tuple[BySeed, BySeed] = ({}, {})
    for seed, workload in made.items():
        caches = once_grown()
        for policy, found in zip((configured, candidate), both, strict=True):
            on_run(policy.name, seed)
            watched = Watched(policy)
            simulation = Simulation(workload, watched, SimulationSettings(cluster, interval, seed), caches)
            figures = summary.summary(simulation.run())
            compared = {name: float(figures[name]) for name in FIGURES}
            found[seed] = RunFigures(policy.name, seed, {**compared, KNOWN: watched.share})
    return both


def _from_its_start(whole: Workload, first: int, last: int) -> tuple[SimJob, ...]:
    """The jobs of these places, with the first at 0."""
    jobs = whole.jobs[first:last]
    start = jobs[0].submit
    return tuple(replace(job, submit=job.submit - start, deadline=job.deadline - start) for job in jobs)
