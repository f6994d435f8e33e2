"""Runs that report what is not so, under a type that another user's jobs declare, too."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from predictors.forecast import Forecast
from slurmplug.forecasting.speed_fans import PlacementShape, SeenSpeeds, SpeedFans, Whose
from tests.builders import jobs, nodes, snapshot
from tests.cheat.harness import HONEST, Outcome, Row, Stage

TRUE_STEP = 10.0
KIND = "type resnet50"


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
    for number, honest, own in ((1, 0, 0), (500, 0, 0), (500, 1, 0), (500, 2, 0), (500, 4, 0), (500, 0, 1), (500, 4, 1))
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
    seen = SeenSpeeds()

    def add(user: str, number: int, step: float) -> None:
        for run in range(number):
            seen.add(Whose(KIND, user), PlacementShape(2, 1), (user, run), step)

    add("bystander", runs.own, TRUE_STEP)
    for user in range(runs.honest):
        add(f"honest {user}", 5, TRUE_STEP * (1.0 + 0.01 * user))
    add("cheater", runs.number, runs.step)
    waits = snapshot(jobs(user="bystander", kind="resnet50", gpus=2, gpus_max=8, max_iterations=90), nodes(4))
    fan = SpeedFans(seen).speeds(waits, Forecast.certain(np.array([90 * TRUE_STEP]), np.array(["test"])))
    return float(fan.at([0], 2).median[0])


ROWS = (Row("18", "reports under another's --type", "error of a bystander's speed", tuple(ATTEMPTS), play),)
