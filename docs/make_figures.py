"""Draws the figures of `predictors.md` into `docs/figures/`, from `tests/data/curves.jsonl.gz`: `make figures`."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from predictors.forecast import Forecast
from predictors.learning_curve import LearningCurvePredictor
from predictors.loss import LossPredictor
from predictors.trials.curves import FinishedCurve, last_value
from slurmplug.learning import dataset_files

HERE = Path(__file__).parent
DATA = HERE.parent / "tests" / "data" / "curves.jsonl.gz"
BANDS = ((0.05, 0.95), (0.15, 0.85), (0.25, 0.75), (0.35, 0.65), (0.45, 0.55))
SHARES = (0.25, 0.5)
SHOWN = (3, 22, 41)
SIZES = (0, 20, 25, 30, 40, 50, 60)


def main() -> None:
    mpl.use("Agg")
    mpl.rcParams.update({"figure.dpi": 90, "font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "svg.hashsalt": "0"})
    (HERE / "figures").mkdir(exist_ok=True)
    runs = dataset_files.read_accuracy_curves([DATA])
    draw_fans(runs)
    draw_losses(dataset_files.read_loss_curves([DATA])["MLPC"])
    draw_calibration(runs)
    draw_history(runs)


def draw_fans(runs: Sequence[FinishedCurve]) -> None:
    """Runs not in the history, with what was forecast of every later epoch after ten."""
    history = [run for i, run in enumerate(runs) if i not in SHOWN]
    predictor = fitted(history)
    _, axes = plt.subplots(1, len(SHOWN), figsize=(9, 2.8), sharey=True, layout="constrained")
    for axis, i in zip(axes, SHOWN, strict=True):
        values, n = runs[i].values, 10
        ahead = np.arange(n + 1, len(values) + 1)
        draw_fan(axis, ahead, predictor.predict_many([values[:n]] * len(ahead), ahead, [runs[i].meta] * len(ahead)))
        draw_values(axis, values, n)
    axes[0].set_ylabel("validation accuracy")
    save("curve_fan")


def draw_losses(losses: Sequence[np.ndarray]) -> None:
    """The same of losses, up to ten epochs ahead."""
    _, axes = plt.subplots(1, len(SHOWN), figsize=(9, 2.8), layout="constrained")
    for axis, i in zip(axes, SHOWN, strict=True):
        values, n = losses[i], 20
        ahead = np.arange(1, 11)
        draw_fan(axis, n + ahead, LossPredictor().predict_many([values[:n]] * len(ahead), ahead))
        draw_values(axis, values, n)
    axes[0].set_ylabel("loss")
    save("loss_fan")


def draw_calibration(runs: Sequence[FinishedCurve]) -> None:
    """How often the last value fell below each quantile: five folds by run, and cold."""
    levels = np.linspace(0.05, 0.95, 19)
    order = np.random.default_rng(0).permutation(len(runs))
    folds = np.array_split(order, 5)
    _, axes = plt.subplots(1, 2, figsize=(7, 3.3), sharey=True, layout="constrained")
    for axis, share in zip(axes, SHARES, strict=True):
        below = {"with history": [], "cold": []}
        for fold in folds:
            rest = [runs[i] for i in order if i not in set(fold.tolist())]
            tested = [runs[i] for i in fold]
            actual = np.array([run.values[-1] for run in tested])
            for name, predictor in (("with history", fitted(rest)), ("cold", LearningCurvePredictor())):
                below[name].append(actual[:, None] <= ends(predictor, tested, share).quantile(levels))
        axis.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
        for name, parts in below.items():
            axis.plot(levels, np.concatenate(parts).mean(axis=0), marker=".", label=name)
        axis.set(title=f"from {share:.0%} of the curve", xlabel="quantile", xlim=(0, 1), ylim=(0, 1))
    axes[0].set_ylabel("last values below it")
    axes[0].legend()
    save("calibration")


def draw_history(runs: Sequence[FinishedCurve]) -> None:
    """The error on twenty runs against how many others were learnt from, over four choices of both."""
    errors, last = np.zeros((len(SHARES), 4, len(SIZES))), np.zeros((len(SHARES), 4))
    for choice in range(4):
        order = np.random.default_rng(choice).permutation(len(runs))
        tested = [runs[i] for i in order[:20]]
        actual = np.array([run.values[-1] for run in tested])
        predictors = [fitted([runs[i] for i in order[20 : 20 + size]]) for size in SIZES]
        for row, share in enumerate(SHARES):
            last[row, choice] = np.abs(np.array([last_value(run.observed(share)) for run in tested]) - actual).mean()
            for column, predictor in enumerate(predictors):
                errors[row, choice, column] = np.abs(ends(predictor, tested, share).median - actual).mean()
    _, axes = plt.subplots(1, 2, figsize=(7, 3.0), sharey=True, layout="constrained")
    for axis, share, error, height in zip(axes, SHARES, errors, last.mean(axis=1), strict=True):
        axis.axhline(height, color="grey", linestyle="--", label="last value")
        axis.errorbar(SIZES, error.mean(axis=0), error.std(axis=0), marker=".", capsize=2, label="learning curve")
        axis.set(title=f"from {share:.0%} of the curve", xlabel="finished runs learnt from", ylim=(0, None))
    axes[0].set_ylabel("mean absolute error")
    axes[0].legend()
    save("error_by_history")


def fitted(runs: Sequence[FinishedCurve]) -> LearningCurvePredictor:
    return LearningCurvePredictor().fit([run.values for run in runs], [run.meta for run in runs])


def ends(predictor: LearningCurvePredictor, runs: Sequence[FinishedCurve], share: float) -> Forecast:
    """Of the last values."""
    observed = [run.observed(share) for run in runs]
    return predictor.predict_many(observed, [len(run.values) for run in runs], [run.meta for run in runs])


def draw_fan(axis: Axes, x: np.ndarray, forecast: Forecast) -> None:
    for low, high in BANDS:
        bounds = forecast.quantile([low, high])
        axis.fill_between(x, bounds[:, 0], bounds[:, 1], color="tab:blue", alpha=0.16, linewidth=0)
    axis.plot(x, forecast.median, color="tab:blue", linewidth=1)


def draw_values(axis: Axes, values: np.ndarray, seen: int) -> None:
    x = np.arange(1, len(values) + 1)
    axis.plot(x[:seen], values[:seen], color="black", linewidth=1.2)
    axis.plot(x[seen:], values[seen:], color="black", linewidth=0.8, linestyle=":")
    axis.set_xlabel("epoch")


def save(name: str) -> None:
    plt.savefig(HERE / "figures" / f"{name}.png", metadata={"Software": None})
    plt.close()


if __name__ == "__main__":
    main()
