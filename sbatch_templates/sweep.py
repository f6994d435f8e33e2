"""A trial of a sweep: train with the hyperparameters of this element of the array, save, and go on after a requeue."""

import os
import sys
import time
from itertools import product
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from slurmplug_report import checkpoint_requested, report

EPOCHS = 60
SAVE_EVERY = 10
TRIALS = list(product((16, 64, 256), (0.0003, 0.003, 0.03, 0.3)))  # --array has to count them: 0-11

trial = int(os.environ["SLURM_ARRAY_TASK_ID"])
hidden, rate = TRIALS[trial]
folder = Path(f"sweep-{os.environ['SLURM_ARRAY_JOB_ID']}")  # one for the sweep, whichever element runs first
folder.mkdir(exist_ok=True)
saved = folder / f"trial-{trial}.joblib"

x, y = load_digits(return_X_y=True)
x_train, x_valid, y_train, y_valid = train_test_split(x / 16, y, random_state=0)
if saved.exists():
    model, first = joblib.load(saved)
    first += 1
else:
    model, first = MLPClassifier(hidden_layer_sizes=hidden, learning_rate_init=rate, random_state=0), 0
status = 0
print(f"trial {trial}, {hidden} hidden units, learning rate {rate}: training from epoch {first}", flush=True)

for epoch in range(first, EPOCHS):
    time.sleep(0.3)  # as long as an epoch on a larger data set
    model.partial_fit(x_train, y_train, classes=np.unique(y))
    accuracy = model.score(x_valid, y_valid)
    stop = report(iteration=epoch, loss=model.loss_, accuracy=accuracy)
    if stop or checkpoint_requested() or epoch % SAVE_EVERY == SAVE_EVERY - 1 or epoch == EPOCHS - 1:
        part = saved.with_suffix(".part")  # if the job is killed meanwhile, the previous checkpoint remains
        joblib.dump((model, epoch), part)
        part.replace(saved)
        report(checkpoint=epoch)
        result = f"accuracy {accuracy:.4f} after epoch {epoch}: trial {trial}, hidden {hidden}, rate {rate}"
        saved.with_suffix(".txt").write_text(f"{result}\n")
    if stop:
        status = stop.status
        break

sys.exit(status)
