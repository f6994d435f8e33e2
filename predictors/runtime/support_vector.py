"""The model "svr": support vector regression of the run time, a model for each job type (ML-SJF, Sherman et al.,
section 3).

libsvm's regression with a linear or an RBF kernel and C of 1 to 10^4, chosen by 5-fold cross-validation on features
known at submission. The target is the logarithm of the run time, as run times span five orders of magnitude.
"""

from __future__ import annotations

import warnings
from collections import Counter
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
from predictors.runtime.job_table import JobTable

KERNELS = ("linear", "rbf")
COSTS = (1.0, 10.0, 100.0, 1e3, 1e4)
FOLDS = 5
FEWEST = 4 * FOLDS
"""finished jobs that a type needs for a model of its own"""
LATEST = 500
"""latest jobs that a model is fitted on: libsvm's time grows with their square, and older ones are less alike"""
STEPS = 20_000
"""limit of libsvm's iterations, so that every fit ends"""

_QUANTITIES = ("gpus", "cpus", "nodes", "mem", "time_limit")
_CATEGORIES = ("partition", "qos", "user")
_WORK = "work/"
"""before the names of a job's work among the categories"""
_MOST_VALUES = 8
_LEVELS = np.concatenate([[0.01, 0.025, 0.05], np.linspace(0.1, 0.9, 17), [0.95, 0.975, 0.99]])


@dataclass(frozen=True, eq=False)
class JobEncoder:
    """Encodes jobs as rows of a design matrix: standardised logarithms of sizes, and one-hot categories.

    Sizes and categories are those that Slurm knows and those of the job's work that its user declares (section 5.1 of
    the paper: rows, dimensions, classes, mappers, operation).

    mean, scale: (sizes,) of the logarithms. categories: the most common values of each categorical field. sizes, kinds:
    names of the work that have numbers, and of those that have texts.
    """

    mean: Floats
    scale: Floats
    categories: Mapping[str, Texts]
    sizes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    @classmethod
    def fit(cls, jobs: JobTable) -> JobEncoder:
        """The encoding by the sizes and the most common values of these jobs."""
        names = _names_of_work(jobs)
        sizes = _log_sizes(jobs, names[0])
        known = np.isfinite(sizes)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, sizes, 0.0).sum(axis=0) / count
        scale = np.sqrt(np.where(known, (sizes - mean) ** 2, 0.0).sum(axis=0) / count)
        most_common = {name: _most_common(values) for name, values in _texts(jobs, names[1]).items()}
        return cls(mean, np.where(scale > 1e-9, scale, 1.0), most_common, *names)

    def encode(self, jobs: JobTable) -> Floats:
        """(n, features); unknown sizes are encoded as the mean."""
        sizes = np.nan_to_num((_log_sizes(jobs, self.sizes) - self.mean) / self.scale, nan=0.0)
        texts = _texts(jobs, self.kinds)
        one_hot = [values[:, None] == self.categories[name] for name, values in texts.items()]
        return np.concatenate([sizes, *one_hot], axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class SupportVectorModel:
    """The model of one job type: f(x) = sum_i dual_i K(support_i, x) + intercept, and the distribution of its errors.

    support: (s, features). dual: (s,). kernel: "linear", or "rbf" with gamma. cost: C. residuals: (len(_LEVELS),)
    quantiles of the errors of the logarithm in cross-validation.
    """

    features: JobEncoder
    support: Floats
    dual: Floats
    intercept: float
    kernel: str
    gamma: float
    cost: float
    residuals: Floats

    @classmethod
    def fit(cls, jobs: JobTable, runtimes: Floats, seed: int) -> SupportVectorModel:
        """Fit to jobs and their run times (n,) in seconds.

        The kernel and C with the least mean absolute error of the logarithm in cross-validation are chosen.
        """
        features = JobEncoder.fit(jobs)
        x, y = features.encode(jobs), np.log(runtimes)
        folds = list(KFold(FOLDS, shuffle=True, random_state=seed).split(x))
        gamma = 1.0 / x.shape[1]
        best: tuple[float, str, float, Floats] | None = None
        for kernel in KERNELS:
            for cost in COSTS:
                errors = np.empty(len(y))
                for train, test in folds:
                    errors[test] = y[test] - _fit_svr(kernel, cost, gamma, x[train], y[train]).predict(x[test])
                score = float(np.abs(errors).mean())
                if best is None or score < best[0]:
                    best = score, kernel, cost, errors
        assert best is not None
        _, kernel, cost, errors = best
        final = _fit_svr(kernel, cost, gamma, x, y)
        return cls(
            features, final.support_vectors_, final.dual_coef_[0], float(final.intercept_[0]), kernel, gamma, cost,
            np.quantile(errors, _LEVELS),
        )  # fmt: skip

    def log_runtime(self, jobs: JobTable) -> Floats:
        """(n,) the predicted logarithm of the run time in seconds."""
        x = self.features.encode(jobs)
        if self.kernel == "linear":
            return np.asarray(x @ (self.dual @ self.support) + self.intercept)
        squares = (x**2).sum(1)[:, None] + (self.support**2).sum(1) - 2.0 * x @ self.support.T
        return np.asarray(np.exp(-self.gamma * np.maximum(squares, 0.0)) @ self.dual + self.intercept)

    def predict(self, jobs: JobTable) -> Forecast:
        """The run times of n jobs in seconds, bounded to e^0 to e^20, as a linear kernel extrapolates without
        bounds."""
        logs = np.clip(self.log_runtime(jobs), 0.0, 20.0)[:, None] + self.residuals
        return Forecast.quantiles(_LEVELS, np.exp(logs), "svr", lower=0.0)

    def state(self) -> dict[str, NDArray[Any] | str | float]:
        """Arrays and plain values, from which `from_state` makes the same model."""
        categories = {f"places_{name}": values for name, values in self.features.categories.items()}
        return {
            "sizes": np.array(self.features.sizes, dtype=np.str_),
            "kinds": np.array(self.features.kinds, dtype=np.str_),
            "middle": self.features.mean, "scale": self.features.scale, **categories,
            "support": self.support, "dual": self.dual, "intercept": self.intercept,
            "kernel": self.kernel, "gamma": self.gamma, "cost": self.cost, "residuals": self.residuals,
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SupportVectorModel:
        """The model whose `state` this is."""
        sizes, kinds = (tuple(np.asarray(state[name]).tolist()) for name in ("sizes", "kinds"))
        names = (*_CATEGORIES, *(_WORK + name for name in kinds))
        categories = {name: np.asarray(state[f"places_{name}"], dtype=np.str_) for name in names}
        features = JobEncoder(np.asarray(state["middle"]), np.asarray(state["scale"]), categories, sizes, kinds)
        return cls(
            features, np.asarray(state["support"]), np.asarray(state["dual"]), float(state["intercept"]),
            str(state["kernel"]), float(state["gamma"]), float(state["cost"]), np.asarray(state["residuals"]),
        )  # fmt: skip


def _fit_svr(kernel: str, cost: float, gamma: float, x: Floats, y: Floats) -> SVR:
    with warnings.catch_warnings():  # a fit that reaches the limit of iterations is used as it is
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SVR(kernel=kernel, C=cost, gamma=gamma, epsilon=0.1, max_iter=STEPS).fit(x, y)


def _work(jobs: JobTable) -> list[dict[str, str]]:
    """What each job declares of its work, by name."""
    parts = ((part.partition(":") for part in text.split(",") if part) for text in jobs.texts["work"].tolist())
    return [{name: value for name, _, value in each} for each in parts]


def _names_of_work(jobs: JobTable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The most common names of the jobs' work: of numbers, and of texts."""
    counts = Counter(name for each in _work(jobs) for name in each)
    values = {name: {each.get(name, "") for each in _work(jobs)} - {""} for name, _ in counts.most_common(_MOST_VALUES)}
    numbers = tuple(sorted(name for name in values if all(_is_number(value) for value in values[name])))
    return numbers, tuple(sorted(values.keys() - set(numbers)))


def _is_number(value: str) -> bool:
    return not value[0].isalpha()


def _log_sizes(jobs: JobTable, names: tuple[str, ...]) -> Floats:
    """(n, sizes) logarithms of what the jobs request, and of these names of their work; NaN where unknown."""
    work = _work(jobs) if names else []
    declared = [
        [float(value) if _is_number(value := each.get(name, "x")) else np.nan for each in work] for name in names
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = [np.log1p(jobs.numbers[name]) for name in _QUANTITIES] + [np.log1p(values) for values in declared]
    sizes = np.stack(columns, axis=1)
    return np.where(np.isfinite(sizes), sizes, np.nan)


def _texts(jobs: JobTable, names: tuple[str, ...]) -> dict[str, Texts]:
    """The categorical fields, (n,) each, and these names of the jobs' work."""
    work = _work(jobs) if names else []
    declared = {_WORK + name: np.array([each.get(name, "") for each in work], dtype=np.str_) for name in names}
    return {name: jobs.texts[name] for name in _CATEGORIES} | declared


def _most_common(values: Texts) -> Texts:
    names, counts = np.unique(values[values != ""], return_counts=True)
    return np.asarray(names[np.argsort(-counts, kind="stable")][:_MOST_VALUES])
