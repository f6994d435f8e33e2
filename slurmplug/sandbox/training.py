"""A small program that trains a model and reports its progress: the demo's jobs run it, and it shows `report` in use.

    python -m slurmplug.sandbox.training digits.npz --hidden 24 --rate 0.02 --iterations 60

The data are what `slurmplug.sandbox.datasets` writes. What each iteration learns is really learnt, and measured on rows
held out; only its duration is made up: it is stretched to `--seconds`, as if the model were larger.
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
        """One pass over the rows."""
        ...

    def measure(self, x: Floats, y: Floats) -> dict[str, float]:
        """The quantities to report, on rows that it did not learn from."""
        ...

    def save(self, path: Path) -> None:
        """Write what was learnt."""
        ...


class Network:
    """A perceptron in numpy with one hidden layer of `hidden` units, or none: stochastic gradient descent.

    With classes its output is a softmax and its loss the cross-entropy; without (0) it is a sum, with squared errors.
    The gradient before the output is the same.
    """

    def __init__(self, inputs: int, classes: int, hidden: int, rate: float, rng: np.random.Generator) -> None:
        widths = [inputs, *([hidden] if hidden else []), classes or 1]
        pairs = list(pairwise(widths))
        self._matrices = [rng.normal(scale=np.sqrt(1 / rows), size=(rows, columns)) for rows, columns in pairs]
        self._offsets = [np.zeros(columns) for _, columns in pairs]
        self._classes, self._rate, self._rng = classes, rate, rng

    def learn(self, x: Floats, y: Floats) -> None:
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
        output = self._layers(x)[-1]
        if self._classes:
            return _of_classes(output, y)
        loss = float(((output[:, 0] - y) ** 2).mean())
        return {"loss": loss, "r2": 1 - loss / float(y.var())}

    def save(self, path: Path) -> None:
        np.savez(path, *self._matrices, *self._offsets)

    def _layers(self, x: Floats) -> list[Floats]:
        """What goes into each layer, and what comes out of the last."""
        *inner, (matrix, offset) = zip(self._matrices, self._offsets, strict=True)
        layers = [x]
        for each, its_offset in inner:
            layers.append(np.tanh(layers[-1] @ each + its_offset))
        last = layers[-1] @ matrix + offset
        powers = np.exp(last - last.max(axis=1, keepdims=True))
        return [*layers, powers / powers.sum(axis=1, keepdims=True) if self._classes else last]


class Estimator:
    """A classifier of scikit-learn that learns in passes: `linear` is its SGDClassifier, `perceptron` MLPClassifier."""

    def __init__(self, kind: str, classes: int, hidden: int, rate: float, seed: int) -> None:
        from sklearn.linear_model import SGDClassifier  # noqa: PLC0415  a second that jobs without it are spared
        from sklearn.neural_network import MLPClassifier  # noqa: PLC0415

        self._classes = np.arange(classes)
        self._model: Any = (
            SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=seed)
            if kind == "linear"
            else MLPClassifier((hidden,), solver="sgd", learning_rate_init=rate, batch_size=BATCH, random_state=seed)
        )

    def learn(self, x: Floats, y: Floats) -> None:
        self._model.partial_fit(x, y, classes=self._classes)

    def measure(self, x: Floats, y: Floats) -> dict[str, float]:
        return _of_classes(self._model.predict_proba(x), y)

    def save(self, path: Path) -> None:
        import joblib  # noqa: PLC0415

        joblib.dump(self._model, path)


def train(
    model: Model, data: Mapping[str, Floats], iterations: int, seconds: float = 0.0
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train and report, until all iterations are done or a stop is asked for; yields each iteration and its quantities.

    An iteration is one pass over the data and takes at least so many seconds.
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
    """Train one model, say what each iteration gave, and save it."""
    asked = parser().parse_args(argv)
    with np.load(asked.data) as file:
        data = dict(file)
    model = made(asked, data)
    for iteration, quantities in train(model, data, asked.iterations, asked.seconds):
        told = ", ".join(f"{name} {value:.4f}" for name, value in quantities.items())
        print(f"iteration {iteration} of {asked.iterations}: {told}", flush=True)
    model.save(asked.save)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", type=Path, help="an .npz of x, y, held_out_x and held_out_y")
    options.add_argument("--model", choices=("network", "linear", "perceptron"), default="network")
    options.add_argument("--hidden", type=int, default=0, help="units of the hidden layer")
    options.add_argument("--rate", type=float, default=0.01, help="learning rate")
    options.add_argument("--iterations", type=int, default=60, help="passes over the data")
    options.add_argument("--seconds", type=float, default=1.0, help="what an iteration takes at least")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--save", type=Path, default=Path("model.npz"))
    return options


def made(asked: argparse.Namespace, data: Mapping[str, Floats]) -> Model:
    """The model that the command line asks for. A `y` with decimals is measured, one without counts classes from 0."""
    classes = 0 if (data["y"] % 1).any() else int(data["y"].max()) + 1
    if asked.model == "network":
        return Network(data["x"].shape[1], classes, asked.hidden, asked.rate, np.random.default_rng(asked.seed))
    return Estimator(asked.model, classes, asked.hidden, asked.rate, asked.seed)


def _of_classes(probabilities: Floats, y: Floats) -> dict[str, float]:
    of_the_right = probabilities[np.arange(len(y)), y.astype(int)]
    return {
        "loss": float(-np.log(np.maximum(of_the_right, 1e-12)).mean()),
        "accuracy": float((probabilities.argmax(axis=1) == y).mean()),
    }


if __name__ == "__main__":
    main()
