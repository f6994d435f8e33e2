"""What the simulator foretells of how fast jobs train."""

import numpy as np
import pytest

from slurmplug.sim.adapters.forecaster import SimForecaster
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.job import SimJob, Speed
from slurmplug.sim.engine.nodes import SimNodes
from slurmplug.sim.engine.workload_table import table
from tests.builders import jobs, snapshot

LINEAR = Speed(np.array([1, 8]), np.array([1, 1]), np.array([1.0, 8.0]))


def site(nodes: int = 2) -> Engine:
    """Two jobs of kinds of their own, on nodes of four GPUs; the first trains on two of them."""
    told = [SimJob(f"j{n}", 0.0, 2, 1000, LINEAR, kind=f"kind-{n}", gpus_min=1, gpus_max=8) for n in range(2)]
    columns = ((4,) * nodes, (8,) * nodes, (1000.0,) * nodes, (100.0,) * nodes)
    made = Engine(table(tuple(told), all_managed=True), SimNodes(tuple(f"n{i}" for i in range(nodes)), *columns))
    made.run_until(0.0)
    assert made.place(0, ((0, 2),)) == ""
    made.run_until(5.0)
    return made


def test_a_speed_is_forecast_for_each_number_of_gpus_once_the_kind_has_trained() -> None:
    speed = SimForecaster(site(), seed=0).forecast(snapshot(jobs(2, gpus=2)), {"speed"}).speed
    assert speed.known.tolist() == [True, False]
    assert speed.x.tolist() == [list(range(1, 9))]
    assert speed.at(0, 2).median == pytest.approx(2.0, rel=0.1)


def test_jobs_of_a_kind_share_the_forecast_of_their_speed() -> None:
    forecaster, both = SimForecaster(site(), seed=0), jobs(2, gpus=2)
    twice = jobs(3, gpus=2, keys=(both.keys[0], both.keys[1], both.keys[0]))
    assert forecaster.forecast(snapshot(twice), {"speed"}).speed.index.tolist() == [0, -1, 0]


def test_on_a_large_cluster_only_some_of_the_numbers_beyond_64_are_forecast() -> None:
    speed = SimForecaster(site(nodes=40), seed=0).forecast(snapshot(jobs(2, gpus=2)), {"speed"}).speed
    assert speed.x[0, :64].tolist() == list(range(1, 65))
    assert speed.x[0, -1] == 160
    assert speed.x.shape[1] < 80


def test_the_forecast_follows_the_rows_of_the_snapshot() -> None:
    forecaster, both = SimForecaster(site(), seed=0), jobs(2, gpus=2)
    first = forecaster.forecast(snapshot(both), {"speed"}).speed
    assert forecaster.forecast(snapshot(both), {"speed"}).speed is first
    only = jobs(1, gpus=2, keys=both.keys[1:])
    assert not forecaster.forecast(snapshot(only), {"speed"}).speed.known.any()
