"""Train on all GPUs of the job, save a checkpoint when one is requested, and resume from it after a restart."""

import os
import sys
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from slurmplug_report import checkpoint_requested, report

EPOCHS = 200
SAVE_EVERY = 20
SAVED = Path(f"checkpoint-{os.environ['SLURM_JOB_ID']}.joblib")


def save(model: MLPClassifier, epoch: int) -> None:
    """Save atomically: if the job is killed meanwhile, the previous checkpoint remains."""
    part = SAVED.with_suffix(".part")
    joblib.dump((model, epoch), part)
    part.replace(SAVED)
    report(checkpoint=epoch)


gpus = len([gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu])
batch = 32 * max(1, gpus)  # the same batch size on each GPU, however many there are

x, y = load_digits(return_X_y=True)
x_train, x_valid, y_train, y_valid = train_test_split(x / 16, y, random_state=0)
if SAVED.exists():
    model, first = joblib.load(SAVED)
    model.set_params(batch_size=batch)
    first += 1
else:
    model, first = MLPClassifier(hidden_layer_sizes=(256, 256), batch_size=batch, random_state=0), 0
status = 0
print(f"training from epoch {first} on {gpus} GPUs", flush=True)

for epoch in range(first, EPOCHS):
    model.partial_fit(x_train, y_train, classes=np.unique(y))
    stop = report(iteration=epoch, loss=model.loss_, accuracy=model.score(x_valid, y_valid))
    if stop or checkpoint_requested() or epoch % SAVE_EVERY == SAVE_EVERY - 1 or epoch == EPOCHS - 1:
        save(model, epoch)
    if stop:
        status = stop.status
        break

sys.exit(status)
