"""A trial of an Optuna study that the elements of a Slurm array share: OptStop prunes it, and it survives a requeue.

`python optuna_sweep.py JOBID` shows the study of an array: how its trials ended, and the best one.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import joblib
import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from slurmplug.integrations.optuna import OptStopPruner
from slurmplug_report import Stop, checkpoint_requested, report

EPOCHS = 60
SAVE_EVERY = 10


def storage_in(folder: Path) -> JournalStorage:
    """A file that all nodes see."""
    path = folder.resolve() / "study.log"  # of a relative one, the lock of a killed job would be waited for for good
    return JournalStorage(JournalFileBackend(str(path)))


def fail_trials_of_ended_elements(study: optuna.Study, array: str, folder: Path) -> None:
    """Trials of elements that were cancelled or killed are still running as far as Optuna knows."""
    unfinished = study.get_trials(states=(TrialState.RUNNING,))  # before squeue lists: no trial of a later element
    squeue = ["squeue", "--noheader", "--array", f"--user={folder.owner()}", "--format=%F %K"]
    listed = subprocess.run(squeue, check=True, capture_output=True, text=True).stdout.splitlines()
    live = {element for job, element in map(str.split, listed) if job == array}
    for trial in unfinished:
        element = trial.user_attrs.get("element")
        if not live or (element is not None and element not in live):
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def show(array: str) -> None:
    """Print how the trials of a study ended, and the best one."""
    folder = Path(f"optuna_sweep-{array}")
    if not (folder / "study.log").exists():
        sys.exit(f"there is no {folder}/study.log: run this in the folder from which the array was submitted")
    study = optuna.load_study(study_name=array, storage=storage_in(folder))
    fail_trials_of_ended_elements(study, array, folder)
    states = Counter(trial.state.name.lower() for trial in study.get_trials())
    print("trials:", ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none")
    print_best(study)


def print_best(study: optuna.Study) -> None:
    """Print the best trial so far, if any is complete."""
    if any(trial.state == TrialState.COMPLETE for trial in study.get_trials()):
        best = study.best_trial
        print(f"best so far: accuracy {best.value:.4f}, {best.params}", flush=True)


def train(array: str, element: str) -> int:
    """Train the trial that the study suggests next; the exit status."""
    folder = Path(f"optuna_sweep-{array}")
    folder.mkdir(exist_ok=True)
    study = optuna.create_study(
        study_name=array,
        storage=storage_in(folder),
        load_if_exists=True,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=int(element)),
        pruner=OptStopPruner(n_reports=EPOCHS),
    )
    for interrupted in study.get_trials(states=(TrialState.RUNNING,)):
        if interrupted.user_attrs.get("element") == element:  # until this job was requeued
            study.tell(interrupted.number, state=TrialState.FAIL)
            first_number = interrupted.user_attrs.get("continues", interrupted.number)
            study.enqueue_trial(interrupted.params, user_attrs={"continues": first_number})
    fail_trials_of_ended_elements(study, array, folder)
    trial = study.ask()
    trial.set_user_attr("element", element)
    hidden = trial.suggest_categorical("hidden", [16, 64, 256])
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    name = trial.user_attrs.get("continues", trial.number)
    saved = folder / f"trial-{name}.joblib"

    x, y = load_digits(return_X_y=True)
    x_train, x_valid, y_train, y_valid = train_test_split(x / 16, y, random_state=0)
    if saved.exists():
        model, accuracies = joblib.load(saved)
        for epoch, accuracy in enumerate(accuracies):
            trial.report(accuracy, epoch)
    else:
        model, accuracies = MLPClassifier(hidden_layer_sizes=hidden, learning_rate_init=rate, random_state=0), []
    print(f"trial {name}, hidden {hidden}, rate {rate:.5f}: training from epoch {len(accuracies)}", flush=True)

    stop, pruned = Stop(), False
    for epoch in range(len(accuracies), EPOCHS):
        time.sleep(0.3)  # as long as an epoch on a larger data set
        model.partial_fit(x_train, y_train, classes=np.unique(y))
        accuracies.append(float(model.score(x_valid, y_valid)))
        trial.report(accuracies[-1], epoch)
        stop = report(iteration=epoch, loss=model.loss_, accuracy=accuracies[-1])
        pruned = trial.should_prune() or (bool(stop) and stop.reason != "target")  # at its target a trial is complete
        if stop or pruned or checkpoint_requested() or epoch % SAVE_EVERY == SAVE_EVERY - 1 or epoch == EPOCHS - 1:
            part = saved.with_suffix(".part")  # if the job is killed meanwhile, the previous checkpoint remains
            joblib.dump((model, accuracies), part)
            part.replace(saved)
            report(checkpoint=epoch)
        if stop or pruned:
            break

    if pruned:
        study.tell(trial, state=TrialState.PRUNED)
        print(f"trial {name}: pruned after epoch {epoch}", flush=True)
    else:
        study.tell(trial, accuracies[-1])
    print_best(study)
    return stop.status


if len(sys.argv) > 1:
    show(sys.argv[1])
else:
    sys.exit(train(os.environ["SLURM_ARRAY_JOB_ID"], os.environ["SLURM_ARRAY_TASK_ID"]))
