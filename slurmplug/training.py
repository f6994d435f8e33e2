"""From finished runs in the ledger to predictors, kept there for the next start."""

import json
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from predictors.arrays import Floats
from predictors.learning_curve import LearningCurvePredictor
from predictors.runtime import RuntimeModel, RuntimePredictor
from predictors.submitted import Job
from slurmplug.forecaster import BEYOND_BELIEF, even, known_at_submit
from slurmplug.ledger import Ledger

LATEST_RUNS = 20_000
LATEST_CURVES = 2_000
FEWEST_POINTS = 5
"""A shorter curve teaches nothing about curves."""

log = logging.getLogger(__name__)


def trained(ledger: Ledger, model: RuntimeModel, now: float) -> tuple[RuntimePredictor, LearningCurvePredictor]:
    """Predictors fitted on the ledger's history, and saved in it."""
    runtime, curves = RuntimePredictor(model), LearningCurvePredictor()
    runs = ledger.query(f"SELECT * FROM history ORDER BY end DESC LIMIT {LATEST_RUNS}")[::-1]
    if runs:
        runtime.fit([_finished(run) for run in runs], [run["runtime"] for run in runs])
    finished = finished_curves(ledger)
    if finished:
        curves.fit(finished)
    ledger.save_model("runtime", runtime.version, runtime.state(), now)
    ledger.save_model("learning curve", curves.version, curves.state(), now)
    log.info("trained on %d finished runs and %d learning curves", len(runs), len(finished))
    return runtime, curves


def remembered(ledger: Ledger, model: RuntimeModel) -> tuple[RuntimePredictor, LearningCurvePredictor] | None:
    """The predictors as last saved; None where there are none, or they are of another model or version: train anew."""
    runtime, curves = ledger.model("runtime"), ledger.model("learning curve")
    if runtime is None or curves is None or runtime[2].get("model") != model:
        return None
    try:
        return RuntimePredictor.from_state(runtime[2]), LearningCurvePredictor.from_state(curves[2])
    except ValueError as error:
        log.info("%s", error)
        return None


def last_trained(ledger: Ledger) -> float:
    """When the predictors were last saved, in seconds since the epoch; 0 where they never were."""
    saved = ledger.model("runtime")
    return 0.0 if saved is None else saved[1]


def runs_to_learn(ledger: Ledger, since: float) -> tuple[int, int]:
    """How many runs have finished since then, and in all."""
    told = ledger.query("SELECT coalesce(sum(end > ?), 0) AS fresh, count(*) AS runs FROM history", since)[0]
    return int(told["fresh"]), int(told["runs"])


def finished_curves(ledger: Ledger) -> list[Floats]:
    """The target's quantity against points one step apart, of runs that went to their end."""
    curves = []
    for run in ledger.query(f"SELECT id, directives FROM history ORDER BY end DESC LIMIT {LATEST_CURVES}"):
        asked = json.loads(run["directives"] or "null") or {}
        target = asked.get("target") or {"quantity": "accuracy", "relation": ">="}
        told = [
            (point["iteration"], json.loads(point["quantities"]).get(target["quantity"]))
            for point in ledger.query(
                "SELECT iteration, quantities, max(restarts) FROM progress WHERE job = ? GROUP BY iteration",
                run["id"],
            )
        ]
        points = np.array([(at, value) for at, value in told if value is not None], dtype=float).reshape(-1, 2)
        points[:, 0] += len(points) > 0 and points[0, 0] == 0  # as `columns` counts
        if len(points) >= FEWEST_POINTS and np.abs(points).max() < BEYOND_BELIEF:
            sign = -1.0 if target["relation"] == "<=" else 1.0
            curves.append(even(points[:, 0], sign * points[:, 1], points[-1, 0])[0])
    return curves


def _finished(run: Mapping[str, Any]) -> Job:
    asked = json.loads(run["directives"] or "null") or {}
    same = ("user", "account", "partition", "qos", "name", "gpus", "cpus", "memory", "time_limit")
    known = known_at_submit(
        **{name: run[name] for name in same}, kind=asked.get("type") or "", submit=float(run["first_submit"])
    )
    return {**known, "end": run["end"]}
