"""Speeds as a simulation forecasts them, beside those at which its jobs would train."""

from collections.abc import Set
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.baselines.optimus import Optimus
from policies.snapshot import Snapshot
from predictors.forecast import LEVELS, Fan, Forecasts, Need
from slurmplug.forecasting.speeds.kind_paces import grid
from slurmplug.sim.engine.true_values import trainings
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads.load import load

GPUS_A_NODE = 4


class Speeds:
    """The forecasts of a simulation, or with the true speeds in their place; by how much the forecasts are too high."""

    def __init__(self, simulated: Simulation, *, true: bool) -> None:
        self.engine, self.forecaster, self.true = simulated.engine, simulated.scheduler.forecaster, true
        self.too_high: list[float] = []

    def forecast(self, snapshot: Snapshot, needs: Set[Need]) -> Forecasts:
        made: Forecasts = self.forecaster.forecast(snapshot, needs)
        n = len(snapshot.jobs)
        if not n:
            return made
        x = grid(int(snapshot.jobs.gpus_max.max()))
        of = trainings(self.engine, snapshot.jobs.keys).tolist()
        truth = np.array([[self.engine.speed(t, int(k), -(-int(k) // GPUS_A_NODE)) for k in x] for t in of])
        self.too_high += (made.speed.at(np.repeat(np.arange(n), len(x)), np.tile(x, n)).median / truth.ravel()).tolist()
        if not self.true:
            return made
        table = np.repeat(truth[:, :, None], len(LEVELS), axis=2)
        return replace(made, speed=Fan(np.arange(n), np.tile(x, (n, 1)), table, np.full(n, "true")))


def played(*, true: bool) -> tuple[float, Speeds]:
    """Mean turnaround in seconds under Optimus, on MLFS' workload: each job has a time scale of its own."""
    workload = load("gen:mlfs?x=1/4", jobs=60, load=2.0)
    simulated = Simulation(workload, Optimus(), SimulationSettings(f"20x{GPUS_A_NODE}"))
    simulated.scheduler.forecaster = speeds = Speeds(simulated, true=true)
    return float(np.mean([job.ended - job.submitted for job in simulated.run().finished])), speeds


@pytest.fixture(scope="module")
def forecast() -> Any:
    return played(true=False)


def test_forecast_speeds_are_nearly_as_good_to_optimus_as_true_ones(forecast: Any) -> None:
    """1.55 times the mean turnaround, where unlike jobs are taken for alike."""
    assert forecast[0] < 1.2 * played(true=True)[0]


def test_no_speed_is_forecast_to_be_many_times_the_true_one(forecast: Any) -> None:
    """350 times, where unlike jobs are taken for alike."""
    assert np.isfinite(forecast[1].too_high).all()
    assert np.max(forecast[1].too_high) < 8.0
    assert np.quantile(forecast[1].too_high, 0.95) < 3.0
