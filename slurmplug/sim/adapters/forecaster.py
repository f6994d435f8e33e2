"""The forecaster of a simulation: the daemon's, with run times from the workload and forecasts made less often."""

from slurmplug.forecasting.forecast_cache import CachePolicies, CachePolicy
from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.sim.adapters.learnt_run_times import LearntRunTimes
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.true_values import TrueLosses, TrueRunTimes

GROWTH = 1.1
"""A curve is forecast again when it is longer by this factor: for 50,000 jobs more would take too long."""


def once_grown() -> CachePolicies:
    """The rule of simulations; those that are given the same one share their forecasts of curves, as of one workload
    they have many curves in common."""
    return CachePolicies(
        final=CachePolicy(growth=GROWTH, shared={}),
        accuracy=CachePolicy(growth=GROWTH, shared={}),
        loss=CachePolicy(),
    )


class SimForecaster(Forecaster):
    """Forecasts of the jobs in snapshots of this engine."""

    def __init__(self, engine: Engine, seed: int, caches: CachePolicies | None = None, *, told: bool = True) -> None:
        """told: whether run times are those of the workload with an error, not learnt from jobs that ended."""
        run_times = TrueRunTimes(engine, seed) if told else LearntRunTimes(engine)
        super().__init__(run_times, TrueLosses(engine, seed), caches or once_grown())
