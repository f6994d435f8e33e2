"""Grows the forest of `predictors.learning_curve.prior`: `python -m docs.make_learning_curve_forest`.

Some seconds; it is written into prior_forest.npz. Draws and seeds are always the same; so is the forest, but for
rounding. To be run after a change of the prior, of its examples or of the forest: a test grows it anew and compares.
"""

from pathlib import Path
from typing import Any

import numpy as np

from predictors.learning_curve import prior


def main() -> None:
    arrays: dict[str, Any] = prior.grow_forest().state()
    np.savez_compressed(Path(prior.__file__).with_name("prior_forest.npz"), **arrays)


if __name__ == "__main__":
    main()
