"""Run time of a job from what is known when it is submitted.

The better source that knows something answers, row by row: the model, the user's own finished jobs, the time limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Bools, Floats, Texts
from predictors.forecast import LEVELS, Forecast
from predictors.runtime.job_table import Job, Submitted, positive_runtimes
from predictors.runtime.stack import StackedRuntimes
from predictors.runtime.support_vector import FEWEST, LATEST, SupportVectorModel

State = dict[str, Any]
RuntimeModel: TypeAlias = Literal["stack", "svr"]
REMEMBERED = 20
"""latest run times kept a user"""
_PRIOR_SIGMA = 1.5
_PRIOR_WEIGHT = 2.0


class RuntimePredictor:
    """Forecasts run times in seconds, not beyond the time limit (and what jobs here overrun it by).

    model: "stack", a quantile forest over requests and like jobs (`predictors.runtime.stack`), or "svr", ML-SJF's
    support vector regression by job type (`predictors.runtime.support_vector`). seed: of the trees or the folds.
    `Forecast.source` says what answered: the model's name, "user history", "time limit", or "" where nothing is known.
    """

    version: ClassVar[str] = "runtime-4"

    def __init__(self, model: RuntimeModel = "stack", seed: int = 0) -> None:
        if model not in ("stack", "svr"):
            raise ValueError(f"a run time model is stack or svr, not {model!r}")
        self.model = model
        self.seed = seed
        self.stack_ = StackedRuntimes(seed)
        self.models_: dict[str, SupportVectorModel] = {}
        self.recent_: dict[str, deque[float]] = {}

    def fit(self, jobs: Sequence[Job], runtimes: Sequence[float] | Floats) -> RuntimePredictor:
        """Learn from finished jobs, in the order in which they finished.

        Raises ValueError unless there is one finite run time, not negative, a job.
        """
        submitted = Submitted.of(jobs)
        seconds = positive_runtimes(runtimes, len(jobs))
        self.stack_, self.models_, self.recent_ = StackedRuntimes(self.seed), {}, {}
        for user, value in zip(submitted.texts["user"], seconds, strict=True):
            self._remember(str(user), float(value))
        if self.model == "stack" and len(jobs):
            self.stack_.fit(submitted, seconds)
        if self.model == "svr":
            kind = submitted.kind
            for name in np.unique(kind):
                latest = np.flatnonzero(kind == name)[-LATEST:]
                if len(latest) >= FEWEST:
                    self.models_[str(name)] = SupportVectorModel.fit(submitted[latest], seconds[latest], self.seed)
        return self

    def update(self, job: Job, runtime: float) -> None:
        """One more finished job, in its user's history at once.

        "svr" learns from it when it is fitted again; "stack" corrects its bound by it, and learns anew by itself,
        which takes seconds, whenever its history has grown by a tenth: not a call for the scheduling cycle.
        """
        seconds = positive_runtimes([runtime], 1)
        submitted = Submitted.of([job])
        self._remember(str(submitted.texts["user"][0]), float(seconds[0]))
        if self.model == "stack":
            self.stack_.update(submitted, float(seconds[0]))

    def predict(self, job: Job) -> Forecast:
        """The forecast of one job's run time in seconds."""
        return self.predict_many([job])

    def predict_many(self, jobs: Sequence[Job]) -> Forecast:
        """The forecast of the run time in seconds of n jobs."""
        submitted = Submitted.of(jobs)
        open_rows = np.ones(len(jobs), dtype=np.bool_)
        parts: list[tuple[NDArray[np.int64], Forecast]] = []
        if self.stack_.forest is not None and len(jobs):
            return self.stack_.predict(submitted)
        kind = submitted.kind
        for name, model in self.models_.items():
            rows = np.flatnonzero(kind == name)
            if len(rows):
                parts.append((rows, model.predict(submitted[rows])))
                open_rows[rows] = False
        parts.append(self._from_users(submitted.texts["user"], open_rows))
        parts.append(_from_limits(submitted.limit, open_rows))
        return Forecast.assemble(len(jobs), parts).clip(upper=submitted.limit)

    def state(self) -> State:
        """Arrays and plain values, from which `from_state` makes the same predictor."""
        names = list(self.models_)
        flat = {
            f"model/{i}/{key}": value
            for i, name in enumerate(names)
            for key, value in self.models_[name].state().items()
        }
        users = list(self.recent_)
        return {
            "version": self.version, "model": self.model, "seed": self.seed, "types": names, "users": users,
            "recent": np.array([value for user in users for value in self.recent_[user]]),
            "recent_counts": np.array([len(self.recent_[user]) for user in users], dtype=np.int64),
            **flat, **{f"stack/{name}": value for name, value in self.stack_.state().items()},
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RuntimePredictor:
        """Raises ValueError for the state of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        made = cls(state["model"], int(state["seed"]))
        for i, name in enumerate(state["types"]):
            start = f"model/{i}/"
            part = {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}
            made.models_[str(name)] = SupportVectorModel.from_state(part)
        stacked = {name.removeprefix("stack/"): value for name, value in state.items() if name.startswith("stack/")}
        made.stack_ = StackedRuntimes.from_state(stacked, made.seed)
        ends = np.cumsum(np.asarray(state["recent_counts"], dtype=np.int64))
        for user, values in zip(state["users"], np.split(np.asarray(state["recent"]), ends)[:-1], strict=True):
            made.recent_[str(user)] = deque(values.tolist(), maxlen=REMEMBERED)
        return made

    def _remember(self, user: str, seconds: float) -> None:
        if user:
            self.recent_.setdefault(user, deque(maxlen=REMEMBERED)).append(seconds)

    def _from_users(self, users: Texts, open_rows: Bools) -> tuple[NDArray[np.int64], Forecast]:
        """Lognormal about the user's latest jobs; few or unlike ones make it wide. Closes the rows it answers."""
        rows = np.array([i for i in np.flatnonzero(open_rows) if str(users[i]) in self.recent_], dtype=np.int64)
        open_rows[rows] = False
        if not len(rows):
            return rows, Forecast.unknown(0)
        logs = [np.log(self.recent_[str(users[i])]) for i in rows]
        count = np.array([len(values) for values in logs])
        middle = np.array([values.mean() for values in logs])
        squares = np.array([((values - values.mean()) ** 2).sum() for values in logs])
        variance = (_PRIOR_WEIGHT * _PRIOR_SIGMA**2 + squares) / (_PRIOR_WEIGHT + count) * (1.0 + 1.0 / count)
        return rows, Forecast.lognormal(np.exp(middle), np.sqrt(variance), "user history")


def _from_limits(limit: Floats, open_rows: Bools) -> tuple[NDArray[np.int64], Forecast]:
    """Anything up to the time limit, evenly: all that a limit says. Closes the rows it answers."""
    rows = np.flatnonzero(open_rows & ~np.isnan(limit))
    open_rows[rows] = False
    return rows, Forecast(limit[rows, None] * LEVELS, np.full(len(rows), "time limit"))
