"""GPUs where they shorten the time left most."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from policies.allocation import Packing, elastic, gangs, grown, in_order
from policies.baselines.common import remaining_seconds, shared
from policies.plan import Memory, Plan
from policies.policy import Policy
from policies.snapshot import Snapshot
from predictors.arrays import Floats
from predictors.forecast import LEVELS, Fan, Forecasts, Need

A_LITTLE = 1e-3
"""of an iteration: enough for a job in its last one to be given GPUs that nobody else wants"""
MOST = float(np.finfo(np.float64).max)
MEDIAN = int(np.abs(LEVELS - 0.5).argmin())


@dataclass(frozen=True)
class OptimusSettings:
    """packing: as for Tiresias. begun: an iteration that has begun counts as done, as in Pollux's simulation, so that
    in its last one a job asks for its least only."""

    packing: Packing = "wide"
    begun: bool = True

    def __post_init__(self) -> None:
        if self.packing not in ("tight", "wide"):
            raise ValueError(f"packing is tight or wide, not {self.packing!r}")


class Optimus(Policy):
    """Every job its least, then one GPU after another to the job that it shortens most (Peng et al., EuroSys 2018).

    Section 4.1: the marginal gain of one more worker is what it takes off the time left, iterations left over speed; a
    GPU goes to the greatest, as long as there is a positive one. Speed is forecast by GPUs (their section 3.2); the
    iterations left are those to the maximum that the job names (they fit a loss curve, 3.1). As Pollux (Qiao et al.,
    OSDI 2021, section 5.3) simulates it: the least is handed out by submission; jobs whose number changes are placed
    anew, the smallest first (after 4.2). A job whose number of GPUs is fixed, or of whose speed nothing is known, is
    given what it asked for. Left out: parameter servers and their balance (4.2, 5.3).
    """

    name = "optimus"
    needs: frozenset[Need] = frozenset({"speed", "remaining"})
    decides_on = "reports"

    def __init__(self, settings: OptimusSettings | None = None) -> None:
        self.settings: OptimusSettings = settings or OptimusSettings()

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:  # noqa: ARG002 nothing to remember
        """Rank by submission, and give GPUs by marginal gain."""
        jobs = snapshot.jobs
        speeds = Speeds.of(forecasts.speed)
        left = iterations_left(snapshot, forecasts, speeds, begun=self.settings.begun)
        told = elastic(jobs) & (left > 0)
        least = np.where(told, jobs.gpus_min, jobs.gpus)
        order = in_order(jobs)
        wanted = gangs(snapshot, order, preempt=True, asked=least)

        iterations = np.where(told, left, 0.0).tolist()

        def gain(row: int, gpus: int) -> float:
            return iterations[row] * speeds.saved(row, gpus) if iterations[row] else 0.0

        wanted = grown(snapshot, wanted, gain)
        smallest_first = order[np.argsort(wanted[order], kind="stable")]
        return shared(snapshot, order, wanted, packing=self.settings.packing, placed=smallest_first)

    def until(self, snapshot: Snapshot) -> float:
        """For ever, if nothing happens and no job reports: it would decide as it did.

        Not where a job names no maximum: its iterations left are told by the time left.
        """
        return snapshot.now if np.isnan(snapshot.jobs.max_iterations).any() else np.inf


class Speeds:
    """The median forecast of speed, row by row and GPU by GPU, without making a distribution of each."""

    def __init__(self, fan: Fan) -> None:
        self._place = fan.index.tolist()
        self._gpus = fan.x
        self._speed = fan.table[:, :, MEDIAN]
        self._saved: dict[int, list[float]] = {}

    @classmethod
    @lru_cache(maxsize=1)
    def of(cls, fan: Fan) -> "Speeds":
        """Those of a fan, which often is the one of the decision before."""
        return cls(fan)

    def at(self, row: int, gpus: float) -> float:
        """Iterations a second; NaN where nothing is known."""
        place = self._place[row]
        return float(np.interp(gpus, self._gpus[place], self._speed[place])) if place >= 0 else np.nan

    def saved(self, row: int, gpus: int) -> float:
        """Seconds that one GPU more than so many saves an iteration, of a row of which something is known."""
        place = self._place[row]
        saved = self._saved.get(place)
        if saved is None:
            grid = self._gpus[place]
            speed = np.interp(np.arange(int(grid[-1]) + 1), grid, self._speed[place])
            times = np.divide(1.0, speed, out=np.full(len(speed), np.inf), where=speed > 0)
            with np.errstate(invalid="ignore"):
                saved = self._saved[place] = (times[:-1] - times[1:]).tolist()
        return saved[gpus] if gpus < len(saved) else 0.0


def iterations_left(snapshot: Snapshot, forecasts: Forecasts, speeds: Speeds, *, begun: bool) -> Floats:
    """(n,) iterations to the maximum that the job names, or else as many as the forecast time left holds; 0 where no
    speed is known, or neither of these. begun: not counting the one under way, but for a little."""
    jobs, known = snapshot.jobs, forecasts.speed.known
    left = jobs.max_iterations - jobs.iteration
    left = np.where(known, np.maximum(left - 1.0, A_LITTLE) if begun else left, 0.0)
    rows = np.flatnonzero(known & np.isnan(left)).tolist()
    seconds = remaining_seconds(snapshot, forecasts.remaining) if rows else left
    for row in rows:
        left[row] = seconds[row] * speeds.at(row, float(jobs.gpus[row]))
    return np.asarray(np.fmin(np.fmax(left, 0.0), MOST))
