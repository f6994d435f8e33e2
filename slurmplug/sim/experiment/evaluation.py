"""A model of a learnt policy beside the policy that it would take the place of, on workloads that it has not seen.

A generated workload is drawn by seed. A recorded one is cut, in the order of submission, into as many parts as there
are seeds. Both decide in the same simulations; differences are paired. Where the model's plan may not be followed, the
fallback decides in that same cycle, by the code of the daemon; in what share of the cycles it was followed is a figure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

from policies.policy import Policy
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.errors import UsageError
from slurmplug.ledger.policy_models import FOLLOWED
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
GENERATED = "gen:"
FEWEST_JOBS = 10
"""in a part of a recorded workload"""


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
    config: Config,
    *,
    cluster: str,
    on_run: Callable[[str, int], Any] = lambda *_: None,
    on_errors: Callable[[str, int, Sequence[str]], Any] = lambda *_: None,
) -> dict[str, dict[str, Any]]:
    """The figures of both on these workloads by seed, by name; `before` is the configured policy's.

    config: of `configured`; its interval is that of cycles. on_run: called before each simulation, with the policy's
    name and the seed. on_errors: called after it with these and, of each cycle with managed jobs, why the policy was
    not followed; empty where it was.

    Raises:
        UsageError: the cluster cannot be read, or is smaller than a job
    """
    both = runs(made, candidate, configured, config, cluster=cluster, on_run=on_run, on_errors=on_errors)
    compared = comparison.compare_figures(*both, CONFIDENCE)
    return {row.figure: row.as_json() for row in compared}


def runs(
    made: Mapping[int, Workload],
    candidate: Policy,
    configured: Policy,
    config: Config,
    *,
    cluster: str,
    on_run: Callable[[str, int], Any] = lambda *_: None,
    on_errors: Callable[[str, int, Sequence[str]], Any] = lambda *_: None,
) -> tuple[BySeed, BySeed]:
    """The runs of the configured policy and of the candidate; arguments and errors as of `evaluate`."""
    both: tuple[BySeed, BySeed] = ({}, {})
    for seed, workload in made.items():
        caches = once_grown()
        for policy, found in zip((configured, candidate), both, strict=True):
            on_run(policy.name, seed)
            fallback = policy_registry.fallback(config, policy, configured)
            how = SimulationSettings(cluster, config.interval, seed)
            simulation = Simulation(workload, policy, how, caches, fallback)
            figures = summary.summary(simulation.run())
            compared = {name: float(figures[name]) for name in FIGURES}
            followed = [not error for error in simulation.errors]
            share = sum(followed) / len(followed) if followed else nan
            found[seed] = RunFigures(policy.name, seed, {**compared, FOLLOWED: share})
            on_errors(policy.name, seed, simulation.errors)
    return both


def _from_its_start(whole: Workload, first: int, last: int) -> tuple[SimJob, ...]:
    """The jobs of these places, with the first at 0."""
    jobs = whole.jobs[first:last]
    start = jobs[0].submit
    return tuple(replace(job, submit=job.submit - start, deadline=job.deadline - start) for job in jobs)
