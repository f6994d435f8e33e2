"""Runs that report what is not so, under a type that another user's jobs declare, too."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from policies.snapshot import JobKey
from predictors.forecast import Forecast
from slurmplug.forecasting.speeds.kind_paces import KindPaces
from slurmplug.forecasting.speeds.seen_speeds import SeenSpeeds
from slurmplug.forecasting.speeds.speed_fans import SpeedFans
from tests.builders import jobs, nodes, snapshot
from tests.cheat.harness import HONEST, Outcome, Row, Stage

TRUE_STEP = 10.0


class Runs(NamedTuple):
    """What the cheater's runs report: seconds an iteration; how many runs; how many honest users have run the type."""

    step: float
    number: int
    honest: int
    own: int = 0
    """runs of the bystander's own"""


ATTEMPTS: Mapping[str, Runs] = {
    f"{step:g} s an iteration, {number} runs, beside {honest} honest users, {own} own runs": Runs(
        step, number, honest, own
    )
    for step in (2400.0, 0.01)
    for number, honest, own in ((1, 0, 0), (100, 0, 0), (100, 1, 0), (100, 2, 0), (100, 4, 0), (100, 0, 1), (100, 4, 1))
}


def play(attempt: str, stage: Stage) -> Outcome:
    """How far the bystander's speed is forecast from what it is forecast without the cheater; 1 is as far as that."""
    if attempt == HONEST:
        return Outcome(1.0, 1.0)
    runs = ATTEMPTS[attempt]
    ratio = speed(runs) / speed(runs._replace(number=0))
    return Outcome(1.0, min(ratio, 1.0 / ratio))


def speed(runs: Runs) -> float:
    """Iterations per second that are forecast for the bystander's job on two GPUs."""
    steps = [("bystander", TRUE_STEP)] * runs.own + [("cheater", runs.step)] * runs.number
    steps += [(f"honest {user}", TRUE_STEP * (1.0 + 0.01 * user)) for user in range(runs.honest) for _ in range(5)]
    fans = SpeedFans(KindPaces(SeenSpeeds()))
    type_of: dict[str, Any] = {"kind": "resnet50", "gpus": 2, "gpus_max": 8, "max_iterations": 90}
    if steps:
        users, seconds = zip(*steps, strict=True)
        train = jobs(len(steps), user=users, iteration_time=seconds, iteration=9, state="running", **type_of)
        on = np.array([[row, row // 2, 2] for row in range(len(steps))])
        fans.speeds(snapshot(train, nodes(len(steps)), runs_on=on), Forecast.unknown(len(steps)))
    waits = snapshot(jobs(keys=(JobKey("testing", 9_999, 0),), user="bystander", **type_of), nodes(4))
    fan = fans.speeds(waits, Forecast.lognormal([90 * TRUE_STEP], 0.5, "test"))
    return float(fan.at([0], 2).median[0])


ROWS = (Row("18", "reports under another's --type", "error of a bystander's speed", tuple(ATTEMPTS), play),)
