"""Grows the forest of `predictors.learning_curve.prior`: `python -m docs.make_learning_curve_forest`.

Some seconds; it is written into prior_forest.npz. Draws and seeds are always the same; so is the forest, but for rounding. To be run after a change of the
prior, of its examples or of the forest: a test grows it anew and compares.
"""

from pathlib import Path

import numpy as np

from predictors.learning_curve import prior


def main() -> None:
    np.savez_compressed(Path(prior.__file__).with_name("prior_forest.npz"), **prior.grow_forest().state())


if __name__ == "__main__":
    main()
