"""Trains small networks on scikit-learn's digits and writes `curves.jsonl.gz`: validation accuracy and loss by epoch.

    python tests/data/train_curves.py

Takes a minute. Rates, sizes, regularisation, mislabelled shares and training sets are drawn at random, so that some
runs learn at once, some slowly and some hardly.
"""

import gzip
import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

RUNS = 80
EPOCHS = 40


def main() -> None:
    random = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x = x / 16.0 - 0.3
    lines = []
    for number in range(RUNS):
        order = random.permutation(len(x))
        held_out, known = order[:600], order[600 : 600 + int(random.integers(100, 1100))]
        hp = {
            "learning_rate": float(10 ** random.uniform(-4, -1.5)),
            "units": int(2 ** random.uniform(2, 7)),
            "batch_size": int(2 ** random.uniform(4, 7)),
            "alpha": float(10 ** random.uniform(-5, 0)),
            "mislabelled": float(random.choice([0.0, 0.1, 0.3])),
        }
        labels = np.where(random.random(len(known)) < hp["mislabelled"], random.integers(10, size=len(known)), y[known])
        network = MLPClassifier(
            (hp["units"],), alpha=hp["alpha"], learning_rate_init=hp["learning_rate"],
            batch_size=min(hp["batch_size"], len(known)), max_iter=1, warm_start=True, random_state=number,
        )  # fmt: skip
        accuracy, loss = [], []
        for _ in range(EPOCHS):
            network.partial_fit(x[known], labels, classes=np.arange(10))
            accuracy.append(round(float(network.score(x[held_out], y[held_out])), 4))
            loss.append(round(float(network.loss_), 4))
        row = {"id": f"digits-{number}", "group": "digits-mlp", "algo": "MLPC", "hp": hp, "val_acc": accuracy}
        lines.append(json.dumps({**row, "loss": loss}))
    content = "".join(f"{line}\n" for line in lines).encode()
    Path(__file__).with_name("curves.jsonl.gz").write_bytes(gzip.compress(content, mtime=0))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # one epoch at a time never converges
    main()
