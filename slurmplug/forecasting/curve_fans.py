"""Losses and accuracies by iteration, of jobs that report them: asked for when they change, some in each cycle.

A fan holds for iterations to come, so one that was made some reports ago still says something: where more curves
changed than a cycle has time for, those that wait the longest are continued first.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from policies.snapshot import Curves, Jobs
from predictors.arrays import Floats, Ints, Texts
from predictors.forecast import LEVELS, Fan, Forecast
from predictors.learning_curve import LearningCurvePredictor, Meta
from predictors.loss import LossPredictor

BEYOND_BELIEF = 1e15
"""Seconds and values from here on are no measurements; what is computed from them may overflow."""
AHEAD = (1, 3, 10, 30, 100)
"""Points ahead at which a loss is forecast."""
STEPS = 6
"""Places between now and the end at which an accuracy is forecast."""
MOST_LOSSES, MOST_ACCURACIES = 2_000, 1_000
"""Curves that are continued in one cycle: each takes two thirds of a second on one core."""


class Known(NamedTuple):
    """Fans of r rows: x (r, k), table (r, k, levels), source (r,)."""

    x: Floats
    table: Floats
    source: Texts


class KeptFans:
    """The fans that were made in the cycles before, by job, with what they went by. width: k."""

    def __init__(self, width: int, most: int) -> None:
        self._width, self._most = width, most
        self._rows: dict[Hashable, int] = {}
        self._by: list[Hashable] = []
        self._waits = np.zeros(0, dtype=np.int64)
        self._known = self._nothing(0)

    def each(
        self, n: int, rows: Ints, keys: Sequence[Hashable], by: Sequence[Hashable], ask: Callable[[Ints], Known]
    ) -> Fan:
        """A fan of n rows, of which these (r,) are told about, under these keys (r,).

        by (r,): what each goes by; where it changed, `ask` is given positions among the r, of which it makes fans: of
        no more than `most`, new ones first, then those that were passed over the most often.
        """
        at = np.array([self._rows.get(key, -1) for key in keys], dtype=np.int64)
        old = np.flatnonzero(at >= 0)
        stale = np.array([at[i] < 0 or self._by[at[i]] != by[i] for i in range(len(keys))], dtype=bool)
        waits = np.zeros(len(keys), dtype=np.int64)
        waits[old] = self._waits[at[old]]
        waits = np.where(stale, waits + 1, 0)
        urgency = np.where(at < 0, np.iinfo(np.int64).max, waits)
        due = np.flatnonzero(stale)
        due = np.sort(due[np.argsort(-urgency[due], kind="stable")][: self._most])
        known = self._nothing(len(keys), self._known.source.dtype)
        for part, kept in zip(known, self._known, strict=True):
            part[old] = kept[at[old]]
        if len(due):
            made = ask(due)
            known = known._replace(source=known.source.astype(np.result_type(known.source, made.source)))
            for part, fresh in zip(known, made, strict=True):
                part[due] = fresh
            waits[due] = 0
        have = np.flatnonzero((at >= 0) | np.isin(np.arange(len(keys)), due))
        asked = np.zeros(len(keys), dtype=bool)
        asked[due] = True
        self._by = [by[i] if asked[i] or not stale[i] else self._by[at[i]] for i in have.tolist()]
        self._rows = {keys[i]: place for place, i in enumerate(have.tolist())}
        self._waits, self._known = waits[have], Known(known.x[have], known.table[have], known.source[have])
        index = np.full(n, -1)
        index[rows[have]] = np.arange(len(have))
        return Fan(index, *self._known) if len(have) else Fan.unknown(n)

    def _nothing(self, rows: int, text: np.dtype[np.str_] | None = None) -> Known:
        size = (rows, self._width)
        return Known(np.zeros(size), np.zeros((*size, len(LEVELS))), np.zeros(rows, dtype=text or np.dtype("U1")))


class CurveFans:
    """The loss and accuracy fans of the jobs in a snapshot."""

    def __init__(self, curves: LearningCurvePredictor, losses: LossPredictor) -> None:
        self._curves, self._losses = curves, losses
        self._kept_losses = KeptFans(1 + len(AHEAD), MOST_LOSSES)
        self._kept_accuracies = KeptFans(1 + STEPS, MOST_ACCURACIES)

    def losses(self, jobs: Jobs) -> Fan:
        """By iteration: the last report, and forecasts up to a hundred reports ahead."""
        rows = begun(jobs.losses)
        keys, by = _told(jobs, jobs.losses, rows)
        return self._kept_losses.each(len(jobs), rows, keys, by, lambda due: self._losses_of(jobs, rows[due]))

    def accuracies(self, jobs: Jobs) -> Fan:
        """By iteration: the last report, and forecasts at even steps from there to the job's last iteration.

        Of the quantity that its target names, in jobs that told how long they go on.
        """
        rows = begun(jobs.accuracies)
        rows = rows[jobs.max_iterations[rows] > 0]
        keys, by = _told(jobs, jobs.accuracies, rows)
        return self._kept_accuracies.each(len(jobs), rows, keys, by, lambda due: self._accuracies_of(jobs, rows[due]))

    def _losses_of(self, jobs: Jobs, rows: Ints) -> Known:
        curves, x = [], []
        for row in rows.tolist():
            iterations, values = jobs.losses.row(row)
            curves.append(even(iterations, values, float(iterations[-1]))[0])
            x.append(iterations[-1] * (1.0 + np.array([0, *AHEAD]) / len(curves[-1])))
        ahead = self._losses.predict_many(
            [curve for curve in curves for _ in AHEAD], np.tile(np.array(AHEAD, dtype=float), len(rows))
        )
        return _from_now(np.array(x), [curve[-1] for curve in curves], ahead)

    def _accuracies_of(self, jobs: Jobs, rows: Ints) -> Known:
        lasts = jobs.accuracies.iterations[jobs.accuracies.starts[rows + 1] - 1]
        ends = np.minimum(jobs.max_iterations[rows], BEYOND_BELIEF)
        going = ends > lasts
        x = np.linspace(lasts, np.where(going, ends, 2.0 * lasts), STEPS + 1, axis=1)
        curves, ats, metas, now = [], [], [], []
        for row, at, goes in zip(rows.tolist(), x, going.tolist(), strict=True):
            curve, _ = even(*jobs.accuracies.row(row), float(at[-1]))
            now.append(curve[-1])
            if goes:
                step = float(at[0]) / len(curve)
                curves += [curve] * STEPS
                ats += [max(round(min(there / step, BEYOND_BELIEF)), len(curve) + 1) for there in at[1:].tolist()]
                metas += [described(str(jobs.kind[row]), str(jobs.name[row]))] * STEPS
        done = Forecast.certain(np.repeat(now, STEPS), "last report")
        ahead = [(np.flatnonzero(np.repeat(going, STEPS)), self._curves.predict_many(curves, ats, metas))]
        return _from_now(x, now, Forecast.assemble(len(done), [(np.arange(len(done)), done), *ahead]))


def even(iterations: Floats, values: Floats, at: float) -> tuple[Floats, int]:
    """A curve of as many points one step apart, the last the last, and the point that iteration `at` then is.

    A job may report every tenth iteration, or now and then: predictors count points. The last iteration is not 0.
    """
    after = iterations > 0
    points = int(after.sum())
    step = float(iterations[-1]) / points
    return np.interp(np.arange(1, points + 1) * step, iterations[after], values[after]), round(
        min(at / step, BEYOND_BELIEF)
    )


def described(kind: str, name: str) -> Meta:
    """What is known of a job's training at its start, the same in training: its type and its name."""
    return {key: str(text) for key, text in (("type", kind), ("name", name)) if text}


def begun(curves: Curves) -> Ints:
    """The rows whose curve has a point after iteration 0, and values within reason."""
    rows = np.flatnonzero(curves.lengths() > 0)
    lasts = curves.iterations[curves.starts[rows + 1] - 1]
    rows = rows[(lasts > 1.0 / BEYOND_BELIEF) & (lasts < BEYOND_BELIEF)]
    wild = np.append(0, np.cumsum(~(np.abs(curves.values) < BEYOND_BELIEF)))
    believed: Ints = rows[wild[curves.starts[rows + 1]] == wild[curves.starts[rows]]]
    return believed


def _told(jobs: Jobs, curves: Curves, rows: Ints) -> tuple[list[Hashable], list[Hashable]]:
    """The keys of these rows, and what their fans go by: the points, the last of them, and how far they are to go."""
    lasts = curves.starts[rows + 1] - 1
    columns = (curves.lengths()[rows], curves.iterations[lasts], curves.values[lasts])
    most = np.nan_to_num(jobs.max_iterations[rows], nan=-1.0)
    by = zip(*(column.tolist() for column in (*columns, most)), strict=True)
    return [jobs.keys[row] for row in rows.tolist()], list(by)


def _from_now(x: Floats, last: Sequence[float], ahead: Forecast) -> Known:
    """Fans that begin with the last report at x[:, 0], and go on with these forecasts, row by row."""
    now = Forecast.certain(last, "last report").table[:, None, :]
    table = np.concatenate([now, ahead.table.reshape(len(x), -1, len(LEVELS))], axis=1)
    return Known(x, table, ahead.source.reshape(len(x), -1)[:, 0])
