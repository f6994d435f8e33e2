"""Policies combined with MLF-C's stops."""

from dataclasses import replace

import numpy as np

from policies.baselines.fair import Fair
from policies.mlfs.with_early_stopping import WithEarlyStopping
from predictors.forecast import Forecast
from tests.builders import NOW, forecasts, jobs, nodes, snapshot


def test_the_gpus_of_a_job_that_is_being_stopped_are_given_to_nobody_before_it_has_ended() -> None:
    """It may be long in its last iteration, in which no other job could start on them."""
    met = [0.1, 0.3, 0.5, 0.7, 0.9]
    of_jobs = jobs(
        2,
        state=["running", "pending"],
        started=[NOW - 3600, np.nan],
        gpus=4,
        gpus_min=1,
        gpus_max=4,
        restartable=True,
        stop="target",
        target=0.8,
        accuracies=[met, []],
    )
    full = snapshot(of_jobs, nodes(1, used=[[4, 1, 0]]), runs_on=np.array([[0, 0, 4]]))
    predicted = replace(forecasts(2), final=Forecast.normal([0.95, 0.95], [0.01, 0.01], "test"))
    alone = Fair().decide(full, predicted, {})
    assert [(action.job.job_id, action.kind) for action in alone.actions] == [(1, "resize"), (2, "place")]
    plan = WithEarlyStopping(Fair()).decide(full, predicted, {})
    assert [(action.job.job_id, action.kind) for action in plan.actions] == [(1, "stop")]
