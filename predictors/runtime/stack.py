"""The model "stack": a quantile forest over a job's request and the run times of similar jobs, fitted online.

As predictions by the user's history (Tsafrir, Etsion, Feitelson 2007; Gaussier, Glesser, Reis, Trystram 2015), but of a
distribution: an anchored forest (`anchored_forest`) on the features of `history`.
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
from predictors.runtime.anchored_forest import AnchoredForest, max_agreement_draw
from predictors.runtime.history import ANCHORS, RunHistory, group_keys, job_features, submission_features
from predictors.runtime.job_table import JobTable
from predictors.state import State, prefixed, unprefixed

FEWEST = 50
"""finished jobs that the forest is first fitted on"""
LATEST = 20_000
"""latest finished jobs that the forest is fitted on"""
_LEVELS = np.array([0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75,
                    0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99])  # fmt: skip
_BOUND = 0.95
_TARGET_EXCEEDANCE = 0.043
"""share of finished jobs above their bound that is aimed at: less than 0.05, as long jobs exceed it more often and
finish later"""
_STEP = 0.02
_MIN_GROWTH = 500


class StackModel:
    """Run times in seconds by an anchored forest, refitted when the history has grown by a tenth.

    forest: None before `FEWEST` jobs have finished. stretch: factor of the upper half of each forecast, adapted online
    so that the bound holds. overrun: seconds by which jobs exceed their time limits. clock: the latest end seen, in
    seconds. x, y, limits: features (n, f), logarithms of run times (n,) and time limits (n,) that the forest is fitted
    on.
    """

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
        self._pending: list[tuple[NDArray[np.float32], float, float]] = []

    def fit(self, jobs: JobTable, runtimes: Floats) -> None:
        """Replay the jobs in order of submission, each with the history of jobs that had ended by then, and fit the
        forest."""
        own, groups = submission_features(jobs), list(group_keys(jobs))
        submit = np.where(np.isfinite(jobs.numbers["submit"]), jobs.numbers["submit"], -np.inf)
        ends = _ends(jobs, runtimes)
        running: list[tuple[float, int]] = []
        rows = []
        for i in np.argsort(submit, kind="stable").tolist():
            while running and running[0][0] <= submit[i]:
                end, done = heapq.heappop(running)
                self.history.add(groups[done].taught, float(runtimes[done]), end)
            keys = self.history.described_by(groups[i])
            rows.append((i, self.history.features(keys, float(jobs.numbers["submit"][i]))))
            heapq.heappush(running, (float(ends[i]), i))
        for end, done in sorted(running):
            self.history.add(groups[done].taught, float(runtimes[done]), end)
        self.clock = float(ends.max())
        latest = rows[-LATEST:]
        order = np.array([i for i, _ in latest], dtype=np.int64)
        self.y, self.limits = np.log(runtimes[order]), jobs.limit[order]
        self.x = job_features(own[order], np.array([row for _, row in latest]), self.limits).astype(np.float32)
        self._refit()

    def update(self, job: JobTable, runtime: float) -> None:
        """Add one finished job to the history, and adapt the bound by it.

        Refits the forest, which takes seconds, when enough jobs have been added.
        """
        groups, submit = next(group_keys(job)), float(job.numbers["submit"][0])
        keys = self.history.described_by(groups)
        end = float(job.numbers["end"][0])
        self.clock = end if np.isfinite(end) else float(np.nanmax([self.clock, submit + runtime]))
        similar = self.history.features_at(keys, submit) if np.isfinite(submit) else self.history.features(keys, submit)
        row = job_features(submission_features(job), np.array([similar]), job.limit).astype(np.float32)
        if self.forest is not None:
            exceeded = runtime > self._predict_rows(row, job.limit).quantile(_BOUND)[0]
            self.stretch = float(np.clip(self.stretch * np.exp(_STEP * (exceeded - _TARGET_EXCEEDANCE)), 0.25, 8.0))
        self._pending.append((row[0], float(np.log(runtime)), float(job.limit[0])))
        self.history.add(groups.taught, runtime, self.clock)
        if len(self._pending) >= max(_MIN_GROWTH if self.forest is not None else FEWEST, len(self.y) // 10):
            x, y, limits = (np.array(column) for column in zip(*self._pending, strict=True))
            self.x = np.concatenate([self.x, x])[-LATEST:] if len(self.y) else x
            self.y = np.concatenate([self.y, y])[-LATEST:]
            self.limits = np.concatenate([self.limits, limits])[-LATEST:]
            self._pending.clear()
            self._refit()

    def predict(self, jobs: JobTable) -> Forecast:
        """The run times of n jobs, not above the time limit plus the usual overrun."""
        similar = [
            self.history.features(self.history.described_by(groups), submit)
            for groups, submit in zip(group_keys(jobs), jobs.numbers["submit"].tolist(), strict=True)
        ]
        x = job_features(submission_features(jobs), np.array(similar), jobs.limit).astype(np.float32)
        return self._predict_rows(x, jobs.limit)

    def _predict_rows(self, x: NDArray[np.float32], limit: Floats) -> Forecast:
        """Forecasts for rows x (n, f). Their median is the draw with the best expected min(p, t) / max(p, t), kept
        within the quartiles of the draws."""
        assert self.forest is not None
        draws = self.forest.sample(*_with_anchors(x))
        position = np.clip(_LEVELS * draws.shape[1] - 0.5, 0.0, draws.shape[1] - 1.001)
        below = np.floor(position).astype(np.int64)
        logs = draws[:, below] + (position - below) * (draws[:, below + 1] - draws[:, below])
        quarter, half, three_quarters = (int(np.searchsorted(_LEVELS, level)) for level in (0.25, 0.5, 0.75))
        median = logs[:, [half]]
        best = np.clip(max_agreement_draw(draws)[:, None], logs[:, [quarter]], logs[:, [three_quarters]])
        logs = np.where(logs > median, median + self.stretch * (logs - median), logs)
        logs = np.where(_LEVELS < 0.5, np.minimum(logs, best), np.maximum(logs, best))
        logs[:, [half]] = best
        return Forecast.quantiles(_LEVELS, np.exp(logs), "stack", lower=0.0).clip(upper=limit + self.overrun)

    def state(self) -> State:
        """Arrays and numbers, from which `from_state` makes the same model."""
        forest = {} if self.forest is None else prefixed("forest/", self.forest.forest.state())
        history = prefixed("history/", self.history.state())
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
    def from_state(cls, state: Mapping[str, Any], seed: int) -> StackModel:
        """The model whose `state` this is; the seed is that of its predictor."""
        restored = cls(seed)
        restored.stretch, restored.overrun = float(state["stretch"]), float(state["overrun"])
        restored.clock = float(state["clock"])
        restored.x, restored.y, restored.limits = (np.asarray(state[name]) for name in ("x", "y", "limits"))
        restored.history = RunHistory.from_state(unprefixed("history/", state))
        if "forest/roots" in state:
            restored.forest = AnchoredForest(QuantileForest.from_state(unprefixed("forest/", state)))
        return restored

    def _refit(self) -> None:
        if len(self.y) < FEWEST:
            return
        self.forest = AnchoredForest.fit(*_with_anchors(self.x), self.y, self.seed)
        overruns = np.maximum(np.exp(self.y) - self.limits, 0.0)
        overruns = overruns[np.isfinite(overruns)]
        self.overrun = float(np.quantile(overruns, 0.99)) if len(overruns) else 0.0


def _with_anchors(x: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """The features (n, f), and the anchors of their targets (n, k), zero among them."""
    rows = x.astype(np.float64)
    return rows, np.concatenate([np.zeros((len(rows), 1)), rows[:, -ANCHORS:]], axis=1)


def _ends(jobs: JobTable, runtimes: Floats) -> Floats:
    """(n,) end of each job in seconds: as given, else the earliest possible.

    Jobs that are not in order of submission are taken to be in order of their end.
    """
    submit, end = jobs.numbers["submit"], jobs.numbers["end"]
    earliest = np.where(np.isfinite(submit), submit, 0.0) + runtimes
    if np.any(np.diff(submit[np.isfinite(submit)]) < 0):
        earliest = np.maximum.accumulate(earliest)
    return np.where(np.isfinite(end), end, earliest)
