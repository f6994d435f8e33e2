"""Tables of speed by GPUs, relative to a job's own pace: made once for all jobs of a kind that were seen alike."""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from predictors.arrays import Floats
from predictors.forecast import LEVELS
from predictors.speed import Measured, SpeedPredictor
from slurmplug.forecasting.speeds.seen_speeds import PlacementShape, SeenSpeeds, Steps, Whose

MAX_PER_CYCLE = 100
"""The most tables of jobs of a kind that are made in one cycle: each takes about a millisecond."""
MAX_FITS_PER_CYCLE = 20
"""The most kinds whose scaling is learnt in one cycle: each takes some milliseconds."""
MAX_FITS = 256
"""The kinds whose scaling is kept, those used last."""
FEW_JOBS = 4
"""A kind's scaling is learnt without a job where it is learnt from so few that it would count twice for itself."""
REFIT_SHARE, REFIT_CHANGES = 0.25, 16
"""A kind's scaling is learnt again when so much more is known of it, or there were so many changes."""
_MEDIAN = len(LEVELS) // 2
_DEVIATES = ndtri(LEVELS[1:-1])


class Table(NamedTuple):
    """What a table is made from: the fit of a kind, the job if it is one of those fitted, and what the job was seen at:
    GPUs, nodes, and seconds an iteration relative to the one at the reference. spread: standard deviation of the
    logarithm of the pace there."""

    fit: int
    job: int
    seen: tuple[tuple[int, int, float], ...]
    spread: float = 0.0


class _Fit(NamedTuple):
    number: int
    predictor: SpeedPredictor
    jobs: Mapping[Hashable, int]
    changes: int
    """of the kind's jobs seen on several placements, when it was fitted"""


UNKNOWN_KIND = _Fit(0, SpeedPredictor(), {}, 0)
"""What may be expected of any job: less speed than in proportion, and less over several nodes."""


class SpeedTables:
    """Speeds (k, levels) on k numbers of GPUs, on as few nodes as hold them, relative to a pace.

    An iteration is the same work on any number of GPUs, such as an epoch. The predictor knows of steps in which a GPU
    does the same work whatever their number, so it is given, and predicts, the time in which one GPU would do all.
    """

    def __init__(self, seen: SeenSpeeds) -> None:
        self._seen = seen
        self._fits: dict[Whose, _Fit] = {}
        self._number = 0
        self._tables: dict[Table, Floats] = {}
        self._by_placement: dict[tuple[Whose, PlacementShape, float], Table] = {}
        """of this cycle"""
        self._used: set[Table] = set()
        self._left = self._fits_left = 0
        self._gpus: Floats = np.zeros(0)
        self._a_node = 1

    def begin(self, gpus: Floats, a_node: int) -> None:
        """Begin a cycle: tables are for these numbers of GPUs (k,), with so many on a node. Those that the cycle before
        did not use may be forgotten."""
        if not np.array_equal(gpus, self._gpus) or a_node != self._a_node:
            self._gpus, self._a_node, self._tables = gpus, a_node, {}
        if len(self._tables) > 2 * len(self._used):
            self._tables = {table: self._tables[table] for table in self._used if table in self._tables}
        self._used.clear()
        self._by_placement.clear()
        while len(self._fits) > MAX_FITS:
            del self._fits[next(iter(self._fits))]
        self._left, self._fits_left = MAX_PER_CYCLE, MAX_FITS_PER_CYCLE

    def tight(self, gpus: int) -> PlacementShape:
        """As many nodes as hold so many GPUs."""
        return PlacementShape(gpus, -(-gpus // self._a_node))

    def of_job(self, whose: Whose, job: Hashable, steps: Steps) -> Table:
        """The table of a job by what was seen of it, relative to its pace where it was seen last."""
        fit = self._fit(whose)
        reference = next(reversed(steps.values()))
        seen = tuple(sorted((*place, step / reference) for place, step in steps.items()))
        number = fit.jobs.get(job, -1) if len(fit.jobs) <= FEW_JOBS else -1
        wanted = Table(fit.number, number, seen)
        return self._made(wanted, fit) or self.by_placement(whose, next(reversed(steps)))

    def by_placement(self, whose: Whose, reference: PlacementShape, spread: float = 0.0) -> Table:
        """The table of a job of the kind, relative to its pace at one placement, which is known up to a spread."""
        wanted = whose, reference, round(spread, 1)
        if wanted not in self._by_placement:
            self._by_placement[wanted] = self._of_placement(*wanted)
        return self._by_placement[wanted]

    def _of_placement(self, whose: Whose, reference: PlacementShape, spread: float) -> Table:
        fit, seen = self._fit(whose), ((*reference, 1.0),)
        made = self._made(Table(fit.number, -1, seen), fit)
        if made is None:
            made = Table(UNKNOWN_KIND.number, -1, seen)
            self._made(made, UNKNOWN_KIND)
        return self._widened(made, spread) if spread else made

    def relative_speed(self, whose: Whose, gpus: float) -> float:
        """The median speed of a job of the kind on so many GPUs, relative to that on one."""
        table = self[self.by_placement(whose, PlacementShape(1, 1))]
        return float(np.interp(gpus, self._gpus, table[:, _MEDIAN]) / table[0, _MEDIAN])

    def relative_speed_of_job(self, whose: Whose, job: Hashable, steps: Steps, gpus: float) -> float:
        """The median speed of a job on so many GPUs, relative to that where it was seen last."""
        return float(np.interp(gpus, self._gpus, self[self.of_job(whose, job, steps)][:, _MEDIAN]))

    def __getitem__(self, table: Table) -> Floats:
        """(k, levels) the speeds of a table of this cycle."""
        return self._tables[table]

    def _fit(self, whose: Whose) -> _Fit:
        """How the kind scales, learnt again when much more is known of it."""
        _, changes = self._seen.events(whose.kind)
        fit = self._fits.pop(whose, UNKNOWN_KIND)
        new = changes - fit.changes
        if new and new >= min(REFIT_SHARE * fit.changes, REFIT_CHANGES) and self._fits_left > 0:
            self._fits_left -= 1
            fit = self._fitted(self._seen.scaling(whose), changes)
        if changes:
            self._fits[whose] = fit
        return fit

    def _fitted(self, jobs: Mapping[Hashable, Steps], changes: int) -> _Fit:
        """How these jobs of a kind scale."""
        if not jobs:
            return UNKNOWN_KIND._replace(changes=changes)
        points = [(*place, step, number) for number, steps in enumerate(jobs.values()) for place, step in steps.items()]
        gpus, nodes, step, number = np.array(points).T
        self._number += 1
        predictor = SpeedPredictor().fit(gpus, nodes, gpus * step, number)
        return _Fit(self._number, predictor, {job: at for at, job in enumerate(jobs)}, changes)

    def _made(self, table: Table, fit: _Fit) -> Table | None:
        """The table, made now if it was not; None where there is no time for it in this cycle."""
        if table not in self._tables:
            if fit.number and self._left <= 0:
                return None
            self._left -= fit.number > 0
            self._tables[table] = self._tabulated(table, fit.predictor)
        self._used.add(table)
        return table

    def _tabulated(self, table: Table, predictor: SpeedPredictor) -> Floats:
        """The forecast, and where the job was seen just so its pace there, which a forecast would smooth."""
        gpus, nodes, step = np.array(table.seen).T
        tight = np.ceil(self._gpus / self._a_node)
        forecast = predictor.predict(self._gpus, tight, table.job, Measured(gpus, nodes, gpus * step)).table
        speeds = np.asarray(forecast * self._gpus[:, None])
        for count, on, seconds in table.seen:
            column = np.flatnonzero((self._gpus == count) & (tight == on))
            speeds[column, 1:-1] /= speeds[column, _MEDIAN, None] * seconds
        return speeds

    def _widened(self, table: Table, spread: float) -> Table:
        """The table where the pace at the reference is known only up to a spread."""
        wide = table._replace(spread=spread)
        if wide not in self._tables:
            made = self._tables[table].copy()
            median = made[:, _MEDIAN, None]
            deviation = np.hypot(np.log(made[:, 1:-1] / median), spread * _DEVIATES)
            made[:, 1:-1] = median * np.exp(np.sign(_DEVIATES) * deviation)
            self._tables[wide] = made
        self._used.add(wide)
        return wide
