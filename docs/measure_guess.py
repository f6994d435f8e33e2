"""What the guess on GPUs beyond those seen (decision 74) gives and costs on a trace that nothing else here uses.

`DATA=FOLDER python -m docs.measure_guess POLICY...` runs the first 160 jobs of each workload of Sia's `newtrace`, whose
speeds are measured, at three loads, with flat speeds beyond what was seen and with the guess, whether the policy takes
it or not; MLF-C stops for all. Mean JCT in minutes, and the mean change by the guess with its 95% interval over the
workloads.
"""

import sys
from typing import Any

import numpy as np
from scipy.stats import t

from docs.results.cases import DATA, SLAQ, Case, run
from slurmplug.forecasting.speeds.speed_fans import GUESS, SpeedFans

WORKLOADS, JOBS = (1, 3, 5, 7), 160
LOADS = (0.5, 1.0, 2.0)
_speeds = SpeedFans.speeds


def mean_jct(policy: str, load: float, guess: float) -> np.ndarray:
    """(workloads,) seconds, where so much of the rise beyond what was seen counts."""

    def speeds(fans: SpeedFans, snapshot: Any, as_requested: Any, _: float = 0.0) -> Any:
        return _speeds(fans, snapshot, as_requested, guess)

    SpeedFans.speeds = speeds  # type: ignore[method-assign]
    settings = SLAQ if policy == "slaq" else ()
    cases = [
        Case(f"pollux:{DATA}/workloads/sia/newtrace/workload-{number}.csv", policy, load=load, stopping=True,
             settings=settings, jobs=JOBS)
        for number in WORKLOADS
    ]  # fmt: skip
    return np.array([float(run(case)["jct_mean"]) for case in cases])


def compared(flat: np.ndarray, guessed: np.ndarray) -> str:
    """Mean JCT of both, and the mean change in percent with its interval."""
    change = 100 * (guessed / flat - 1)
    half = t.ppf(0.975, len(change) - 1) * change.std(ddof=1) / np.sqrt(len(change))
    return f"{flat.mean() / 60:.0f} to {guessed.mean() / 60:.0f}: {change.mean():+.0f} ± {half:.0f}%"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for load in LOADS:
            print(f"{name} {load:g} {compared(mean_jct(name, load, 0.0), mean_jct(name, load, GUESS))}", flush=True)
