"""Whole simulations of jobs with parameter servers, and that those without are as before."""

from collections.abc import Iterator

import numpy as np
import pytest

from policies.baselines.optimus import Optimus
from policies.placement.allocation import held_gpus, held_servers
from policies.policy import Policy
from policies.snapshot import Snapshot
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.rl.episode import Episode
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment import lower_bound
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads.load import load

WITH, CLUSTER, SLOT = "gen:dl2?servers=on", "4x4x16x131072", 1200.0
NAMES = ("dl2", "drf", "fair", "fifo", "mlf-h", "optimus", "srtf")


def policy(name: str, interval: float = SLOT) -> Policy:
    return policy_registry.policy(Config.from_table({"policy": name, "interval": interval}))


def snapshots(chosen: Policy) -> Iterator[Snapshot]:
    """Of each cycle of a simulation of 25 jobs on 16 GPUs."""
    episode = Episode(Simulation(load(WITH, seed=3, jobs=25), chosen, SimulationSettings(CLUSTER, SLOT, 3)))
    while (seen := episode.observed) is not None:
        yield seen.snapshot
        episode.advance(chosen.decide(seen.snapshot, seen.forecasts, seen.memory))


@pytest.mark.parametrize("name", NAMES)
def test_every_job_ends_and_nodes_hold_what_they_have(name: str) -> None:
    run = 0
    for seen in snapshots(policy(name)):
        assert (seen.nodes.used <= seen.nodes.capacity + 1e-6).all()
        assert seen.servers is not None
        workers, counts = held_gpus(seen), held_servers(seen)
        assert ((workers > 0) == (counts > 0)).all()
        assert (counts <= seen.servers.most).all()
        of_worker = seen.jobs.demand[:, 1] / seen.jobs.demand[:, 0] - seen.servers.cpus
        assert seen.nodes.used[:, 1].sum() == pytest.approx((workers * of_worker + counts * seen.servers.cpus).sum())
        if name == "drf":
            assert (counts <= workers).all()  # fewer where no node has the CPUs
        elif name != "optimus":
            assert (workers == counts).all()
        run += int((workers > 0).sum())
    assert run > 25


def test_optimus_is_faster_by_numbers_of_its_own_than_with_as_many_servers_as_workers() -> None:
    jobs = load(WITH, seed=3, jobs=25)
    means = []
    for chosen in (Optimus(), policy("drf")):
        result = Simulation(jobs, chosen, SimulationSettings(CLUSTER, SLOT, 3)).run()
        assert {job.state for job in result.finished} == {"COMPLETED"}
        means.append(np.mean([job.ended - job.submitted for job in result.finished]))
    assert lower_bound.mean_jct_bound(jobs.jobs, parse(CLUSTER)) < means[0] < means[1]


@pytest.mark.parametrize(
    ("name", "mean"), [("dl2", 4538.301576563199), ("drf", 6709.7372397751315), ("optimus", 5270.761807036665)]
)
def test_jobs_without_servers_are_given_what_they_were_before_there_were_any(name: str, mean: float) -> None:
    jobs = load("gen:dl2", seed=5, jobs=30)
    simulation = Simulation(jobs, policy(name, 600.0), SimulationSettings("8x4", 600.0, 5))
    result = simulation.run()
    assert np.mean([job.ended - job.submitted for job in result.finished]) == pytest.approx(mean, rel=1e-6)
    assert not simulation.engine.allocations.servers


def test_a_snapshot_of_jobs_without_servers_counts_none() -> None:
    episode = Episode(Simulation(load("gen:dl2", jobs=5), policy("drf"), SimulationSettings("8x4", SLOT, 0)))
    assert episode.observed is not None
    assert episode.observed.snapshot.servers is None
