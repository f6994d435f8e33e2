"""Run time by support vector regression, a model a job type (ML-SJF, Sherman et al., section 3).

libsvm's regression with a linear or an RBF kernel and C of 1 to 10^4, chosen by 5-fold cross-validation on features
that are known at submit. The target is the logarithm of the run time: run times span five orders of magnitude.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold
from sklearn.svm import SVR

from predictors.arrays import Floats, Texts
from predictors.forecast import Forecast
from predictors.runtime.job_table import Submitted

KERNELS = ("linear", "rbf")
COSTS = (1.0, 10.0, 100.0, 1e3, 1e4)
FOLDS = 5
FEWEST = 4 * FOLDS
"""jobs that a type needs before it gets a model"""
LATEST = 500
"""jobs that a type's model is made from: libsvm's time grows with their square, and older ones tell less"""
STEPS = 20_000
"""libsvm's limit of iterations, so that no data keeps a fit from ending"""

_SIZES = ("gpus", "cpus", "nodes", "mem", "time_limit")
_PLACES = ("partition", "qos", "user")
_MOST_PLACES = 8
_SPREAD = np.concatenate([[0.01, 0.025, 0.05], np.linspace(0.1, 0.9, 17), [0.95, 0.975, 0.99]])


@dataclass(frozen=True, eq=False)
class Features:
    """How jobs become the rows of a design matrix: scaled logarithms of sizes, and which of the commonest places."""

    middle: Floats
    scale: Floats
    places: Mapping[str, Texts]

    @classmethod
    def of(cls, jobs: Submitted) -> Features:
        sizes = _logarithms(jobs)
        known = np.isfinite(sizes)
        count = np.maximum(known.sum(axis=0), 1)
        middle = np.where(known, sizes, 0.0).sum(axis=0) / count
        scale = np.sqrt(np.where(known, (sizes - middle) ** 2, 0.0).sum(axis=0) / count)
        return cls(middle, np.where(scale > 1e-9, scale, 1.0), {name: _commonest(jobs.texts[name]) for name in _PLACES})

    def matrix(self, jobs: Submitted) -> Floats:
        """(n, features); what is not known is put in the middle."""
        sizes = np.nan_to_num((_logarithms(jobs) - self.middle) / self.scale, nan=0.0)
        marks = [jobs.texts[name][:, None] == self.places[name] for name in _PLACES]
        return np.concatenate([sizes, *marks], axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class SupportVectorModel:
    """One type's model: f(x) = sum_i dual_i K(support_i, x) + intercept, and the spread of its errors.

    support (s, features), dual (s,); kernel "linear" or "rbf" with gamma; residuals (len(_SPREAD),): quantiles of
    the logarithm's errors in cross-validation.
    """

    features: Features
    support: Floats
    dual: Floats
    intercept: float
    kernel: str
    gamma: float
    cost: float
    residuals: Floats

    @classmethod
    def fit(cls, jobs: Submitted, runtimes: Floats, seed: int) -> SupportVectorModel:
        """The kernel and C with the least mean absolute error of the logarithm over the folds."""
        features = Features.of(jobs)
        x, y = features.matrix(jobs), np.log(runtimes)
        folds = list(KFold(FOLDS, shuffle=True, random_state=seed).split(x))
        gamma = 1.0 / x.shape[1]
        best: tuple[float, str, float, Floats] | None = None
        for kernel in KERNELS:
            for cost in COSTS:
                errors = np.empty(len(y))
                for train, test in folds:
                    errors[test] = y[test] - _fitted(kernel, cost, gamma, x[train], y[train]).predict(x[test])
                score = float(np.abs(errors).mean())
                if best is None or score < best[0]:
                    best = score, kernel, cost, errors
        assert best is not None
        _, kernel, cost, errors = best
        final = _fitted(kernel, cost, gamma, x, y)
        return cls(
            features, final.support_vectors_, final.dual_coef_[0], float(final.intercept_[0]), kernel, gamma, cost,
            np.quantile(errors, _SPREAD),
        )  # fmt: skip

    def log_runtime(self, jobs: Submitted) -> Floats:
        """(n,) the predicted logarithm of the run time in seconds."""
        x = self.features.matrix(jobs)
        if self.kernel == "linear":
            return np.asarray(x @ (self.dual @ self.support) + self.intercept)
        squares = (x**2).sum(1)[:, None] + (self.support**2).sum(1) - 2.0 * x @ self.support.T
        return np.asarray(np.exp(-self.gamma * np.maximum(squares, 0.0)) @ self.dual + self.intercept)

    def predict(self, jobs: Submitted) -> Forecast:
        """Run times in seconds, between one second and fifteen years: a linear kernel knows no bounds."""
        logs = np.clip(self.log_runtime(jobs), 0.0, 20.0)[:, None] + self.residuals
        return Forecast.quantiles(_SPREAD, np.exp(logs), "svr", lower=0.0)

    def state(self) -> dict[str, NDArray[Any] | str | float]:
        """Plain values that `from_state` takes."""
        places = {f"places_{name}": values for name, values in self.features.places.items()}
        return {
            "middle": self.features.middle, "scale": self.features.scale, **places,
            "support": self.support, "dual": self.dual, "intercept": self.intercept,
            "kernel": self.kernel, "gamma": self.gamma, "cost": self.cost, "residuals": self.residuals,
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SupportVectorModel:
        places = {name: np.asarray(state[f"places_{name}"], dtype=np.str_) for name in _PLACES}
        features = Features(np.asarray(state["middle"]), np.asarray(state["scale"]), places)
        return cls(
            features, np.asarray(state["support"]), np.asarray(state["dual"]), float(state["intercept"]),
            str(state["kernel"]), float(state["gamma"]), float(state["cost"]), np.asarray(state["residuals"]),
        )  # fmt: skip


def _fitted(kernel: str, cost: float, gamma: float, x: Floats, y: Floats) -> SVR:
    with warnings.catch_warnings():  # the limit of iterations is an answer like any other
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SVR(kernel=kernel, C=cost, gamma=gamma, epsilon=0.1, max_iter=STEPS).fit(x, y)


def _logarithms(jobs: Submitted) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = [np.log1p(jobs.numbers[name]) for name in _SIZES]
    sizes = np.stack(columns, axis=1)
    return np.where(np.isfinite(sizes), sizes, np.nan)


def _commonest(values: Texts) -> Texts:
    names, counts = np.unique(values[values != ""], return_counts=True)
    return np.asarray(names[np.argsort(-counts, kind="stable")][:_MOST_PLACES])
