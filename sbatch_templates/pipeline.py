"""The parts of a pipeline, each a job, which share a folder: `pipeline.py preprocess|train|evaluate FOLDER`."""

import sys
import time
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import classification_report, log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from slurmplug_report import checkpoint_requested, report

EPOCHS = 60
SAVE_EVERY = 10


def preprocess(folder: Path) -> int:
    """Divide the images into those to train, to validate and to test with, and scale the pixels by the first."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.2, random_state=0)
    x, x_valid, y, y_valid = train_test_split(x, y, test_size=0.2, random_state=0)
    scale = StandardScaler().fit(x).transform
    images = {"x_train": scale(x), "x_valid": scale(x_valid), "x_test": scale(x_test)}
    np.savez(folder / "data.npz", **images, y_train=y, y_valid=y_valid, y_test=y_test)
    return 0


def train(folder: Path) -> int:
    """Train until the last epoch or a stop, and go on from the checkpoint after a requeue; the exit status."""
    data, saved = np.load(folder / "data.npz"), folder / "model.joblib"
    x, y, x_valid, y_valid = (data[name] for name in ("x_train", "y_train", "x_valid", "y_valid"))
    if saved.exists():
        model, first = joblib.load(saved)
        first += 1
    else:
        model, first = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.001, random_state=0), 0
    print(f"training from epoch {first}", flush=True)
    for epoch in range(first, EPOCHS):
        time.sleep(0.3)  # as long as an epoch on a larger data set
        rows = np.random.default_rng(epoch).permutation(len(x))
        model.partial_fit(x[rows], y[rows], classes=np.unique(y))
        loss = log_loss(y_valid, model.predict_proba(x_valid))
        stop = report(iteration=epoch, loss=loss, accuracy=model.score(x_valid, y_valid))
        if stop or checkpoint_requested() or epoch % SAVE_EVERY == SAVE_EVERY - 1 or epoch == EPOCHS - 1:
            part = saved.with_suffix(".part")  # if the job is killed meanwhile, the previous checkpoint remains
            joblib.dump((model, epoch), part)
            part.replace(saved)
            report(checkpoint=epoch)
        if stop:
            return stop.status
    return 0


def evaluate(folder: Path) -> int:
    """Test the model on images that neither trained it nor ended its training."""
    data, (model, epoch) = np.load(folder / "data.npz"), joblib.load(folder / "model.joblib")
    result = classification_report(data["y_test"], model.predict(data["x_test"]))
    (folder / "evaluation.txt").write_text(f"after epoch {epoch}:\n{result}")
    return 0


part, folder = sys.argv[1:]
sys.exit({"preprocess": preprocess, "train": train, "evaluate": evaluate}[part](Path(folder)))
