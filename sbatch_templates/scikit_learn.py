"""Train a linear classifier by stochastic gradient descent, and report every epoch."""

import sys

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from slurmplug_report import report

EPOCHS = 60

x, y = load_digits(return_X_y=True)
x_train, x_valid, y_train, y_valid = train_test_split(x / 16, y, random_state=0)
model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01, random_state=0)
shuffle = np.random.default_rng(0).permutation

for epoch in range(EPOCHS):
    rows = shuffle(len(x_train))
    model.partial_fit(x_train[rows], y_train[rows], classes=np.unique(y))
    loss = log_loss(y_valid, model.predict_proba(x_valid))
    accuracy = model.score(x_valid, y_valid)
    print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
    stop = report(iteration=epoch, loss=loss, accuracy=accuracy)
    if stop:
        break

joblib.dump(model, "model.joblib")
sys.exit(stop.status)
