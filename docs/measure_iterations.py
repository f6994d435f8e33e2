"""How well run times are forecast when a job is first seen: by the iterations that it states, and by earlier runs."""

from collections.abc import Set

import numpy as np

from policies.mlfs.mlfs import MLFS
from policies.snapshot import JobKey, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Forecast, Need
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.forecasting.run_times import RunTimeForecasts
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.forecasting.stated_iterations import SOURCE
from slurmplug.sim.adapters.forecaster import once_grown
from slurmplug.sim.adapters.learnt_run_times import LearntRunTimes
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.true_values import TrueLosses, TrueRunTimes, trainings
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from slurmplug.sim.workloads import load as workload

RUNS = {"gen:mlfs": (200, (77, 78, 79)), "gen:dl2": (150, (77, 78))}
"""jobs and seeds of each workload"""
CLUSTER = "8x4"


class _Watched(LearntRunTimes):
    """Also keeps what it forecast of each job when it was first seen, and would have by earlier runs alone."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.first: dict[JobKey, tuple[Forecast, Forecast]] = {}
        self._nothing_seen = KindPaces(SeenSpeeds())

    def forecast(self, snapshot: Snapshot, needs: Set[Need], paces: KindPaces) -> RunTimeForecasts:
        """As `LearntRunTimes.forecast`."""
        made = super().forecast(snapshot, needs, paces)
        new = [row for row, key in enumerate(snapshot.jobs.keys) if key not in self.first]
        if new:
            by_runs = super().forecast(snapshot, needs, self._nothing_seen).total
            self.first |= {snapshot.jobs.keys[row]: (made.total[[row]], by_runs[[row]]) for row in new}
        return made


def measured(name: str, jobs: int, seed: int) -> tuple[int, Floats]:
    """The jobs that were forecast by their iterations, and a row (2, 3) by these and by earlier runs: the median and
    the mean of the logarithm of the error's factor, and the share of jobs within the 90% interval."""
    settings = SimulationSettings(CLUSTER, seed=seed, run_times="forecast")
    simulation = Simulation(workload.load(name, seed=seed, jobs=jobs), MLFS(), settings)
    engine, run_times = simulation.engine, _Watched(simulation.engine)
    simulation.scheduler.forecaster = Forecaster(run_times, TrueLosses(engine, seed), once_grown())
    simulation.run()
    first = {key: both for key, both in run_times.first.items() if both[0].source[0] == SOURCE}
    whole = TrueRunTimes(engine, seed).whole(trainings(engine, [*first]))
    figures = []
    for forecasts in zip(*first.values(), strict=True):
        table = Forecast(np.concatenate([each.table for each in forecasts]), np.full(len(first), SOURCE))
        low, high = table.quantile([0.05, 0.95]).T
        error = np.abs(np.log(table.median / whole))
        figures.append([np.median(error), error.mean(), ((whole >= low) & (whole <= high)).mean()])
    return len(first), np.array(figures)


if __name__ == "__main__":
    print("workload, seed, jobs | by iterations: median and mean factor of the error, covered | by earlier runs")
    for name, (jobs, seeds) in RUNS.items():
        for seed in seeds:
            count, figures = measured(name, jobs, seed)
            cells = [f"{np.exp(a):.2f} {np.exp(b):.2f} {covered:.2f}" for a, b, covered in figures]
            print(name, seed, count, "|", " | ".join(cells), flush=True)
