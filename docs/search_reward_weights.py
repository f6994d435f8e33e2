"""Searches the weights of MLF-RL's reward (equation 7) by Bayesian optimisation, then by local variation.

    python -m docs.search_reward_weights FOLDER

Each trial trains a model with the weights that Optuna suggests, after those that ship and the paper's, and judges it on
eight workloads that no training and no choice between networks has: by how much better each term of equation 7 is than
MLF-H's, as a logarithm, in the mean of the five. What was tried is kept in FOLDER; the same command goes on. Prints the
trials, the best first. Needs the extra `rl`, and Optuna.
"""

import sys
from pathlib import Path

import numpy as np
import optuna

from slurmplug.rl.mlf_rl import BETTER, TERMS, Case, Settings, compared, train
from slurmplug.rl.training_workloads import CHOOSING

PAPER = (0.5, 0.55, 0.25, 0.15, 0.15)
LEAST, MOST = 0.02, 2.0
FIRST, ROUNDS, VARIATIONS = 4, 10, 4
"""trials at random, by Optuna's model, and beside the best"""
BESIDE = 0.3
"""the standard deviation of the logarithm of a weight that is varied"""
HELD_OUT = CHOOSING[Settings.choosing :]


def gained(weights: tuple[float, ...]) -> dict[str, float]:
    """The gain of a model that is trained with these weights, and each term's factor to MLF-H's."""
    settings = Settings(weights=weights)  # type: ignore[arg-type]
    arrays = train(settings).arrays
    figures = compared([Case.of(settings, seed) for seed in HELD_OUT], arrays, settings)
    terms = {name: figures[name] for name in TERMS}
    return {"gain": float(np.mean(BETTER * np.log([*terms.values()]))), **terms}


def objective(trial: optuna.Trial) -> float:
    """Of Optuna."""
    weights = tuple(trial.suggest_float(name, LEAST, MOST, log=True) for name in TERMS)
    figures = gained(weights)
    for name, value in figures.items():
        trial.set_user_attr(name, value)
    print(trial.number, [round(weight, 3) for weight in weights], figures, file=sys.stderr, flush=True)
    return figures["gain"]


def main(folder: Path) -> None:
    """Search and print."""
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="weights",
        storage=f"sqlite:///{folder}/weights.db",
        load_if_exists=True,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=2 + FIRST),
    )
    given = (Settings.weights, PAPER)
    if not study.trials:
        for weights in given:
            study.enqueue_trial(dict(zip(TERMS, weights, strict=True)))
    by_model = len(given) + FIRST + ROUNDS
    while (done := len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))) < by_model + VARIATIONS:
        if done >= by_model:
            rng = np.random.default_rng(done)
            beside = {name: w * np.exp(BESIDE * rng.standard_normal()) for name, w in study.best_params.items()}
            study.enqueue_trial({name: float(np.clip(w, LEAST, MOST)) for name, w in beside.items()})
        study.optimize(objective, n_trials=1)
    head = ["gain", *(f"weight of {name}" for name in TERMS), *TERMS]
    print("| " + " | ".join(head) + " |\n| " + " | ".join("---" for _ in head) + " |")
    for trial in sorted(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]), key=lambda each: -each.value):
        cells = [f"{trial.value:+.4f}", *(f"{trial.params[name]:.3g}" for name in TERMS)]
        cells += [f"{100 * (trial.user_attrs[name] - 1):+.1f}%" for name in TERMS]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
