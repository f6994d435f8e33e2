"""Run time by a quantile forest over what was asked for and what like jobs took, learnt and calibrated online.

As in the predictions by users' history (Tsafrir, Etsion, Feitelson 2007; Gaussier, Glesser, Reis, Trystram 2015), with
a distribution in place of a number: `predictors.runtime.anchored_forest` forests on the rows of `predictors.runtime.history`.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictors.arrays import Floats
from predictors.forecast import Forecast
from predictors.forest import QuantileForest
from predictors.runtime.anchored_forest import AnchoredForest, likeliest
from predictors.runtime.history import ANCHORS, RunHistory, job_rows, kinds, submitted_features
from predictors.runtime.job_table import Submitted

FEWEST = 50
"""finished jobs that the forest needs"""
LATEST = 20_000
"""finished jobs that it learns from"""
_LEVELS = np.array([0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75,
                    0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99])  # fmt: skip
_BOUND = 0.95
_AIM = 0.043
"""share of finished jobs that may pass their bound: the long ones pass it more often, and tell it later"""
_STEP = 0.02
_LEAST_GROWTH = 500


class StackedRuntimes:
    """The model "stack" of `predictors.runtime.predictor`. Seconds; grows its forest anew when the history grew by a tenth."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.history = RunHistory()
        self.forest: AnchoredForest | None = None
        self.stretch = 1.0
        self.overrun = 0.0
        self.clock = -np.inf
        self.x = np.zeros((0, 0), dtype=np.float32)
        self.y = np.zeros(0)
        self.limits = np.zeros(0)
        self._new: list[tuple[NDArray[np.float32], float, float]] = []

    def fit(self, jobs: Submitted, runtimes: Floats) -> None:
        """Replay the jobs in order of submission, each seeing those that had ended by then, and learn."""
        own, alike = submitted_features(jobs), list(kinds(jobs))
        submit = np.where(np.isfinite(jobs.numbers["submit"]), jobs.numbers["submit"], -np.inf)
        ends = _ends(jobs, runtimes)
        running: list[tuple[float, int]] = []
        rows = []
        for i in np.argsort(submit, kind="stable").tolist():
            while running and running[0][0] <= submit[i]:
                end, done = heapq.heappop(running)
                self.history.add(alike[done], float(runtimes[done]), end)
            rows.append((i, self.history.features(alike[i], float(jobs.numbers["submit"][i]))))
            heapq.heappush(running, (float(ends[i]), i))
        for end, done in sorted(running):
            self.history.add(alike[done], float(runtimes[done]), end)
        self.clock = float(ends.max())
        latest = rows[-LATEST:]
        order = np.array([i for i, _ in latest], dtype=np.int64)
        self.y, self.limits = np.log(runtimes[order]), jobs.limit[order]
        self.x = job_rows(own[order], np.array([row for _, row in latest]), self.limits).astype(np.float32)
        self._grow()

    def update(self, job: Submitted, runtime: float) -> None:
        """One more finished job: corrects the bound, joins the history, and now and then has the forest grown anew."""
        alike, submit = next(kinds(job)), float(job.numbers["submit"][0])
        end = float(job.numbers["end"][0])
        self.clock = end if np.isfinite(end) else float(np.nanmax([self.clock, submit + runtime]))
        told = self.history.features_at(alike, submit) if np.isfinite(submit) else self.history.features(alike, submit)
        row = job_rows(submitted_features(job), np.array([told]), job.limit).astype(np.float32)
        if self.forest is not None:
            missed = runtime > self._from(row, job.limit).quantile(_BOUND)[0]
            self.stretch = float(np.clip(self.stretch * np.exp(_STEP * (missed - _AIM)), 0.25, 8.0))
        self._new.append((row[0], float(np.log(runtime)), float(job.limit[0])))
        self.history.add(alike, runtime, self.clock)
        if len(self._new) >= max(_LEAST_GROWTH if self.forest is not None else FEWEST, len(self.y) // 10):
            x, y, limits = (np.array(column) for column in zip(*self._new, strict=True))
            self.x = np.concatenate([self.x, x])[-LATEST:] if len(self.y) else x
            self.y = np.concatenate([self.y, y])[-LATEST:]
            self.limits = np.concatenate([self.limits, limits])[-LATEST:]
            self._new.clear()
            self._grow()

    def predict(self, jobs: Submitted) -> Forecast:
        """Run times of n jobs; beyond the time limit only as far as jobs here overrun theirs."""
        told = [
            self.history.features(keys, submit)
            for keys, submit in zip(kinds(jobs), jobs.numbers["submit"].tolist(), strict=True)
        ]
        return self._from(job_rows(submitted_features(jobs), np.array(told), jobs.limit).astype(np.float32), jobs.limit)

    def _from(self, x: NDArray[np.float32], limit: Floats) -> Forecast:
        """The middle is where min(p, t) / max(p, t) is expected largest, within the quartiles, which stay."""
        assert self.forest is not None
        draws = self.forest.sample(*_with_anchors(x))
        position = np.clip(_LEVELS * draws.shape[1] - 0.5, 0.0, draws.shape[1] - 1.001)
        below = np.floor(position).astype(np.int64)
        logs = draws[:, below] + (position - below) * (draws[:, below + 1] - draws[:, below])
        quarter, half, three = (logs[:, [int(np.searchsorted(_LEVELS, level))]] for level in (0.25, 0.5, 0.75))
        middle = np.clip(likeliest(draws)[:, None], quarter, three)
        logs = np.where(logs > half, half + self.stretch * (logs - half), logs)
        logs = np.where(_LEVELS < 0.5, np.minimum(logs, middle), np.maximum(logs, middle))
        logs[:, [int(np.searchsorted(_LEVELS, 0.5))]] = middle
        return Forecast.quantiles(_LEVELS, np.exp(logs), "stack", lower=0.0).clip(upper=limit + self.overrun)

    def state(self) -> dict[str, Any]:
        forest = {} if self.forest is None else {f"forest/{k}": v for k, v in self.forest.forest.state().items()}
        history = {f"history/{k}": v for k, v in self.history.state().items()}
        plain = {
            "stretch": self.stretch,
            "overrun": self.overrun,
            "clock": self.clock,
            "x": self.x,
            "y": self.y,
            "limits": self.limits,
        }
        return {**plain, **forest, **history}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], seed: int) -> StackedRuntimes:
        made = cls(seed)
        made.stretch, made.overrun = float(state["stretch"]), float(state["overrun"])
        made.clock = float(state["clock"])
        made.x, made.y, made.limits = (np.asarray(state[name]) for name in ("x", "y", "limits"))
        made.history = RunHistory.from_state(_under("history/", state))
        if "forest/roots" in state:
            made.forest = AnchoredForest(QuantileForest.from_state(_under("forest/", state)))
        return made

    def _grow(self) -> None:
        if len(self.y) < FEWEST:
            return
        self.forest = AnchoredForest.fit(*_with_anchors(self.x), self.y, self.seed)
        over = np.maximum(np.exp(self.y) - self.limits, 0.0)
        over = over[np.isfinite(over)]
        self.overrun = float(np.quantile(over, 0.99)) if len(over) else 0.0


def _with_anchors(x: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """The rows, and what their targets are relative to: nothing, and their anchors."""
    rows = x.astype(np.float64)
    return rows, np.concatenate([np.zeros((len(rows), 1)), rows[:, -ANCHORS:]], axis=1)


def _ends(jobs: Submitted, runtimes: Floats) -> Floats:
    """When the jobs ended, as told; else as early as they can have, if they come in order of submission, and not before
    the one before, if they come in the order in which they ended."""
    submit, told = jobs.numbers["submit"], jobs.numbers["end"]
    earliest = np.where(np.isfinite(submit), submit, 0.0) + runtimes
    if np.any(np.diff(submit[np.isfinite(submit)]) < 0):
        earliest = np.maximum.accumulate(earliest)
    return np.where(np.isfinite(told), told, earliest)


def _under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
