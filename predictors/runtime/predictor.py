"""Forecasts the run time of a job from what is known at submission.

Each job is predicted by the best source that knows something of it: the model, its user's finished jobs, or its time
limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from predictors.arrays import Bools, Floats, Texts
from predictors.forecast import LEVELS, Forecast
from predictors.quantile_table import INNER_LEVELS
from predictors.runtime.evidence import Evidence
from predictors.runtime.job_table import Job, JobTable, positive_runtimes
from predictors.runtime.stack import StackModel
from predictors.runtime.support_vector import FEWEST, LATEST, SupportVectorModel
from predictors.state import State, prefixed, unprefixed

RuntimeModel: TypeAlias = Literal["stack", "svr"]
USER_RUNS = 20
"""latest run times kept of each user"""
_PRIOR_SIGMA = 1.5
"""prior standard deviation of the logarithm of a user's run times"""
_PRIOR_WEIGHT = 2.0
"""run times that this prior counts as"""
_SHARES_OF_LIMIT = np.interp(
    LEVELS,
    [0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0],
    [0.0, 0.0001, 0.0005, 0.002, 0.02, 0.5, 0.75, 0.95, 0.998, 1.0],
)
"""(levels,) quantiles of the share of its time limit that a job runs, whose user has finished none. Those of the first
jobs of 1,100 users in six logs (KTH, CTC, SDSC, Atlas, Curie, MetaCentrum), but for the two quartiles above, which are
.12 and .45 there: half the limit and .75 of it, so that nobody ranks as short who has shown nothing."""


class RuntimePredictor:
    """Forecasts run times in seconds, not above the time limit (for "stack", plus what jobs here overrun it by).

    model: "stack", a quantile forest over requests and similar jobs (`stack`), or "svr", ML-SJF's support vector
    regression for each job type (`support_vector`). seed: of the trees or of the folds. Raises ValueError for any
    other. `Forecast.source` names what a forecast is from: the model, "user history", "time limit", or "" where it is
    unknown.
    """

    version: ClassVar[str] = "runtime-7"

    def __init__(self, model: RuntimeModel = "stack", seed: int = 0) -> None:
        if model not in ("stack", "svr"):
            raise ValueError(f"a run time model is stack or svr, not {model!r}")
        self.model = model
        self.seed = seed
        self.stack_ = StackModel(seed)
        self.models_: dict[str, SupportVectorModel] = {}
        self.recent_: dict[str, deque[float]] = {}
        self.evidence_ = Evidence()

    def fit(self, jobs: Sequence[Job], runtimes: Sequence[float] | Floats) -> RuntimePredictor:
        """Fit on finished jobs, in the order in which they finished, and their run times (n,) in seconds.

        Raises ValueError unless there is one finite, non-negative run time for each job.
        """
        table = JobTable.of(jobs)
        seconds = positive_runtimes(runtimes, len(jobs))
        self.stack_, self.models_, self.recent_ = StackModel(self.seed), {}, {}
        self.evidence_ = Evidence()
        self.evidence_.add(table, seconds)
        for user, value in zip(table.texts["user"], seconds, strict=True):
            self._add_to_user(str(user), float(value))
        if self.model == "stack" and len(jobs):
            self.stack_.fit(table, seconds)
        if self.model == "svr":
            run_type = table.run_type
            for name in np.unique(run_type):
                latest = np.flatnonzero(run_type == name)[-LATEST:]
                if len(latest) >= FEWEST:
                    self.models_[str(name)] = SupportVectorModel.fit(table[latest], seconds[latest], self.seed)
        return self

    def update(self, job: Job, runtime: float) -> None:
        """Add one finished job and its run time in seconds to its user's history.

        "svr" uses it at the next `fit`. "stack" adapts its bound, and refits itself whenever its history has grown by a
        tenth, which takes seconds: do not call it in the scheduling cycle. Raises ValueError as `fit` does.
        """
        seconds = positive_runtimes([runtime], 1)
        table = JobTable.of([job])
        self._add_to_user(str(table.texts["user"][0]), float(seconds[0]))
        self.evidence_.add(table, seconds)
        if self.model == "stack":
            self.stack_.update(table, float(seconds[0]))

    def predict(self, job: Job) -> Forecast:
        """The run time of one job in seconds, as a forecast of one row."""
        return self.predict_many([job])

    def predict_many(self, jobs: Sequence[Job]) -> Forecast:
        """The run times of n jobs in seconds. Raises ValueError for a numeric field that holds no number."""
        table = JobTable.of(jobs)
        unanswered = np.ones(len(jobs), dtype=np.bool_)
        parts: list[tuple[NDArray[np.int64], Forecast]] = []
        if self.stack_.forest is not None and len(jobs):
            return self.stack_.predict(table)
        run_type = table.run_type
        for name, model in self.models_.items():
            rows = np.flatnonzero(run_type == name)
            if len(rows):
                parts.append((rows, model.predict(table[rows])))
                unanswered[rows] = False
        parts.append(self._from_users(table.texts["user"], unanswered))
        parts.append(_from_limits(table.limit, unanswered))
        return Forecast.assemble(len(jobs), parts).clip(upper=table.limit)

    def least(self, jobs: Sequence[Job]) -> Floats:
        """(n,) seconds that n jobs are taken to run at least, as `Evidence` has it."""
        return self.evidence_.least(JobTable.of(jobs))

    def state(self) -> State:
        """Arrays and plain values, from which `from_state` makes the same predictor."""
        names = list(self.models_)
        models: State = {}
        for i, name in enumerate(names):
            models |= prefixed(f"model/{i}/", self.models_[name].state())
        users = list(self.recent_)
        return {
            "version": self.version, "model": self.model, "seed": self.seed, "types": names, "users": users,
            "recent": np.array([value for user in users for value in self.recent_[user]]),
            "recent_counts": np.array([len(self.recent_[user]) for user in users], dtype=np.int64),
            **models, **prefixed("stack/", self.stack_.state()), **prefixed("evidence/", self.evidence_.state()),
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RuntimePredictor:
        """The predictor whose `state` this is. Raises ValueError for one of another version: fit again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        restored = cls(state["model"], int(state["seed"]))
        for i, name in enumerate(state["types"]):
            restored.models_[str(name)] = SupportVectorModel.from_state(unprefixed(f"model/{i}/", state))
        restored.stack_ = StackModel.from_state(unprefixed("stack/", state), restored.seed)
        restored.evidence_ = Evidence.from_state(unprefixed("evidence/", state))
        ends = np.cumsum(np.asarray(state["recent_counts"], dtype=np.int64))
        for user, values in zip(state["users"], np.split(np.asarray(state["recent"]), ends)[:-1], strict=True):
            restored.recent_[str(user)] = deque(values.tolist(), maxlen=USER_RUNS)
        return restored

    def _add_to_user(self, user: str, seconds: float) -> None:
        if user:
            self.recent_.setdefault(user, deque(maxlen=USER_RUNS)).append(seconds)

    def _from_users(self, users: Texts, unanswered: Bools) -> tuple[NDArray[np.int64], Forecast]:
        """Rows and forecasts of jobs whose user has finished some: of the logarithm Student's t distribution, wider for
        few or dissimilar run times (the posterior predictive distribution of a normal one).

        Marks its rows as answered.
        """
        rows = np.array([i for i in np.flatnonzero(unanswered) if str(users[i]) in self.recent_], dtype=np.int64)
        unanswered[rows] = False
        if not len(rows):
            return rows, Forecast.unknown(0)
        logs = [np.log(self.recent_[str(users[i])]) for i in rows]
        count = np.array([len(values) for values in logs])
        middle = np.array([values.mean() for values in logs])
        squares = np.array([((values - values.mean()) ** 2).sum() for values in logs])
        freedom = _PRIOR_WEIGHT + count - 1.0
        scale = np.sqrt((_PRIOR_WEIGHT * _PRIOR_SIGMA**2 + squares) / freedom * (1.0 + 1.0 / count))
        quantiles = middle[:, None] + scale[:, None] * stdtrit(freedom[:, None], INNER_LEVELS)
        return rows, Forecast.quantiles(INNER_LEVELS, np.exp(quantiles), "user history", lower=0.0)


def _from_limits(limit: Floats, unanswered: Bools) -> tuple[NDArray[np.int64], Forecast]:
    """Rows and forecasts of jobs with a time limit: shares of it. Marks its rows as answered."""
    rows = np.flatnonzero(unanswered & ~np.isnan(limit))
    unanswered[rows] = False
    return rows, Forecast(limit[rows, None] * _SHARES_OF_LIMIT, np.full(len(rows), "time limit"))
