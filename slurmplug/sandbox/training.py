"""A small program that trains a model and reports its progress: the demo's jobs run it, and it shows `report` in use.

    python -m slurmplug.sandbox.training digits.npz --hidden 24 --rate 0.02 --iterations 60

The data are written by `slurmplug.sandbox.datasets`. The models really learn, and are evaluated on held-out rows; only
the duration of an iteration is artificial: it takes `--seconds`, as if the model were larger.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from slurmplug_report.report import report

Floats = NDArray[np.float64]
BATCH = 32


class Model(Protocol):
    """What the training loop needs."""

    def learn(self, x: Floats, y: Floats) -> None:
        """Train for one pass over the rows: x (rows, inputs), y (rows,)."""
        ...

    def measure(self, x: Floats, y: Floats) -> dict[str, float]:
        """The quantities to report, by name, on rows that it was not trained on."""
        ...

    def save(self, path: Path) -> None:
        """Write the trained parameters to a file."""
        ...


class Network:
    """A perceptron in NumPy with one hidden layer of `hidden` units, or none, trained by stochastic gradient descent.

    With classes its output is a softmax and its loss the cross-entropy; without (0) its output is linear and its loss
    the squared error. The gradient at the output is the same for both.
    """

    def __init__(self, inputs: int, classes: int, hidden: int, rate: float, rng: np.random.Generator) -> None:
        widths = [inputs, *([hidden] if hidden else []), classes or 1]
        pairs = list(pairwise(widths))
        self._matrices = [rng.normal(scale=np.sqrt(1 / rows), size=(rows, columns)) for rows, columns in pairs]
        self._offsets = [np.zeros(columns) for _, columns in pairs]
        self._classes, self._rate, self._rng = classes, rate, rng

    def learn(self, x: Floats, y: Floats) -> None:
        """One pass in batches of BATCH rows, in random order."""
        shuffled = self._rng.permutation(len(x))
        for rows in (shuffled[at : at + BATCH] for at in range(0, len(x), BATCH)):
            layers = self._layers(x[rows])
            wanted = np.eye(self._classes)[y[rows].astype(int)] if self._classes else y[rows, None]
            slope = (layers[-1] - wanted) / len(rows)
            for i in reversed(range(len(self._matrices))):
                below = slope @ self._matrices[i].T * (1 - layers[i] ** 2)
                self._matrices[i] -= self._rate * layers[i].T @ slope
                self._offsets[i] -= self._rate * slope.sum(axis=0)
                slope = below

    def measure(self, x: Floats, y: Floats) -> dict[str, float]:
        """The loss, and the accuracy of classes or the R² of a measured quantity."""
        output = self._layers(x)[-1]
        if self._classes:
            return _classification_metrics(output, y)
        loss = float(((output[:, 0] - y) ** 2).mean())
        return {"loss": loss, "r2": 1 - loss / float(y.var())}

    def save(self, path: Path) -> None:
        """Write matrices and offsets as an .npz."""
        np.savez(path, *self._matrices, *self._offsets)

    def _layers(self, x: Floats) -> list[Floats]:
        """The inputs of each layer, and the output of the last."""
        *inner, (matrix, offset) = zip(self._matrices, self._offsets, strict=True)
        layers = [x]
        for each, its_offset in inner:
            layers.append(np.tanh(layers[-1] @ each + its_offset))
        last = layers[-1] @ matrix + offset
        powers = np.exp(last - last.max(axis=1, keepdims=True))
        return [*layers, powers / powers.sum(axis=1, keepdims=True) if self._classes else last]


class Estimator:
    """A classifier of scikit-learn that trains in passes: `linear` is SGDClassifier, `perceptron` is MLPClassifier."""

    def __init__(self, kind: str, classes: int, hidden: int, rate: float, seed: int) -> None:
        from sklearn.linear_model import SGDClassifier  # noqa: PLC0415  takes a second, which other models need not wait
        from sklearn.neural_network import MLPClassifier  # noqa: PLC0415

        self._classes = np.arange(classes)
        self._model: Any = (
            SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=seed)
            if kind == "linear"
            else MLPClassifier((hidden,), solver="sgd", learning_rate_init=rate, batch_size=BATCH, random_state=seed)
        )

    def learn(self, x: Floats, y: Floats) -> None:
        """One `partial_fit` on all rows."""
        self._model.partial_fit(x, y, classes=self._classes)

    def measure(self, x: Floats, y: Floats) -> dict[str, float]:
        """The loss and the accuracy."""
        return _classification_metrics(self._model.predict_proba(x), y)

    def save(self, path: Path) -> None:
        """Write the estimator by joblib."""
        import joblib  # noqa: PLC0415

        joblib.dump(self._model, path)


def train(
    model: Model, data: Mapping[str, Floats], iterations: int, seconds: float = 0.0
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train and report, until all iterations are done or a stop is requested.

    Yields the number of each iteration with its quantities. An iteration is one pass over the data and takes at least
    `seconds`.
    """
    for iteration in range(1, iterations + 1):
        began = time.monotonic()
        model.learn(data["x"], data["y"])
        quantities = model.measure(data["held_out_x"], data["held_out_y"])
        stop = report(iteration=iteration, **quantities)
        yield iteration, quantities
        if stop:
            return
        time.sleep(max(0.0, began + seconds - time.monotonic()))


def main(argv: Sequence[str] | None = None) -> None:
    """Train one model, print the quantities of each iteration, and save it."""
    options = parser().parse_args(argv)
    with np.load(options.data) as file:
        data = dict(file)
    model = make_model(options, data)
    for iteration, quantities in train(model, data, options.iterations, options.seconds):
        values = ", ".join(f"{name} {value:.4f}" for name, value in quantities.items())
        print(f"iteration {iteration} of {options.iterations}: {values}", flush=True)
    model.save(options.save)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", type=Path, help="an .npz of x, y, held_out_x and held_out_y")
    arguments.add_argument("--model", choices=("network", "linear", "perceptron"), default="network")
    arguments.add_argument("--hidden", type=int, default=0, help="units of the hidden layer")
    arguments.add_argument("--rate", type=float, default=0.01, help="learning rate")
    arguments.add_argument("--iterations", type=int, default=60, help="passes over the data")
    arguments.add_argument("--seconds", type=float, default=1.0, help="that an iteration takes at least")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--save", type=Path, default=Path("model.npz"))
    return arguments


def make_model(options: argparse.Namespace, data: Mapping[str, Floats]) -> Model:
    """The model that the command line names. A `y` with decimals is a measured quantity, one without has classes."""
    classes = 0 if (data["y"] % 1).any() else int(data["y"].max()) + 1
    if options.model == "network":
        return Network(data["x"].shape[1], classes, options.hidden, options.rate, np.random.default_rng(options.seed))
    return Estimator(options.model, classes, options.hidden, options.rate, options.seed)


def _classification_metrics(probabilities: Floats, y: Floats) -> dict[str, float]:
    of_true_class = probabilities[np.arange(len(y)), y.astype(int)]
    return {
        "loss": float(-np.log(np.maximum(of_true_class, 1e-12)).mean()),
        "accuracy": float((probabilities.argmax(axis=1) == y).mean()),
    }


if __name__ == "__main__":
    main()
