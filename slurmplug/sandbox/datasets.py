"""The data sets that the demo trains on: those that come with scikit-learn, and two that it generates."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

HELD_OUT = 0.3
"""the share of the rows on which a model is evaluated"""


def save_all(folder: Path) -> None:
    """Write each data set as FOLDER/NAME.npz: x, y, held_out_x and held_out_y, standardised by the training rows.

    In digits, cancer, wine, clusters and moons, y are classes counted from 0; in diabetes it is a measured quantity.
    """
    clusters = datasets.make_classification(
        2000, 20, n_informative=8, n_classes=4, class_sep=1.2, flip_y=0.02, random_state=0
    )
    diabetes = datasets.load_diabetes()
    for name, (x, y) in {
        "digits": datasets.load_digits(return_X_y=True),
        "cancer": datasets.load_breast_cancer(return_X_y=True),
        "wine": datasets.load_wine(return_X_y=True),
        "diabetes": (diabetes.data, diabetes.target / diabetes.target.std()),
        "clusters": clusters,
        "moons": datasets.make_moons(1500, noise=0.2, random_state=0),
    }.items():
        np.savez(folder / f"{name}.npz", **_split(x, y))


def _split(x: Any, y: Any) -> dict[str, Any]:
    x, held_out_x, y, held_out_y = train_test_split(x, y, test_size=HELD_OUT, random_state=0)
    scaler = StandardScaler().fit(x)
    return {"x": scaler.transform(x), "y": y, "held_out_x": scaler.transform(held_out_x), "held_out_y": held_out_y}
