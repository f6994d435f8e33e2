"""A trial of an Optuna study that the elements of a Slurm array share: OptStop prunes it, and it survives a requeue."""

import os
import subprocess
import sys
import time
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

array, element = os.environ["SLURM_ARRAY_JOB_ID"], os.environ["SLURM_ARRAY_TASK_ID"]
folder = Path(f"optuna_sweep-{array}")
folder.mkdir(exist_ok=True)
study = optuna.create_study(
    study_name=array,
    storage=JournalStorage(JournalFileBackend(str(folder / "study.log"))),  # a file that all nodes see
    load_if_exists=True,
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=int(element)),
    pruner=OptStopPruner(n_reports=EPOCHS),
)
unfinished = study.get_trials(states=(TrialState.RUNNING,))
squeue = ["squeue", "--noheader", "--array", f"--jobs={array}", "--format=%K"]
live = subprocess.run(squeue, check=True, capture_output=True, text=True).stdout.split()
for interrupted in unfinished:
    of_element = interrupted.user_attrs.get("element")
    if of_element == element:  # until this job was requeued
        study.tell(interrupted.number, state=TrialState.FAIL)
        first_number = interrupted.user_attrs.get("continues", interrupted.number)
        study.enqueue_trial(interrupted.params, user_attrs={"continues": first_number})
    elif of_element is not None and of_element not in live:  # it was cancelled or killed
        study.tell(interrupted.number, state=TrialState.FAIL, skip_if_finished=True)
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
if any(each.state == TrialState.COMPLETE for each in study.get_trials()):
    best = study.best_trial
    print(f"best so far: accuracy {best.value:.4f}, {best.params}", flush=True)
sys.exit(stop.status)
