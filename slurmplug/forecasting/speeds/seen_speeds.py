"""Step times as they were seen: of each job, by the placement on which it trained.

Jobs of a kind are of different sizes, so that step times are kept by job: how a kind scales shows in the ratios within
a job that was seen on several placements. Whose jobs say what is decided by `predictors.influence`.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from itertools import combinations
from math import isfinite, log, log2
from statistics import median
from typing import Any, ClassVar, NamedTuple

import numpy as np

from policies.placement.allocation import held_gpus
from policies.snapshot import JobKey, Snapshot
from predictors import influence
from predictors.arrays import Ints

MAX_JOBS = 20
"""How many of a user's latest jobs of a kind are kept that were seen on one placement, and as many seen on several."""
MAX_KINDS = 10_000
"""The kinds that were seen last are kept: those without a type are as many as names of jobs."""
MAX_PLACEMENTS = 8
"""The latest placements that are kept of a job."""
MAX_SAVED = 20_000
"""The latest step times that are saved."""
CHANGE = 0.02
"""A step time on a known placement is replaced when it has changed by more than this share."""
GROUPS, GROUP_PLACEMENTS = 8, 4
"""A kind's scaling is learnt from so many jobs of a user, those seen on the widest range of GPUs, and so many of their
placements; and from as many ratios on which other users agree."""

_COLUMNS = {
    "kinds": np.str_, "users": np.str_, "clusters": np.str_, "job_ids": np.int64, "first_submits": np.int64,
    "gpus": np.int64, "nodes": np.int64, "step_time": np.float64,
}  # fmt: skip
"""the columns of the saved state: a row for each step time"""


class PlacementShape(NamedTuple):
    """A number of GPUs, and the number of nodes that they are on."""

    gpus: int
    nodes: int


Steps = dict[PlacementShape, float]
"""Seconds an iteration of a job by placement, the latest last."""


class Whose(NamedTuple):
    """Whose jobs of which kind; the user is empty for all users who have none of their own."""

    kind: str
    user: str


class SeenAt(NamedTuple):
    """Seconds an iteration of a job on its latest placement."""

    placement: PlacementShape
    step: float


_ON = "\x1f"
"""between a type of GPU and a kind"""


def kind_of(kind: str, user: str, name: str, gpu_type: str = "") -> str:
    """The kind of a job; jobs of a kind scale alike: those of a type, else those of a user and job name, on one type of
    GPU. A user chooses the name, which must not pass for a type of GPU."""
    return typed_kind(f"type {kind}" if kind else f"job {user} {name.replace(_ON, ' ')}", gpu_type)


def typed_kind(kind: str, gpu_type: str) -> str:
    """The kind of jobs of a kind on GPUs of a type, where that is known."""
    return f"{gpu_type}{_ON}{kind}" if gpu_type else kind


def untyped_kind(kind: str) -> tuple[str, str]:
    """A kind without its type of GPU, and that type."""
    gpu_type, on, rest = kind.partition(_ON)
    return (rest, gpu_type) if on else (kind, "")


class SeenSpeeds:
    """Seconds an iteration of each job on each of its placements, of the latest jobs.

    Cold it knows of none; `add` learns of a job that ended, `note` of those that train now.
    """

    version: ClassVar[str] = "seen-speeds-3"

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, dict[Hashable, Steps]]] = {}
        """by kind, user and job, the latest last"""
        self._ratios: dict[str, dict[str, dict[tuple[PlacementShape, PlacementShape], float]]] = {}
        """the ratios within each user's jobs of a kind, as far as they were asked for"""
        self._events: dict[str, tuple[int, int]] = {}
        """how often what is known of a kind has changed, and how often of a job seen on several placements"""
        self._most: dict[str, dict[str, int]] = {}
        """the most GPUs on which a user's jobs of a kind were seen"""
        self._live: dict[tuple[str, JobKey], Steps] = {}
        """by kind, as the type of GPU may change, and job: of those in the snapshot noted last"""
        self._types: dict[str, dict[str, None]] = {}
        """by kind without its type of GPU, the types on which it was seen"""
        self._training: tuple[tuple[JobKey, ...], list[int], list[list[Any]]] = (), [], []
        """the jobs of the snapshot noted last, those rows of them that trained, and how"""

    def add(self, whose: Whose, placement: PlacementShape, job: Hashable, step: float) -> Steps:
        """A user's job of a kind takes `step` seconds an iteration there; all that is known of the job.

        What cannot be is left out.
        """
        if not (isfinite(step) and step > 0 and placement.gpus >= placement.nodes >= 1):
            return self._known(whose, job)
        self._jobs[whose.kind] = of_kind = self._jobs.pop(whose.kind, {})
        kind, gpu_type = untyped_kind(whose.kind)
        self._types.setdefault(kind, {})[gpu_type] = None
        while len(self._jobs) > MAX_KINDS:
            self._forget(next(iter(self._jobs)))
        of_user = of_kind.setdefault(whose.user, {})
        steps = of_user.pop(job, {})
        of_user[job] = steps
        before = steps.pop(placement, None)
        same = before is not None and abs(step / before - 1.0) <= CHANGE
        steps[placement] = before if before is not None and same else step
        while len(steps) > MAX_PLACEMENTS:
            del steps[next(iter(steps))]
        most = self._most.setdefault(whose.kind, {})
        most[whose.user] = max(most.get(whose.user, 0), placement.gpus)
        if not same:
            seen, ratios = self._events.get(whose.kind, (0, 0))
            self._events[whose.kind] = seen + 1, ratios + (len(steps) > 1)
            self._ratios.get(whose.kind, {}).pop(whose.user, None)
            _forget_oldest(of_user, several=len(steps) > 1)
        return steps

    def note(self, snapshot: Snapshot) -> None:
        """Add the step times of the snapshot's jobs; noting the same ones twice changes nothing."""
        jobs = snapshot.jobs
        gpus, nodes = placements(snapshot)
        rows = np.flatnonzero((jobs.iteration_time > 0) & (gpus >= nodes) & (nodes > 0))
        columns = (gpus, nodes, jobs.iteration_time, jobs.kind, jobs.user, jobs.name, jobs.gpu_type)
        training = jobs.keys, rows.tolist(), [column[rows].tolist() for column in columns]
        if training[0] is self._training[0] and training == self._training:
            return
        if jobs.keys is not self._training[0]:
            present = set(jobs.keys) if self._live else frozenset()
            self._live = {known: steps for known, steps in self._live.items() if known[1] in present}
        self._training = training
        for row, *place, step, kind, user, name, gpu_type in zip(training[1], *training[2], strict=True):
            key, whose = jobs.keys[row], Whose(kind_of(kind, user, name, gpu_type), user)
            known = whose.kind, key
            if known in self._live:
                self._jobs.setdefault(whose.kind, {}).setdefault(user, {}).setdefault(key, self._live[known])
            self._live[known] = self.add(whose, PlacementShape(*place), key, step)

    def of_job(self, whose: Whose, job: Hashable) -> Steps:
        """What is known of a job of the snapshot noted last, or of one that is kept."""
        live = self._live.get((whose.kind, job)) if isinstance(job, JobKey) else None
        return live or self._known(whose, job)

    def jobs_of(self, whose: Whose) -> Mapping[Hashable, Steps]:
        """The user's own jobs of the kind."""
        return self._jobs.get(whose.kind, {}).get(whose.user, {})

    def users(self, kind: str) -> Set[str]:
        """The users of whom jobs of the kind were seen."""
        return self._jobs.get(kind, {}).keys()

    def gpu_types(self, kind: str) -> Sequence[str]:
        """The types of GPU on which a kind was seen, the empty one where that was not known."""
        return [*self._types.get(kind, {})]

    def on_other_types(self, kind: str, gpu_type: str) -> bool:
        """Whether a kind was seen on another type than this."""
        types = self._types.get(kind)
        return types is not None and (len(types) > 1 or gpu_type not in types)

    def kinds_on_both(self, first: str, second: str) -> Iterator[str]:
        """The kinds, without their type of GPU, that were seen on both types, those seen last first."""
        for typed in reversed(self._jobs):
            kind, gpu_type = untyped_kind(typed)
            if gpu_type == second and typed_kind(kind, first) in self._jobs:
                yield kind

    def whose(self, kind: str, user: str) -> Whose:
        """By whose jobs of this kind a user's jobs go: their own, or those of others."""
        return Whose(kind, user if user in self._jobs.get(kind, {}) else "")

    def events(self, kind: str) -> tuple[int, int]:
        """How often what is known of a kind has changed, and how often of a job seen on several placements."""
        return self._events.get(kind, (0, 0))

    def scaling(self, whose: Whose) -> dict[Hashable, Steps]:
        """The jobs whose ratios between placements hold for these users' jobs: step times by job and placement.

        Users' own jobs, and one made up for each ratio that they did not see and on which enough others agree.
        """
        own = self._jobs.get(whose.kind, {}).get(whose.user, {})
        several = {job: _spread_out(steps) for job, steps in own.items() if len(steps) > 1}
        widest = sorted(several, key=lambda job: _range(several[job]), reverse=True)[:GROUPS]
        found = {job: several[job] for job in widest}
        by_user = {user: self._ratios_of(whose.kind, user) for user in self._jobs.get(whose.kind, {})}
        agreed = influence.agreed(whose.user, by_user)
        for low, high in sorted(agreed, key=lambda pair: pair[1].gpus / pair[0].gpus, reverse=True)[:GROUPS]:
            found[low, high] = {low: 1.0 / low.gpus, high: agreed[low, high] / high.gpus}
        return found

    def most_gpus(self, whose: Whose) -> int:
        """The most GPUs on which these users' jobs of the kind were seen, or those of enough others; 0 for none."""
        return int(influence.reached_by_enough(whose.user, self._most.get(whose.kind, {})))

    def latest(self, whose: Whose) -> Mapping[Hashable, SeenAt]:
        """Where each of the user's own jobs of the kind was seen last."""
        return {job: SeenAt(*next(reversed(steps.items()))) for job, steps in self.jobs_of(whose).items()}

    def state(self) -> dict[str, Any]:
        """Arrays and plain values, from which `from_state` makes the same: the jobs that Slurm knows by a key."""
        rows = list(self._rows())[-MAX_SAVED:]
        columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
        arrays: dict[str, Any] = {
            name: np.array(column, dtype=kind) for (name, kind), column in zip(_COLUMNS.items(), columns, strict=True)
        }
        return {"version": self.version, **arrays}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "SeenSpeeds":
        """Raises ValueError for the state of another version: learn again instead."""
        if state.get("version") != cls.version:
            raise ValueError(f"a model of version {state.get('version')!r} is not one of {cls.version!r}: fit it again")
        made = cls()
        columns = (state[name].tolist() for name in _COLUMNS)
        for kind, user, cluster, job, submit, gpus, nodes, step in zip(*columns, strict=True):
            made.add(Whose(kind, user), PlacementShape(gpus, nodes), JobKey(cluster, job, submit), step)
        return made

    def _forget(self, kind: str) -> None:
        for known in (self._jobs, self._ratios, self._events, self._most):
            known.pop(kind, None)
        base, gpu_type = untyped_kind(kind)
        types = self._types.get(base, {})
        types.pop(gpu_type, None)
        if not types:
            self._types.pop(base, None)

    def _known(self, whose: Whose, job: Hashable) -> Steps:
        return self._jobs.get(whose.kind, {}).get(whose.user, {}).get(job, {})

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        for kind, users in self._jobs.items():
            for user, jobs in users.items():
                for job, steps in jobs.items():
                    if isinstance(job, JobKey):
                        yield from ((kind, user, *job, *place, step) for place, step in steps.items())

    def _ratios_of(self, kind: str, user: str) -> Mapping[tuple[PlacementShape, PlacementShape], float]:
        """The median over a user's jobs of the ratio of GPU seconds an iteration, of the second of two placements to
        the first, where placements are told apart by powers of two: other users' are hardly ever quite the same."""
        known = self._ratios.setdefault(kind, {})
        if user not in known:
            found: dict[tuple[PlacementShape, PlacementShape], list[float]] = {}
            for steps in self._jobs[kind][user].values():
                each = {_rounded(place): place.gpus * step for place, step in steps.items()}
                for low, high in combinations(sorted(each), 2):
                    found.setdefault((low, high), []).append(each[high] / each[low])
            known[user] = {pair: median(ratios) for pair, ratios in found.items()}
        return known[user]


def placements(snapshot: Snapshot) -> tuple[Ints, Ints]:
    """(n,) GPUs that each job holds, and (n,) the nodes that they are on."""
    on = snapshot.runs_on
    return held_gpus(snapshot), np.bincount(on[on[:, 2] > 0, 0], minlength=len(snapshot.jobs))


def _forget_oldest(jobs: dict[Hashable, Steps], *, several: bool) -> None:
    """Drop the oldest of the jobs seen on one placement, or on several, where they are too many."""
    alike = [job for job, steps in jobs.items() if (len(steps) > 1) == several]
    for job in alike[: max(len(alike) - MAX_JOBS, 0)]:
        del jobs[job]


def _spread_out(steps: Steps) -> Steps:
    """Some of the placements, from the fewest GPUs to the most."""
    places = sorted(steps)
    if len(places) > GROUP_PLACEMENTS:
        places = [places[at] for at in np.linspace(0, len(places) - 1, GROUP_PLACEMENTS).astype(int)]
    return {place: steps[place] for place in places}


def _rounded(place: PlacementShape) -> PlacementShape:
    """The powers of two that are nearest to it."""
    gpus, nodes = (2 ** round(log2(count)) for count in place)
    return PlacementShape(gpus, min(gpus, nodes))


def _range(steps: Steps) -> float:
    """The factor between its fewest and most GPUs, as a logarithm."""
    counts = [place.gpus for place in steps]
    return log(max(counts) / min(counts))
