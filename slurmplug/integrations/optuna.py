"""OptStop as a pruner of Optuna, in place of Optuna's own: `create_study(pruner=OptStopPruner(n_reports=60))`."""

from __future__ import annotations

import numpy as np
from optuna.pruners import BasePruner
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from predictors.arrays import Floats
from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossPredictor
from predictors.trials.curves import FEWEST_OBSERVED
from predictors.trials.optstop import RISK


class OptStopPruner(BasePruner):
    """Prunes a trial once P(its last value is at least as good as the best so far) is below 0.05.

    The predictive termination criterion (Domhan, Springenberg, Hutter 2015, section 3.3), which is OptStop (MLFS 3.5)
    for the trials of a search. The best so far is the best last value of the study's completed trials, whichever
    process ran them; so the first trials are completed. Forecasts are made without a history. Of losses, which are to
    be minimised, each of two predictors is overconfident far ahead, so the more hopeful of them counts.

    n_reports: how many values a trial that is not pruned reports (`trial.report`), at even steps. No trial is pruned
    before it has reported `FEWEST_OBSERVED`; it is then, if all of them are NaN. Raises ValueError for an `n_reports`
    at which nothing is left to prune.
    """

    def __init__(self, n_reports: int) -> None:
        if n_reports <= FEWEST_OBSERVED:
            raise ValueError(
                f"n_reports is {n_reports}; trials that report {FEWEST_OBSERVED} values have none to spare"
            )
        self._n_reports = n_reports
        self._curves = LearningCurvePredictor()
        self._losses = LossPredictor()

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to prune this trial; asked by `trial.should_prune()`."""
        values = _reported(trial)
        if not FEWEST_OBSERVED <= len(values) < self._n_reports:
            return False
        if not np.isfinite(values).any():
            return True
        ends = _last_values(study)
        if not len(ends):
            return False
        if study.direction == StudyDirection.MAXIMIZE:
            return self._rises_to(values, float(ends.max())) < RISK
        best = float(ends.min())
        return max(self._rises_to(-values, -best), self._falls_to(values, best)) < RISK

    def _rises_to(self, values: Floats, best: float) -> float:
        return float(self._curves.predict(values, self._n_reports).sf(best)[0])

    def _falls_to(self, values: Floats, best: float) -> float:
        return 1.0 - float(self._losses.predict(values, self._n_reports - len(values)).sf(best)[0])


def _last_values(study: Study) -> Floats:
    """(n,) the last value that each completed trial reported, of those that are finite."""
    completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    ends = np.array([_reported(trial)[-1] for trial in completed if trial.intermediate_values], dtype=np.float64)
    return ends[np.isfinite(ends)]


def _reported(trial: FrozenTrial) -> Floats:
    """(n,) the values that the trial has reported, by step."""
    return np.array([value for _, value in sorted(trial.intermediate_values.items())], dtype=np.float64)
