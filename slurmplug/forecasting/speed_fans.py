"""Iterations per second by GPUs, from the placements on which a job and others of its kind were seen to train.

Which of them are the user's own, and what those of others may say, is decided by `predictors.influence`.
"""

import operator
from collections.abc import Iterable, Mapping
from math import isfinite, nan
from typing import Any, ClassVar, NamedTuple

import numpy as np

from policies.snapshot import JobKey, Jobs, Snapshot
from predictors import influence
from predictors.arrays import Floats, Ints
from predictors.forecast import Fan, Forecast
from predictors.speed import SpeedPredictor

MAX_RUNS = 20
"""A step time is the median over this many of a user's latest runs of a kind on one placement."""
MAX_FITS_PER_CYCLE = 100
"""The most kinds whose speed is fitted in one cycle: each fit takes some milliseconds."""
REFIT_CHANGE = 0.02
"""A kind is fitted again when one of its step times has changed by more than this share."""


class PlacementShape(NamedTuple):
    """A number of GPUs, and the number of nodes that they are on."""

    gpus: int
    nodes: int


class Whose(NamedTuple):
    """Whose jobs of which kind; the user is empty for all users who have none of their own."""

    kind: str
    user: str


class _Scaled(NamedTuple):
    """The speeds of a job: a table of its kind's or its placement's, times a factor."""

    table: Whose | PlacementShape
    factor: float

    @property
    def source(self) -> str:
        return "measured speed" if isinstance(self.table, Whose) else "run time and scaling"


def kind_of(kind: str, user: str, name: str) -> str:
    """The kind of a job; jobs of a kind train at the same speed: those of a type, else those of a user and job name."""
    return f"type {kind}" if kind else f"job {user} {name}"


class SeenSpeeds:
    """Seconds an iteration of each kind of job on each placement, of the latest runs.

    Cold it knows of none; `add` learns of a run that ended, `note` of those that train now.
    """

    version: ClassVar[str] = "seen-speeds-2"

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, dict[PlacementShape, dict[object, float]]]] = {}
        """by kind, user and placement"""
        self._medians: dict[str, dict[str, dict[PlacementShape, float]]] = {}
        """of the kinds whose step times have not changed since they were computed"""
        self._training: tuple[tuple[JobKey, ...], list[int], list[list[Any]]] = (), [], []
        """the jobs of the snapshot noted last, those rows of them that trained, and how"""

    def add(self, whose: Whose, placement: PlacementShape, run: object, step: float) -> None:
        """A user's run of a kind took `step` seconds an iteration there; a run that is known is replaced."""
        if not (isfinite(step) and step > 0 and placement.gpus >= placement.nodes >= 1):
            return
        kind = whose.kind
        runs = self._runs.setdefault(kind, {}).setdefault(whose.user, {}).setdefault(placement, {})
        if runs.pop(run, None) != step:
            self._medians.pop(kind, None)
        runs[run] = step
        while len(runs) > MAX_RUNS:
            del runs[next(iter(runs))]
            self._medians.pop(kind, None)

    def note(self, snapshot: Snapshot) -> None:
        """Add the step times of the snapshot's jobs; noting the same ones twice changes nothing."""
        jobs = snapshot.jobs
        gpus, nodes = placements(snapshot)
        rows = np.flatnonzero((jobs.iteration_time > 0) & (gpus >= nodes) & (nodes > 0))
        columns = (gpus, nodes, jobs.restarts, jobs.iteration_time, jobs.kind, jobs.user, jobs.name)
        training = jobs.keys, rows.tolist(), [column[rows].tolist() for column in columns]
        if training[0] is self._training[0] and training == self._training:
            return
        self._training = training
        for row, *place, restarts, step, kind, user, name in zip(training[1], *training[2], strict=True):
            whose = Whose(kind_of(kind, user, name), user)
            self.add(whose, PlacementShape(*place), (jobs.keys[row], restarts), step)

    def whose(self, kind: str, user: str) -> Whose:
        """By whose runs of this kind a user's jobs go: their own, or those of others."""
        return Whose(kind, user if user in self._runs.get(kind, {}) else "")

    def of(self, whose: Whose) -> Mapping[PlacementShape, float]:
        """The step time in seconds of a kind for these users' jobs, by placement."""
        return influence.measured_for(whose.user, self._of_users(whose.kind))

    def _of_users(self, kind: str) -> Mapping[str, Mapping[PlacementShape, float]]:
        """The median step times of each user's runs of a kind."""
        if kind not in self._medians:
            self._medians[kind] = {
                user: {place: float(np.median(list(steps.values()))) for place, steps in places.items()}
                for user, places in self._runs.get(kind, {}).items()
            }
        return self._medians[kind]

    def state(self) -> dict[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same: the medians."""
        rows = [
            (kind, user, *place, step)
            for kind in self._runs
            for user, places in self._of_users(kind).items()
            for place, step in places.items()
        ]
        kinds, users, gpus, nodes, step = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        return {
            "version": self.version,
            "kinds": np.array(kinds, dtype=np.str_),
            "users": np.array(users, dtype=np.str_),
            "gpus": np.array(gpus, dtype=np.int64),
            "nodes": np.array(nodes, dtype=np.int64),
            "step_time": np.array(step, dtype=np.float64),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "SeenSpeeds":
        """Raises ValueError for the state of another version: learn again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        made = cls()
        columns = (state[name].tolist() for name in ("kinds", "users", "gpus", "nodes", "step_time"))
        for kind, user, gpus, nodes, step in zip(*columns, strict=True):
            made.add(Whose(kind, user), PlacementShape(gpus, nodes), "before", step)
        return made


class SpeedFans:
    """The speeds of the jobs in a snapshot by GPUs, on as few nodes as hold them.

    A kind that was seen training is fitted, and a job that trains moved to its own pace. Where no job of the kind was,
    the forecast run time gives the pace on what the job requests ("run time and scaling"); how that scales with GPUs is
    what may be expected of any job: less than in proportion, and less over several nodes.

    An iteration is the same work on any number of GPUs, such as an epoch. The predictor knows of steps in which a GPU
    does the same work whatever their number, so it is given, and predicts, the time in which one GPU would do all.
    """

    def __init__(self, seen: SeenSpeeds) -> None:
        self._seen = seen
        self._fits: dict[Whose, tuple[Mapping[PlacementShape, float], SpeedPredictor]] = {}
        self._shapes: dict[PlacementShape, SpeedPredictor] = {}
        self._tables: dict[Whose | PlacementShape, Floats] = {}
        self._grid: Floats = np.zeros(0)
        self._a_node = 0
        self._latest: tuple[list[int], list[_Scaled], list[Floats], Fan] = [], [], [], Fan.unknown(0)
        """the latest fan, and what it was made of"""

    def speeds(self, snapshot: Snapshot, total: Forecast) -> Fan:
        """A fan over GPUs up to the most that any job may have. total (n,): forecast run times in seconds.

        Jobs of the same speeds share a row of it. The same object as in the cycle before where nothing changed.
        """
        jobs, n = snapshot.jobs, len(snapshot.jobs)
        self._seen.note(snapshot)
        rows = np.flatnonzero((jobs.gpus_max > 0) & (jobs.gpus > 0))
        if not len(rows):
            return Fan.unknown(n)
        a_node = max(int(snapshot.nodes.capacity[:, 0].max(initial=0.0)), 1)
        self._tabulate_for(grid(int(jobs.gpus_max.max())), a_node)
        kinds = self._kinds(jobs)
        fitted = self._fitted(dict.fromkeys(kinds[row] for row in rows.tolist()))
        gpus, nodes = (held.tolist() for held in placements(snapshot))
        with np.errstate(divide="ignore", invalid="ignore"):
            paces = (jobs.max_iterations / total.median).tolist()
        requested, steps = jobs.gpus.tolist(), jobs.iteration_time.tolist()
        shared: dict[_Scaled, int] = {}
        index = [-1] * n
        for row in rows.tolist():
            kind = kinds[row]
            if kind in fitted:
                usual = fitted[kind].get(PlacementShape(gpus[row], nodes[row]), nan)
                own = usual / steps[row] if steps[row] else nan
                scaled = _Scaled(kind, own if 0 < own < np.inf else 1.0)
            elif 0 < paces[row] < np.inf:
                scaled = _Scaled(self._reference_placement(requested[row]), paces[row])
            else:
                continue
            index[row] = shared.setdefault(scaled, len(shared))
        return self._fan(index, list(shared))

    def _fan(self, index: list[int], scaled: list["_Scaled"]) -> Fan:
        """A fan of these scaled tables; index (n,): which of them each job has, -1 for none."""
        tables = [self._tables[each.table] for each in scaled]
        before_index, before_scaled, before_tables, fan = self._latest
        if index == before_index and scaled == before_scaled and all(map(operator.is_, tables, before_tables)):
            return fan
        if scaled:
            x = np.tile(self._grid, (len(scaled), 1))
            factors = np.array([each.factor for each in scaled])[:, None, None]
            fan = Fan(np.array(index), x, np.stack(tables) * factors, np.array([each.source for each in scaled]))
        else:
            fan = Fan.unknown(len(index))
        self._latest = index, scaled, tables, fan
        return fan

    def _tabulate_for(self, gpus: Floats, a_node: int) -> None:
        """Forget the tables for other counts of GPUs, or other nodes."""
        if not np.array_equal(gpus, self._grid) or a_node != self._a_node:
            self._grid, self._a_node, self._tables = gpus, a_node, {}

    def _kinds(self, jobs: Jobs) -> list[Whose]:
        """(n,) the kind of each job, and by whose runs of it the job goes."""
        users = jobs.user.tolist()
        kinds = map(kind_of, jobs.kind.tolist(), users, jobs.name.tolist())
        return list(map(self._seen.whose, kinds, users))

    def _fitted(self, kinds: Iterable[Whose]) -> Mapping[Whose, Mapping[PlacementShape, float]]:
        """The step times that each kind was seen at, of those kinds that have a table."""
        found = {kind: seen for kind in kinds if (seen := self._seen.of(kind))}
        for kind in self._fits.keys() - found.keys():
            del self._fits[kind]
            self._tables.pop(kind, None)
        stale = [
            kind for kind, seen in found.items() if kind not in self._fits or _need_refit(self._fits[kind][0], seen)
        ]
        for kind in sorted(stale, key=self._fits.__contains__)[:MAX_FITS_PER_CYCLE]:
            gpus, nodes = np.array(list(found[kind]), dtype=np.float64).T
            each = gpus * np.array(list(found[kind].values()))
            self._fits[kind] = found[kind], SpeedPredictor().fit(gpus, nodes, each)
            self._tables.pop(kind, None)
        for kind, (_, predictor) in self._fits.items():
            if kind not in self._tables:
                self._tables[kind] = self._tabulated(predictor)
        return {kind: found[kind] for kind in self._fits}

    def _reference_placement(self, gpus: int) -> PlacementShape:
        """The placement of this many GPUs, with a table of speeds relative to the speed there."""
        place = PlacementShape(gpus, -(-gpus // self._a_node))
        if place not in self._shapes:
            self._shapes[place] = SpeedPredictor().fit([place.gpus], [place.nodes], [place.gpus])
        if place not in self._tables:
            self._tables[place] = self._tabulated(self._shapes[place])
        return place

    def _tabulated(self, predictor: SpeedPredictor) -> Floats:
        by_gpu = predictor.predict(self._grid, np.ceil(self._grid / self._a_node)).table
        return np.asarray(by_gpu * self._grid[:, None])


def placements(snapshot: Snapshot) -> tuple[Ints, Ints]:
    """(n,) GPUs that each job holds, and (n,) the nodes that they are on."""
    on, n = snapshot.runs_on, len(snapshot.jobs)
    gpus = np.bincount(on[:, 0], weights=on[:, 2], minlength=n).astype(np.int64)
    return gpus, np.bincount(on[on[:, 2] > 0, 0], minlength=n)


def grid(most: int) -> Floats:
    """Counts of GPUs up to `most`, about a third apart: 1, 2, 3, 4, 6, 8, 12, ..."""
    powers = 2 ** np.arange(most.bit_length() + 1)
    counts = np.unique(np.concatenate([[1, most], powers, 3 * powers]))
    return counts[counts <= most].astype(np.float64)


def _need_refit(before: Mapping[PlacementShape, float], now: Mapping[PlacementShape, float]) -> bool:
    return before.keys() != now.keys() or any(
        abs(now[place] / step - 1.0) > REFIT_CHANGE for place, step in before.items()
    )
