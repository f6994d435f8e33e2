"""A program that does not use slurmplug: ridge regression by gradient descent, which prints its progress."""

import time

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

EPOCHS = 200

x, y = load_diabetes(return_X_y=True)
y = (y - y.mean()) / y.std()
x_train, x_valid, y_train, y_valid = train_test_split(x / x.std(axis=0), y, random_state=0)
weights = np.zeros(x.shape[1])

for epoch in range(EPOCHS):
    weights -= 0.02 * (x_train.T @ (x_train @ weights - y_train) / len(y_train) + 0.01 * weights)
    loss = np.mean((x_valid @ weights - y_valid) ** 2)
    variance_explained = 1 - loss / y_valid.var()
    print(f"[epoch {epoch:3d}] loss={loss:.5f} r2={variance_explained:.4f}", flush=True)
    time.sleep(0.5)  # as long as an epoch on a larger data set

np.save("weights.npy", weights)
