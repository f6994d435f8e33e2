"""A job's learning curve: what it reported, how that is predicted to go on, its target, and where it will be stopped.

The forecast is made when it is asked for, by the predictor that the daemon saved last and by the code that it uses.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from policies.mlfs.load_control import LoadControlSettings
from policies.mlfs.stop_rules import MAY_STOP
from policies.snapshot import Jobs
from predictors.arrays import Floats
from predictors.learning_curve import LearningCurvePredictor
from slurmplug.config.schema import Config
from slurmplug.forecasting import saved_curves
from slurmplug.forecasting.curve_fans import LARGEST_BELIEVABLE, CurveFans, PredictedLosses
from slurmplug.intake.columns import jobs_of
from slurmplug.ledger import cycle_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.rows import INTERVAL_LEVELS
from slurmplug.reports.job_view import Job

MOST_POINTS = 400
"""of the reported ones that are shown, at even steps"""

Curve: TypeAlias = dict[str, Any]
"""As JSON has it.

quantity: by which the job is judged; its loss, where it reports no such value. points: [iteration, value] of each
report, iterations counted from 1. last_iteration: its --max-iterations, or null. target: null for none. forecast:
[iteration, low, median, high] from the last report to the last iteration, with the ends of the 90% interval; empty
where nothing is predicted. stop: {iteration, option} where its --stop is predicted to end it before its last iteration,
or null.
"""


def curve(ledger: LedgerFile, job: Job, config: Config) -> Curve:
    """The learning curve of a job that was read whole. Raises LedgerError."""
    record = job.record_with(cycle_queries.points(ledger, job.row))
    unknown = np.full(1, np.nan)
    jobs, _ = jobs_of([record], unknown, unknown, np.zeros(1, dtype=np.int64), job.seen)
    quantity, sign, target = str(jobs.quantity[0]), float(jobs.sign[0]), float(jobs.target[0])
    iterations, values = _believable(*jobs.accuracies.row(0))
    predicted = job.live and job.final.value is not None and len(values) and jobs.max_iterations[0] > iterations[-1]
    forecast = _forecast(ledger, jobs) if predicted else np.empty((0, 4))
    if not len(values) and len(jobs.losses.row(0)[1]):
        quantity, sign, target = "loss", 1.0, np.nan
        iterations, values = _believable(*jobs.losses.row(0))
    shown = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).astype(np.int64))
    found: Curve = {
        "quantity": quantity,
        "points": np.column_stack([iterations[shown], sign * values[shown]]).tolist(),
        "last_iteration": record.directives.max_iterations if record.directives else None,
        "target": None if np.isnan(target) else sign * target,
        "forecast": _in_the_jobs_sign(forecast, sign).tolist(),
        "stop": None,
    }
    if len(forecast):
        found["stop"] = _stop(jobs, forecast, float(values.max()), _epsilon(config))
    return found


def _believable(iterations: Floats, values: Floats) -> tuple[Floats, Floats]:
    kept = (iterations < LARGEST_BELIEVABLE) & (np.abs(values) < LARGEST_BELIEVABLE)
    return iterations[kept], values[kept]


def _forecast(ledger: LedgerFile, jobs: Jobs) -> Floats:
    """(k, 4) iteration, low, median and high, where higher is better."""
    fan = _fans(ledger).accuracies(jobs)
    if not fan.known[0]:
        return np.empty((0, 4))
    x = fan.x[fan.index[0]]
    return np.column_stack([x, fan.at(np.zeros(len(x)), x).quantile(INTERVAL_LEVELS)])


def _fans(ledger: LedgerFile) -> CurveFans:
    saved = cycle_queries.model(ledger, saved_curves.NAME)
    if saved is None or saved[0] != LearningCurvePredictor.version:
        return CurveFans(LearningCurvePredictor(), PredictedLosses())
    predictor, taught_by = saved_curves.from_state(saved[2])
    return CurveFans(predictor, PredictedLosses(), taught_by=taught_by)


def _stop(jobs: Jobs, forecast: Floats, best: float, epsilon: float) -> Mapping[str, Any] | None:
    """Where the median first has the value at which the job's --stop ends it."""
    option = str(jobs.stop[0])
    causes = MAY_STOP.get(option, frozenset()) if jobs.trials[0] == "" else frozenset()
    iterations, _, median, _ = forecast.T
    at_maximum = max(best, float(median[-1])) - epsilon * abs(best)
    wanted = np.fmin(
        jobs.target[0] if "reached" in causes else np.nan,
        at_maximum if "maximum" in causes else np.nan,
    )
    if best >= wanted:
        return {"iteration": float(iterations[0]), "option": option}
    later = np.flatnonzero(median >= wanted)
    if not len(later) or later[0] == 0:
        return None
    after = int(later[0])
    iteration = np.interp(wanted, median[after - 1 : after + 1], iterations[after - 1 : after + 1])
    return {"iteration": float(iteration), "option": option} if iteration < iterations[-1] else None


def _in_the_jobs_sign(forecast: Floats, sign: float) -> Floats:
    return forecast if sign > 0 else np.column_stack([forecast[:, 0], -forecast[:, :0:-1]])


def _epsilon(config: Config) -> float:
    return float(config.policies.get(config.policy, {}).get("epsilon", LoadControlSettings.epsilon))
