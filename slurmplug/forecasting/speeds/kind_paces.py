"""How fast a job trains on GPUs on which it was not seen, by the jobs of its kind: for its speeds and its run time."""

from collections.abc import Hashable, Mapping
from math import log

import numpy as np

from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Floats
from predictors.influence import pooled
from slurmplug.forecasting.speeds.other_types import OtherTypes
from slurmplug.forecasting.speeds.paces import Pace, pooled_pace
from slurmplug.forecasting.speeds.seen_speeds import MAX_KINDS, SeenSpeeds, Whose, kind_of, untyped_kind
from slurmplug.forecasting.speeds.speed_tables import SpeedTables


class KindPaces:
    """The paces of kinds of jobs, on GPUs of the numbers `counts` (k,) of the cycle, ascending from 1.

    Users' own jobs of a kind first, else those of enough other users. Jobs on different types of GPU are of different
    kinds; where the user's jobs of one were not seen, the pace on other types tells (`OtherTypes`).
    """

    def __init__(self, seen: SeenSpeeds) -> None:
        self.seen = seen
        self.tables = SpeedTables(seen)
        self.counts: Floats = grid(1)
        self._of: Snapshot | None = None
        """the snapshot of the cycle"""
        self._logs: dict[tuple[Whose, str], tuple[int, Mapping[Hashable, float]]] = {}
        """the logarithms of the paces of a user's jobs on one GPU, and what had changed when they were computed"""
        self._paces: dict[tuple[Whose, JobKey | None], tuple[int, Pace | None]] = {}
        """the pace of a kind's jobs on one GPU, of all or without one"""
        self._others = OtherTypes(seen, self._of_kind, self.tables.relative_speed)
        self._kinds: tuple[Jobs | None, Mapping[int, Whose]] = None, {}
        self._unseen: dict[tuple[Whose, str, int], Pace | None] = {}
        """in this cycle, that of a user's job on so many GPUs of which nothing was seen"""
        self._there: dict[tuple[Whose, int], Pace | None] = {}
        """in this cycle, the pace of a kind's jobs on so many GPUs"""

    def begin(self, snapshot: Snapshot) -> None:
        """Begin a cycle, and note what its jobs show; once for each snapshot."""
        if snapshot is self._of:
            return
        self._of = snapshot
        self.seen.note(snapshot)
        self.counts = grid(max(int(snapshot.jobs.gpus_max.max(initial=1)), 1))
        self.tables.begin(self.counts, max(int(snapshot.nodes.capacity[:, 0].max(initial=0.0)), 1))
        self._there, self._unseen, self._kinds = {}, {}, (None, {})
        self._others.begin()

    def kinds(self, jobs: Jobs) -> Mapping[int, Whose]:
        """By row, the kind of each job that is managed or states its iterations, and by whose jobs of it it goes."""
        if self._kinds[0] is not jobs:
            rows = np.flatnonzero(jobs.managed | (jobs.max_iterations > 0))
            kind, user, name, gpu_type = (
                column[rows].tolist() for column in (jobs.kind, jobs.user, jobs.name, jobs.gpu_type)
            )
            found = map(self.seen.whose, map(kind_of, kind, user, name, gpu_type), user)
            self._kinds = jobs, dict(zip(rows.tolist(), found, strict=True))
        return self._kinds[1]

    def expected(self, whose: Whose, user: str, job: JobKey, gpus: int) -> list[Pace]:
        """What is known of the pace of a job on so many GPUs of its type, on which it was not seen: from itself on
        other types, else from its kind on that type, and on others where the user's jobs were not seen on that."""
        kind, gpu_type = untyped_kind(whose.kind)
        of_types = None
        if self.seen.on_other_types(kind, gpu_type):
            own = self._others.of_job(kind, gpu_type, user, job)
            if own is not None:
                return [self._at(whose, gpus, own)]
            of_types = None if whose.user else self._others.of_kind(kind, gpu_type, user)
        of_kind = self._of_kind_at(whose, gpus)
        return [*([of_kind] if of_kind else []), *([self._at(whose, gpus, of_types)] if of_types else [])]

    def expected_without_itself(self, whose: Whose, user: str, job: JobKey, gpus: int) -> Pace | None:
        """The most certain of these from other jobs alone, whatever the job itself has shown, which may not be so."""
        if self.seen.of_job(whose, job):
            pace = self._of_kind(whose, job)
            return pace and self._at(whose, gpus, pace)
        kind, gpu_type = untyped_kind(whose.kind)
        if self.seen.on_other_types(kind, gpu_type) and self._others.of_job(kind, gpu_type, user, job) is not None:
            return self._of_kind_at(whose, gpus)
        asked = whose, user, gpus
        if asked not in self._unseen:
            others = self.expected(whose, user, job, gpus)
            self._unseen[asked] = min(others, key=lambda pace: pace.spread, default=None)
        return self._unseen[asked]

    def step_of_job(self, jobs: Jobs, row: int, gpus: int) -> float | None:
        """Seconds an iteration of a job on so many GPUs, by its own step times on others and the scaling of its kind;
        None where it was not seen."""
        whose = self.kinds(jobs).get(row)
        steps = self.seen.of_job(whose, jobs.keys[row]) if whose is not None else None
        if whose is None or not steps:
            return None
        return next(reversed(steps.values())) / self.tables.relative_speed_of_job(whose, jobs.keys[row], steps, gpus)

    def _at(self, whose: Whose, gpus: int, pace: Pace) -> Pace:
        """The pace on so many GPUs, by that on one."""
        return pace._replace(log_step=pace.log_step - log(self.tables.relative_speed(whose, gpus)))

    def _of_kind_at(self, whose: Whose, gpus: int) -> Pace | None:
        """The pace of a job of the kind on so many GPUs, by that of others; None where none was seen that counts."""
        if (whose, gpus) not in self._there:
            of_kind = self._of_kind(whose)
            self._there[whose, gpus] = of_kind and self._at(whose, gpus, of_kind)
        return self._there[whose, gpus]

    def _of_kind(self, whose: Whose, without: JobKey | None = None) -> Pace | None:
        """The pace of the kind's jobs on one GPU, but for one of them; None where none was seen whose pace counts."""
        changes, _ = self.seen.events(whose.kind)
        before = self._paces.get((whose, without))
        if before is None or before[0] != changes:
            if len(self._paces) > MAX_KINDS:
                self._paces.clear()
            own = [pace for job, pace in self._logs_of(whose, whose.user, changes).items() if job != without]
            users = [whose.user] if own else self.seen.users(whose.kind) - {whose.user}
            paces = pooled(whose.user, {user: own or [*self._logs_of(whose, user, changes).values()] for user in users})
            before = self._paces[whose, without] = changes, pooled_pace(paces) if paces else None
        return before[1]

    def _logs_of(self, whose: Whose, user: str, changes: int) -> Mapping[Hashable, float]:
        """The logarithm of the seconds an iteration takes on one GPU, of each of a user's jobs, if it scales like
        `whose`."""
        before = self._logs.get((whose, user))
        if before is None or before[0] != changes:
            if len(self._logs) > MAX_KINDS:
                self._logs.clear()
            logs = {
                job: log(seen.step * self.tables.relative_speed(whose, seen.placement.gpus))
                for job, seen in self.seen.latest(Whose(whose.kind, user)).items()
            }
            before = self._logs[whose, user] = changes, logs
        return before[1]


def grid(most: int) -> Floats:
    """Counts of GPUs up to `most`, about a third apart: 1, 2, 3, 4, 6, 8, 12, ..."""
    powers = 2 ** np.arange(most.bit_length() + 1)
    counts = np.unique(np.concatenate([[1, most], powers, 3 * powers]))
    return counts[counts <= most].astype(np.float64)
