"""Trains the predictors on the finished runs of the ledger, and saves them there for the next start.

Which runs of whom is decided by `predictors.influence`. The loss predictor learns from no run of the site.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from policies.snapshot import JobKey
from predictors.arrays import Floats
from predictors.influence import KIND_RUNS, balanced, runs_of_a_user
from predictors.learning_curve import LearningCurvePredictor, Meta
from predictors.runtime import Job, RuntimeModel, RuntimePredictor
from slurmplug.directives.values import Params
from slurmplug.forecasting import saved_curves
from slurmplug.forecasting.curve_fans import LARGEST_BELIEVABLE, curve_metadata, resample_evenly
from slurmplug.forecasting.run_times import known_at_submit
from slurmplug.forecasting.speeds.seen_speeds import PlacementShape, SeenSpeeds, Whose, kind_of, typed_kind
from slurmplug.learning.schedule import MAX_RUNS
from slurmplug.ledger import run_queries
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.run_queries import FinishedRun, Report

MAX_CURVES = 2_000
"""The latest finished runs that learning curves and speeds are learned from."""
MIN_POINTS = 5
"""Shorter curves are not learned from."""

log = logging.getLogger(__name__)


class Models(NamedTuple):
    """The trained predictors that a forecaster uses."""

    runtime: RuntimePredictor
    curves: LearningCurvePredictor
    speeds: SeenSpeeds
    taught_by: frozenset[str]
    """the users on whose curves `curves` was fitted"""


class History(NamedTuple):
    """What the predictors are fitted on."""

    runs: Sequence[FinishedRun]
    """for run times, the last to end last"""
    reported: Sequence[tuple[FinishedRun, Sequence[Report]]]
    """the latest that reported, the last to end first"""
    seen: SeenSpeeds
    """the step times in use: they are added to and not learnt anew, as the ledger knows only the last placement of a
    job that ended"""


class State(NamedTuple):
    """A trained predictor as it is saved."""

    name: str
    version: str
    state: Mapping[str, Any]


def train(ledger: Ledger, model: RuntimeModel, now: float, seen: SeenSpeeds | None = None) -> Models:
    """Predictors fitted on the ledger's history, which are also saved in the ledger.

    now: the time they are saved with, in seconds since the epoch. seen: the step times in use, else those saved last.
    """
    made = fitted(history(ledger, seen or saved_speeds(ledger)), model)
    save(ledger, states(made), now)
    return made


def history(ledger: Ledger, seen: SeenSpeeds) -> History:
    """What the ledger has to learn from."""
    runs = run_queries.latest_run_times(ledger, MAX_RUNS, KIND_RUNS, runs_of_a_user(MAX_RUNS))[::-1]
    return History(runs, list(_runs_with_reports(ledger)), seen)


def fitted(known: History, model: RuntimeModel) -> Models:
    """Predictors fitted on it."""
    runtime, curves, speeds = RuntimePredictor(model), LearningCurvePredictor(), known.seen
    if known.runs:
        runtime.fit([_as_job(run) for run in known.runs], [run.runtime for run in known.runs])
    reported, finished = [], []
    steps: list[tuple[FinishedRun, float]] = []
    for run, reports in known.reported:
        curve = _curve(run, reports)
        if curve is not None:
            reported.append(run)
            finished.append(curve)
        steps.append((run, _step_time(run, reports)))
    for run, step in reversed(steps):  # the last to end is the latest
        user, kind = _whose(run)
        job, of_gpus = JobKey(run.cluster, run.job_id, int(run.first_submit)), run.of_gpus
        where = PlacementShape(of_gpus.whole, run.nodes)
        speeds.add(Whose(typed_kind(kind, of_gpus.only_type), user), where, job, step)
    kept = balanced([_whose(run) for run in reported])
    if kept:
        curves.fit([finished[at] for at in kept], [_metadata(reported[at]) for at in kept])
    log.info("trained on %d finished runs and %d learning curves", len(known.runs), len(finished))
    return Models(runtime, curves, speeds, frozenset(reported[at].user for at in kept))


def states(made: Models) -> Sequence[State]:
    """What is saved of them."""
    runtime, curves, speeds, taught_by = made
    return (
        State("runtime", runtime.version, runtime.state()),
        State(saved_curves.NAME, curves.version, saved_curves.state(curves, taught_by)),
        State("speed", speeds.version, speeds.state()),
    )


def save(ledger: Ledger, trained: Sequence[State], now: float) -> None:
    """Save them in the ledger, as trained at `now`, in seconds since the epoch."""
    for each in trained:
        ledger.save_model(*each, now)


def load_saved(ledger: Ledger, model: RuntimeModel) -> Models | None:
    """The predictors as last saved; None if there are none, or of another model or version: they are to be trained."""
    runtime, curves, speeds = (ledger.model(name) for name in ("runtime", saved_curves.NAME, "speed"))
    if runtime is None or curves is None or speeds is None or runtime[2].get("model") != model:
        return None
    try:
        curve_predictor, taught_by = saved_curves.from_state(curves[2])
        return Models(
            RuntimePredictor.from_state(runtime[2]),
            curve_predictor,
            SeenSpeeds.from_state(speeds[2]),
            taught_by,
        )
    except ValueError as error:
        log.info("%s", error)
        return None


def saved_speeds(ledger: Ledger) -> SeenSpeeds:
    """The step times as last saved; none where there are none of this version."""
    saved = ledger.model("speed")
    return SeenSpeeds.from_state(saved[2]) if saved is not None and saved[0] == SeenSpeeds.version else SeenSpeeds()


def last_trained(ledger: Ledger) -> float:
    """When the predictors were last saved, in seconds since the epoch; 0 if never."""
    saved = ledger.model("runtime")
    return 0.0 if saved is None else saved[1]


def finished_curves(ledger: LedgerFile) -> list[Floats]:
    """The curves (n,) of the target's quantity at points one step apart, higher is better, of runs that completed."""
    return [curve for run, reports in _runs_with_reports(ledger) if (curve := _curve(run, reports)) is not None]


def _runs_with_reports(ledger: LedgerFile) -> Iterator[tuple[FinishedRun, Sequence[Report]]]:
    """The latest finished runs, the last to end first, with their reports."""
    for run in run_queries.latest_finished_runs(ledger, MAX_CURVES, KIND_RUNS, runs_of_a_user(MAX_CURVES)):
        yield run, run_queries.reports(ledger, run.id)


def _curve(run: FinishedRun, reports: Sequence[Report]) -> Floats | None:
    """One of the `finished_curves`; None for a curve with too few points, or with impossible values."""
    target = run.directives.get("target") or {"quantity": "accuracy", "relation": ">="}
    values = [(report.iteration, report.quantities.get(target["quantity"])) for report in reports]
    points = np.array([(at, value) for at, value in values if value is not None], dtype=float).reshape(-1, 2)
    points[:, 0] += len(points) > 0 and points[0, 0] == 0  # as `columns` counts
    if len(points) < MIN_POINTS or not np.abs(points).max() < LARGEST_BELIEVABLE:
        return None
    sign = -1.0 if target["relation"] == "<=" else 1.0
    return resample_evenly(points[:, 0], sign * points[:, 1], points[-1, 0])[0]


def _step_time(run: FinishedRun, reports: Sequence[Report]) -> float:
    """The median time of an iteration since the run's last restart, in seconds, with the GPUs and nodes that it had
    then; NaN where it reported too little."""
    points = np.array([(each.iteration, each.time) for each in reports if each.restarts == run.restarts], dtype=float)
    if len(points) < MIN_POINTS:
        return np.nan
    with np.errstate(all="ignore"):  # reported times may be as close together as floats can be
        return float(np.median(np.diff(points[:, 1]) / np.diff(points[:, 0])))


def _whose(run: FinishedRun) -> tuple[str, str]:
    """The user and the kind of a run."""
    return run.user, kind_of(run.directives.get("type") or "", run.user, run.name)


def _metadata(run: FinishedRun) -> Meta:
    return curve_metadata(run.directives.get("type") or "", run.name)


def _work(params: float | Mapping[str, Any] | None) -> str:
    """The sizes and kinds of a run's work, as `Params.text` has them."""
    return Params(**params).text if isinstance(params, Mapping) else ""


def _as_job(run: FinishedRun) -> Job:
    same = ("user", "account", "partition", "qos", "name", "cpus", "memory", "time_limit")
    known = known_at_submit(
        **{name: getattr(run, name) for name in same},
        kind=run.directives.get("type") or "",
        gpus=run.of_gpus.whole,
        gpu_type=run.of_gpus.only_type,
        submit=float(run.first_submit),
        work=_work(run.directives.get("params")),
    )
    return {**known, "end": run.end, "bound": run.predicted_high}
