"""Trains the network of `predictors.loss` into `predictors/loss/network.npz`: `python -m docs.make_loss_network`.

A few minutes. Curves and seeds are always the same; so is the network, but for rounding.
"""

from pathlib import Path

import numpy as np

import predictors.loss
from predictors.loss import LossPredictor
from predictors.loss.training import make_training_set, sample_curves, train

SEED = 7


def main() -> None:
    network = train(make_training_set(list(sample_curves(SEED)), np.random.default_rng(SEED)), 0)
    target = Path(predictors.loss.__file__).with_name("network.npz")
    np.savez(target, version=LossPredictor.version, **network.state())


if __name__ == "__main__":
    main()
