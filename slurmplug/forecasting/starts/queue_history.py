"""Who ran and who waited when each job of a queue was submitted, and what a model that learns waits is told of that.

The history is the same whether a log has it, or a ledger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.arrays import Bools, Floats, Ints

_LATEST_STARTS = 50
_DAY = 86_400.0
_ALIKE = 0.7
"""how far the logarithms of two sizes or limits are apart at most, for their jobs to be alike"""
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class QueueState:
    """Rows of the history: which jobs ran and which waited, in order of submission, when the job `row` was
    submitted."""

    row: int
    running: Ints
    waiting: Ints


class QueueHistory:
    """n jobs in order of submission, columns (n,); times are seconds.

    start: infinite for a job that has not started. end: when it ended or was cancelled, infinite for one that has not.
    units: how much it requests. limit: its time limit. expected: its run time, as it was forecast. user: a number for
    each.
    """

    def __init__(
        self, *, submit: Floats, start: Floats, end: Floats, units: Floats, limit: Floats, expected: Floats, user: Ints
    ) -> None:
        self.submit, self.start, self.end = submit, start, end
        self.units, self.limit, self.expected, self.user = units, limit, expected, user
        self.wait = start - submit
        change = np.concatenate([-units, units])
        when = np.concatenate([np.where(np.isfinite(start), end, np.inf), start])
        order = np.lexsort((change, when))
        self._changes = when[order]
        self._most_used = np.maximum.accumulate(np.cumsum(change[order]))

    def state(self, row: int) -> QueueState:
        """The queue when that job was submitted."""
        now, earlier = self.submit[row], slice(0, row)
        started, there = self.start[earlier] <= now, self.end[earlier] > now
        return QueueState(row, np.flatnonzero(started & there), np.append(np.flatnonzero(~started & there), row))

    def processors(self, state: QueueState) -> float:
        """As many as there are, as far as was seen by then: the most that were ever in use, or asked for."""
        at = int(np.searchsorted(self._changes, self.submit[state.row], side="right")) - 1
        most = float(self._most_used[at]) if at >= 0 else 0.0
        return max(most, float(self.units[state.waiting].max()))

    def features(self, state: QueueState) -> list[float]:
        """What a learnt model is told of the job and of the queue, as in Brown et al. 2022: its request and forecast,
        the hour and day, what runs and waits in all and of its user, and how long others waited."""
        row, runs, waits = state.row, state.running, state.waiting[:-1]
        now, units, limit, user = self.submit[row], self.units[row], self.limit[row], self.user[row]
        left = np.clip(self.expected[runs] - (now - self.start[runs]), 60.0, self.limit[runs])
        age = now - self.submit[waits]
        own_runs, own_waits = self.user[runs] == user, self.user[waits] == user
        started = np.flatnonzero(self.start[:row] <= now)
        started = started[np.argsort(self.start[started], kind="stable")]
        latest, own_latest = started[-_LATEST_STARTS:], started[self.user[started] == user][-5:]
        smaller = (self.units[waits] <= units) & (self.limit[waits] <= limit)
        alike, alike_latest = self._alike(waits, row), latest[self._alike(latest, row)]
        return [
            units, limit, self.expected[row], now % _DAY, now // _DAY % 7, self.processors(state),
            len(waits), self.units[waits].sum(), self.units[waits] @ self.expected[waits],
            self.units[waits] @ self.limit[waits], len(runs), self.units[runs].sum(), self.units[runs] @ left,
            self.units[runs] @ np.maximum(self.limit[runs] - (now - self.start[runs]), 0.0),
            own_waits.sum(), self.units[waits][own_waits].sum(),
            self.units[waits][own_waits] @ self.expected[waits][own_waits], own_runs.sum(),
            self.units[runs][own_runs].sum(), self.units[runs][own_runs] @ left[own_runs],
            *_spread(left[own_runs]), *_spread(age), *_spread(age[own_waits]), *_spread(age[smaller]), smaller.sum(),
            *_spread(age[alike]), alike.sum(), *_spread(self.wait[latest]), *_spread(self.wait[own_latest]),
            *_spread(self.wait[alike_latest]), *_spread(now - self.start[own_latest]),
            self.units[waits][self.units[waits] * self.limit[waits] < units * limit].sum(),
        ]  # fmt: skip

    def _alike(self, rows: Ints, row: int) -> Bools:
        """(n,) whether these jobs request about as much, and for about as long, as that one."""
        close = [
            np.abs(np.log(np.maximum(column[rows], _LEAST) / max(float(column[row]), _LEAST))) < _ALIKE
            for column in (self.units, self.limit)
        ]
        return np.asarray(close[0] & close[1])


def _spread(values: Floats) -> tuple[float, float, float]:
    """The last, the mean and the greatest; NaN, which trees know, where there is none."""
    if not len(values):
        return (np.nan, np.nan, np.nan)
    return float(values[-1]), float(values.mean()), float(values.max())
