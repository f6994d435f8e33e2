"""A model of how long jobs wait, learnt from features of the queue as it was when they were submitted (Brown et al.
2022), beside the simulation of the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from predictors.arrays import Floats, Ints
from predictors.forest import QuantileForest

WAITS = "waits"
"""the name under which the ledger has it among the models"""
FEWEST = 200
"""waits that it is fitted on"""
MOST = 5_000
"""the latest, by submission"""
_TREES, _SMALLEST_LEAF, _FEATURE_SHARE = 60, 3, 1.0
_MISSING = -1.0
"""No feature is negative."""


class Waits(NamedTuple):
    """Of n jobs in order of submission: their features (n, features) as of `QueueHistory.features`, when they were
    submitted and when they started (n,), in seconds; infinite where they have not."""

    features: Floats
    submit: Floats
    start: Floats

    def known(self, now: float) -> Waits:
        """Those that had started before."""
        rows = self.start < now
        return Waits(*(column[rows] for column in self))


@dataclass(frozen=True, eq=False)
class WaitModel:
    """A forest of the logarithm of one second more than the wait, of which the median is that of the wait: few waits
    are long, and those would decide the fit."""

    forest: QuantileForest
    version: ClassVar[str] = "waits-1"

    @classmethod
    def fit(cls, waits: Waits) -> WaitModel | None:
        """None where fewer than `FEWEST` have started."""
        known = waits.known(np.finfo(np.float64).max)
        if len(known.start) < FEWEST:
            return None
        known = Waits(*(column[-MOST:] for column in known))
        target = np.log1p(known.start - known.submit)
        rows = np.arange(len(target))
        return cls(
            QuantileForest.fit(
                _filled(known.features),
                target,
                rows,
                trees=_TREES,
                smallest_leaf=_SMALLEST_LEAF,
                features=_FEATURE_SHARE,
                seed=0,
            )
        )

    def waits(self, features: Floats) -> Floats:
        """(n,) seconds from the submission of jobs with these features (n, features)."""
        return np.asarray(np.expm1(np.median(self.forest.sample(_filled(features)), axis=1)))

    def state(self) -> Mapping[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same."""
        return {"version": self.version, **self.forest.state()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> WaitModel:
        """Raises ValueError for the state of another version."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of waits of version {state.get('version')!r} is not one of {cls.version!r}")
        return cls(QuantileForest.from_state(state))


def earlier_forecasts(waits: Waits, rows: Ints, times: int) -> Floats:
    """(k,) the waits of these rows (k,) in seconds, as a model would have forecast them that was fitted so many times,
    at even parts of them, on all jobs that had started before; NaN while these were too few."""
    found = np.full(len(rows), np.nan)
    for part in even_parts(len(rows), times):
        model = WaitModel.fit(waits.known(waits.submit[rows[part[0]]]))
        if model is not None:
            found[part] = model.waits(waits.features[rows[part]])
    return found


def even_parts(count: int, parts: int) -> list[Ints]:
    """The places of so many in even parts, none of which is empty."""
    return [part for part in np.array_split(np.arange(count), parts) if len(part)]


def _filled(features: Floats) -> Floats:
    return np.nan_to_num(features, nan=_MISSING)
