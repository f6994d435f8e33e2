"""OptStop as a pruner, in studies of the real Optuna."""

from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from slurmplug.integrations.optuna import OptStopPruner

N = 40
EPOCHS = np.arange(N)
GOOD = 0.9 - 0.5 * np.exp(-EPOCHS / 8)
BETTER = 0.95 - 0.6 * np.exp(-EPOCHS / 5)
HOPELESS = 0.4 - 0.1 * np.exp(-EPOCHS / 3)


def study_of(direction: str = "maximize", **options: object) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(direction=direction, pruner=OptStopPruner(n_reports=N), **options)  # type: ignore[arg-type]


def run(study: optuna.Study, curve: Sequence[float] | np.ndarray, steps: Sequence[int] | np.ndarray = EPOCHS) -> int:
    """A trial that reports this curve: how many values it has reported when it ends."""
    trial = study.ask()
    for n, (step, value) in enumerate(zip(steps, curve, strict=False), 1):
        trial.report(float(value), int(step))
        if trial.should_prune():
            study.tell(trial, state=TrialState.PRUNED)
            return n
    study.tell(trial, float(curve[-1]) if np.isfinite(curve[-1]) else 0.0)
    return len(curve)


def test_a_trial_that_will_not_come_to_the_best_is_pruned_and_a_better_one_is_not() -> None:
    study = study_of()
    assert run(study, HOPELESS) == N  # nothing to compare it with
    assert run(study, GOOD) == N
    assert 5 <= run(study, HOPELESS) < N / 2
    assert run(study, BETTER) == N
    assert study.best_value == BETTER[-1]


def test_losses_are_minimised() -> None:
    study = study_of("minimize")
    losses = {"good": 0.1 + 2 * np.exp(-EPOCHS / 6), "better": 0.05 + 2 * np.exp(-EPOCHS / 6)}
    assert run(study, losses["good"]) == N
    assert run(study, 1.8 + 0.3 * np.exp(-EPOCHS / 3)) < N / 2
    assert run(study, losses["better"]) == N


def test_the_best_of_the_last_values_counts_not_of_the_values_on_the_way() -> None:
    study = study_of()
    run(study, [*BETTER[:-1], 0.3])
    assert run(study, HOPELESS) == N


def test_a_trial_may_report_every_fifth_epoch_and_in_any_order() -> None:
    study = study_of()
    run(study, GOOD)
    steps = 5 * EPOCHS
    steps[[0, 1]] = steps[[1, 0]]
    curve = HOPELESS.copy()
    curve[[0, 1]] = curve[[1, 0]]
    assert run(study, curve, steps) == run(study, HOPELESS) < N / 2


def test_nan_is_no_value_and_nothing_but_nan_is_pruned() -> None:
    study = study_of()
    run(study, [np.nan] * 4)  # completed, without a value to compare with
    assert run(study, GOOD) == N
    assert run(study, [np.nan] * N) == 5
    assert run(study, [np.nan, np.inf, *BETTER[2:]]) == N


def test_trials_that_completed_without_a_report_are_left_out() -> None:
    study = study_of()
    study.tell(study.ask(), 0.99)
    assert run(study, HOPELESS) == N


def test_reports_beyond_those_that_were_announced_prune_nothing() -> None:
    study = study_of()
    run(study, GOOD)
    trial = study.ask()
    for step in range(N + 5):
        trial.report(0.3, step)
    assert not trial.should_prune()


def _good_trial_elsewhere(path: str) -> None:
    run(_shared(path), GOOD)


def _shared(path: str) -> optuna.Study:
    return study_of(study_name="shared", storage=JournalStorage(JournalFileBackend(path)), load_if_exists=True)


def test_a_trial_of_another_process_counts(tmp_path: Path) -> None:
    path = str(tmp_path / "study.log")
    process = get_context("spawn").Process(target=_good_trial_elsewhere, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert run(_shared(path), HOPELESS) < N / 2


@pytest.mark.parametrize("n", [-1, 0, 5])
def test_too_few_reports_to_prune_anything_are_an_error(n: int) -> None:
    with pytest.raises(ValueError, match=f"n_reports is {n}"):
        OptStopPruner(n_reports=n)
