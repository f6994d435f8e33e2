"""Parameter servers in the simulated cluster: the CPUs that they hold, and the speed that they make."""

from typing import Any

import numpy as np
import pytest

from policies.marginal_gain.server_speeds import rate
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.job import ServerTraining, SimJob
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.engine.workload_table import workload_table
from slurmplug.sim.workloads import server_models

TIMES = np.array([1.0, 0.2, 0.8, 0.0, 0.0])


def job(**fields: Any) -> SimJob:
    """Of two workers of one CPU and as many servers of two, from one to four of each, without a restart cost."""
    defaults: dict[str, Any] = {
        "name": "j", "submit": 0.0, "gpus": 2, "gpus_min": 1, "gpus_max": 4, "cpus": 2, "iterations": 1000,
        "speed": server_models.speed(TIMES), "servers": ServerTraining(4, 2, TIMES, TIMES), "restart": 0.0,
    }  # fmt: skip
    return SimJob(**defaults | fields)


def engine(*jobs: SimJob) -> Engine:
    """Two nodes of four GPUs and 40 CPUs, so that none is crowded; all jobs have arrived."""
    on = SimNodes(("n0", "n1"), (4, 4), (40, 40), (1000.0, 1000.0), (100.0, 100.0))
    made = Engine(workload_table(jobs, all_managed=True), on)
    made.run_until(0.0)
    return made


def test_a_job_trains_by_its_workers_and_servers() -> None:
    site = engine(job())
    assert site.place(0, ((0, 2), (1, 0)), (1, 2)) == ""
    assert site.nodes.used[:, :2].tolist() == [[2.0, 4.0], [0.0, 4.0]]
    site.run_until(10.0)
    assert site.iterations_done(0) == pytest.approx(10 * float(rate(TIMES, 2, 3)))
    assert site.place(0, ((0, 2), (1, 0)), (1, 2)) == ""
    assert site.logs[0].resizes == 0
    assert site.place(0, ((0, 2), (1, 0)), (1, 3)) == ""
    assert (site.logs[0].resizes, site.logs[0].migrations) == (1, 0)
    site.end(0, "COMPLETED")
    assert site.nodes.used.sum() == 0
    assert not site.allocations.servers


def test_without_a_count_it_has_as_many_servers_as_workers() -> None:
    site = engine(job())
    assert site.place(0, ((0, 1), (1, 2))) == ""
    assert site.allocations.servers == {0: (1, 2)}
    assert site.nodes.used[:, :2].tolist() == [[1.0, 3.0], [2.0, 6.0]]
    site.run_until(10.0)
    assert site.iterations_done(0) == pytest.approx(10 * float(rate(TIMES, 3, 3)))


@pytest.mark.parametrize(
    ("where", "servers", "why"),
    [
        (((0, 2),), (5,), "not between 1 and 4"),
        (((0, 2),), (0,), "not between 1 and 4"),
        (((0, 2),), (1, 1), "for each node"),
        (((0, 2),), (-1,), "for each node"),
        (((0, 2), (1, 0)), (0, 4), "not enough CPUs free on n1"),
    ],
)
def test_servers_that_cannot_be_had_are_refused_and_nothing_changes(
    where: tuple[tuple[int, int], ...], servers: tuple[int, ...], why: str
) -> None:
    site = engine(job(), job(cpus=34, gpus=2, servers=None))
    site.place(1, ((1, 2),))
    site.place(0, ((0, 1),), (2,))
    before = site.nodes.used.copy()
    assert why in site.place(0, where, servers)
    assert (site.nodes.used == before).all()
    assert (site.allocations.holds[0], site.allocations.servers[0]) == (((0, 1),), (2,))


def test_a_job_that_synchronises_by_all_reduce_has_none() -> None:
    site = engine(job(servers=None))
    assert site.place(0, ((0, 2),), (2,)) == "the job has no parameter servers"
    assert site.place(0, ((0, 2),)) == ""
    assert not site.allocations.servers
