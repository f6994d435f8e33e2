"""Backtests the predictions of the site's own jobs, as the ledger recorded them, against what happened."""

from collections.abc import Sequence

import numpy as np

from predictors.arrays import Floats
from predictors.scoring import Clock, ScoreRow, absolute_error, agreement, coverage, exceedance
from predictors.trials import curves
from predictors.trials.runtime import last_two
from slurmplug.errors import DataError
from slurmplug.learning.training import finished_curves
from slurmplug.ledger import run_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.run_queries import FinishedRun
from slurmplug.ledger.selection import Selection
from slurmplug.reports import job_view
from slurmplug.reports.job_view import Job

MIN_CURVES = 10
"""finished curves needed to evaluate the predictors on them"""


def score_tables(ledger: LedgerFile, share: float, clock: Clock) -> dict[str, list[ScoreRow]]:
    """Tables of scores by title: of the run time predicted when a job was first seen, of the final value predicted at
    half of its iterations, and of the final values of the finished curves, predicted now from their first `share`.

    `clock`: times the predictions, in seconds.

    Raises:
        DataError: there is no prediction of a job that has ended, or too little data.
    """
    tables = {
        "run time, when first seen": score_run_times(ledger),
        "final value, at half of the iterations": score_final_values(ledger),
        "learning curves, predicted now": _score_curves(ledger, share, clock),
    }
    if not any(tables.values()):
        raise DataError(f"{ledger.name} has no prediction of a job that has ended")
    return {title: rows for title, rows in tables.items() if rows}


def score_run_times(ledger: LedgerFile) -> list[ScoreRow]:
    """Scores of the first prediction of each job that ended by itself, by the predictor that made it; beside them, of
    the time limit, and of the mean of the user's last two run times."""
    runs = run_queries.finished_runs(ledger)
    jobs = [{"user": run.user, "submit": run.submit, "end": run.end} for run in runs]
    averages = last_two(jobs, np.array([run.runtime for run in runs], dtype=np.float64)).tolist()
    predicted = [(run, pair) for run, pair in zip(runs, averages, strict=True) if run.predicted is not None]
    rows = [_run_time_row("predicted", [run for run, _ in predicted])] if predicted else []
    by = sorted({str(run.predicted_by) for run, _ in predicted})
    rows += [_run_time_row(f"  by {name}", [run for run, _ in predicted if run.predicted_by == name]) for name in by]
    requested = [(run.time_limit, run.runtime) for run, _ in predicted if run.time_limit]
    averaged = [(pair, run.runtime) for run, pair in predicted if not np.isnan(pair)]
    return rows + [
        ScoreRow("", method, len(pairs), _point_scores(*np.array(pairs, dtype=np.float64).T))
        for method, pairs in (("request", requested), ("last two", averaged))
        if pairs
    ]


def score_final_values(ledger: LedgerFile) -> list[ScoreRow]:
    """Scores of the final value of each job that did all its iterations, by the quantity of its target."""
    completed = [
        job
        for job in job_view.jobs(ledger, Selection(states=("COMPLETED",), start=0.0))
        if job.foreseen.value is not None and job.did_all
    ]
    quantities = sorted({job.quantity for job in completed})
    return [_final_value_row(name, [job for job in completed if job.quantity == name]) for name in quantities]


def _score_curves(ledger: LedgerFile, share: float, clock: Clock) -> list[ScoreRow]:
    finished = finished_curves(ledger)
    runs = [curves.FinishedCurve(curve) for curve in finished if len(curve) > curves.FEWEST_OBSERVED]
    if len(runs) < MIN_CURVES:
        return []
    try:
        return curves.trial(runs, share, clock)
    except ValueError as error:  # all are shorter than what is observed of them
        raise DataError(f"{ledger.name}: {error}") from error


def _run_time_row(method: str, runs: Sequence[FinishedRun]) -> ScoreRow:
    value, low, high, actual = _columns(runs, "predicted", "predicted_low", "predicted_high", "runtime")
    scores = {**_point_scores(value, actual), "covers 90%": coverage(low, high, actual)}
    return ScoreRow("", method, len(runs), {**scores, "exceeds 0.95": exceedance(high, actual)})


def _final_value_row(quantity: str, jobs: Sequence[Job]) -> ScoreRow:
    value, low, high, actual = np.array([(*job.foreseen, job.value) for job in jobs], dtype=np.float64).T
    scores = {"mae": absolute_error(value, actual), "covers 90%": coverage(low, high, actual)}
    return ScoreRow(quantity, "foreseen", len(jobs), scores)


def _point_scores(predicted: Floats, actual: Floats) -> dict[str, float]:
    nothing = float("nan")
    return {
        "mae s": absolute_error(predicted, actual),
        "min/max": agreement(np.maximum(predicted, 1.0), np.maximum(actual, 1.0)),
        "covers 90%": nothing,
        "exceeds 0.95": nothing,
    }


def _columns(runs: Sequence[FinishedRun], *names: str) -> list[Floats]:
    return [np.array([getattr(run, name) for run in runs], dtype=np.float64) for name in names]
