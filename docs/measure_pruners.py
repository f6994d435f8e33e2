"""OptStop beside Optuna's own pruners, in real studies that replay finished searches.

`python -m docs.measure_pruners ACCURACIES LOSSES` takes the runs of one group and length for a search, where there are
ten or more, and replays each search in random orders, one trial after the other: the sampler has no part, so all
pruners meet the same trials. Epochs used, of all; how often the best run is completed; how far the last value of the
best completed run is from the best, in points of accuracy, or in percent of the loss. Means over the searches, each
the mean of its orders, with their 95% intervals.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, PercentilePruner, SuccessiveHalvingPruner
from optuna.trial import TrialState
from scipy.stats import t

from predictors.arrays import Floats
from predictors.trials.curves import FEWEST_OBSERVED
from slurmplug.integrations.optuna import OptStopPruner
from slurmplug.learning.dataset_files import read_accuracy_curves, read_loss_curves

ORDERS, FEWEST_RUNS, SHORTEST = 20, 10, 20
PRUNERS: Mapping[str, Callable[[int], BasePruner]] = {
    "OptStopPruner": OptStopPruner,
    "MedianPruner": lambda _: MedianPruner(),
    "MedianPruner, from the fifth report": lambda _: MedianPruner(n_warmup_steps=FEWEST_OBSERVED - 1),
    "PercentilePruner(25)": lambda _: PercentilePruner(25.0),
    "PercentilePruner(25), from the fifth report": lambda _: PercentilePruner(25.0, n_warmup_steps=FEWEST_OBSERVED - 1),
    "SuccessiveHalvingPruner": lambda _: SuccessiveHalvingPruner(),
    "SuccessiveHalvingPruner, from the fifth report": lambda _: SuccessiveHalvingPruner(min_resource=FEWEST_OBSERVED),
    "HyperbandPruner": lambda n: HyperbandPruner(max_resource=n),
}


def searches(runs: Sequence[tuple[str, Floats]]) -> dict[str, list[Floats]]:
    """The runs of one group and length, where they are enough, by name."""
    found = defaultdict(list)
    for group, values in runs:
        if len(values) >= SHORTEST and np.isfinite(values).all():
            found[f"{group}, {len(values)} epochs"].append(values)
    return {name: curves for name, curves in found.items() if len(curves) >= FEWEST_RUNS}


def replayed(curves: Sequence[Floats], direction: str, pruner: BasePruner) -> tuple[float, float, bool]:
    """Share of the epochs used, the last value of the best completed run, and whether it is the best of all."""
    study = optuna.create_study(direction=direction, pruner=pruner, study_name="replayed")  # Hyperband uses the name
    used, completed = 0, []
    for curve in curves:
        trial = study.ask()
        for epoch, value in enumerate(curve.tolist()):
            trial.report(value, epoch)
            used += 1
            if epoch < len(curve) - 1 and trial.should_prune():
                study.tell(trial, state=TrialState.PRUNED)
                break
        else:
            study.tell(trial, curve[-1])
            completed.append(float(curve[-1]))
    best = max if direction == "maximize" else min
    return used / sum(map(len, curves)), best(completed), best(completed) == best(float(c[-1]) for c in curves)


def measured(curves: Sequence[Floats], direction: str, name: str) -> Floats:
    """(3,) in percent: epochs used, regret, best found; means over the orders."""
    ends = [float(curve[-1]) for curve in curves]
    rows = []
    for seed in range(ORDERS):
        order = np.random.default_rng(seed).permutation(len(curves)).tolist()
        used, end, found = replayed([curves[i] for i in order], direction, PRUNERS[name](len(curves[0])))
        regret = max(ends) - end if direction == "maximize" else end / min(ends) - 1
        rows.append((100 * used, 100 * regret, 100 * found))
    return np.array(rows).mean(axis=0)


def short(value: float) -> str:
    """With two decimals where it is small, and none where it is large."""
    return f"{value:.{2 if value < 2 else 1 if value < 20 else 0}f}"


def table(found: Mapping[str, Sequence[Floats]], direction: str) -> str:
    """One row a pruner, as Markdown."""
    lines = [
        "| pruner | epochs used | best found | regret | in the worst search |",
        "|---|---|---|---|---|",
    ]
    for name in PRUNERS:
        rows = np.array([measured(curves, direction, name) for curves in found.values()])
        half = t.ppf(0.975, len(rows) - 1) * rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
        used, regret, best = (f"{short(m)} ± {short(h)}" for m, h in zip(rows.mean(axis=0), half, strict=True))
        lines.append(f"| {name} | {used}% | {best}% | {regret} | {rows[:, 2].min():.0f}%, {short(rows[:, 1].max())} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    accuracies, losses = (Path(name) for name in sys.argv[1:3])
    rising = searches([(run.group, run.values) for run in read_accuracy_curves([accuracies])])
    falling = searches([(name, curve) for name, curves in read_loss_curves([losses]).items() for curve in curves])
    for found, direction in ((rising, "maximize"), (falling, "minimize")):
        print(f"{len(found)} searches: " + "; ".join(f"{len(runs)} of {name}" for name, runs in found.items()))
        print(table(found, direction), "\n", flush=True)
