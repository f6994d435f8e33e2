"""MLF-H's schedule: who moves, who starts, and who gives way, in order of priority.

Wang, Liu, Shen: Job Scheduling for Large-Scale Machine Learning Clusters (MLFS), CoNEXT 2020, sections 3.3.2 and 3.3.3.
The paper takes nobody's GPUs away but to relieve a node. With `preempt` running jobs compete by their priority too,
which their hysteresis raises, as far as they can go on from a checkpoint and what is lost is little against what the
other is spared. The jobs of an ML job train together, so they start and give way together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from policies.allocation import Place, held_gpus, in_order, movable, startable
from policies.mlfs.migration import MigrationSettings, migrants
from policies.mlfs.placement import PlacementSettings, Servers
from policies.plan import Action, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class ScheduleSettings(PlacementSettings, MigrationSettings):
    """Who may start and who gives way.

    preempt: whether running jobs give way to those of higher priority. skip: whether a job that does not fit lets those
    behind it go first. loss: the share of what a job is spared that the preemptions for it may cost, in GPU seconds.
    restart: seconds that a start from a checkpoint takes. settle: seconds that a job runs at least before it is moved.
    churn: the share of the running jobs that one decision may preempt, where that is more than a few.
    """

    preempt: bool = True
    skip: bool = True
    loss: float = 0.25
    restart: float = 60.0
    settle: float = 0.0
    churn: float = 0.5

    def __post_init__(self) -> None:
        PlacementSettings.__post_init__(self)
        MigrationSettings.__post_init__(self)
        for name in ("loss", "restart", "settle"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} is a number not less than 0, not {getattr(self, name)}")
        if not 0 <= self.churn <= 1:
            raise ValueError(f"churn is between 0 and 1, not {self.churn}")


FEW, MOST = 8, 50
"""So many may be preempted in one decision however few run, and no more however many."""
TRIES = 20
"""So often may room for a job be sought among the running ones in vain, in one decision."""


def schedule(
    snapshot: Snapshot, rank: Floats, remaining: Floats, stopping: Ints, settings: ScheduleSettings
) -> tuple[Action, ...]:
    """The moves, preemptions and placements of one decision.

    rank (n,): the priorities, those of running jobs with their hysteresis. remaining (n,): predicted seconds of run
    time left. stopping: rows of jobs that are asked to stop, which are left alone.
    """
    return _Scheduling(snapshot, rank, remaining, stopping, settings).run()


def losses(jobs: Jobs, restart: float) -> Floats:
    """(n,) seconds of training that a job loses when it is preempted: a restart, and what it will not have saved.

    A job is asked to save first. One that saved in this run by itself is believed to do so in its own time only, and
    loses what it has done since.
    """
    by_itself = jobs.checkpoint > jobs.resumed
    since = (jobs.iteration - jobs.checkpoint) * jobs.iteration_time
    return restart + np.where(by_itself & (since > 0), since, 0.0)


def changeable(snapshot: Snapshot, stopping: Ints, settings: ScheduleSettings) -> Bools:
    """(n,) the running jobs that may be moved, preempted or given other GPUs now."""
    free = movable(snapshot.jobs) & (snapshot.now - snapshot.jobs.started >= settings.settle)
    free[stopping] = False
    return free


class _Scheduling:
    """One decision under way."""

    def __init__(
        self, snapshot: Snapshot, rank: Floats, remaining: Floats, stopping: Ints, settings: ScheduleSettings
    ) -> None:
        jobs = snapshot.jobs
        self.snapshot, self.rank, self.remaining, self.settings = snapshot, rank, remaining, settings
        self.servers = Servers(snapshot, settings)
        self.families = _Families(jobs)
        self.free = changeable(snapshot, stopping, settings)
        self.leaving: list[Action] = []
        self.coming: list[Action] = []

    def run(self) -> tuple[Action, ...]:
        if self.settings.migrate:
            self._migrate()
        self._start()
        return (*self.leaving, *self.coming)

    def _migrate(self) -> None:
        """Who leaves an overloaded node goes to another that it does not overload, in order of priority.

        One that finds none stays, unless GPUs or network of its node are overloaded then: it goes back to the queue.
        On crowded CPUs it trains more slowly, and in the queue not at all; one that overloads any network by itself
        would be sent back for ever.
        """
        servers = self.servers
        calm = ~servers.overloaded()
        leaving = migrants(servers, self.rank, self.free, self.settings.lowest)
        for row, node in sorted(leaving, key=lambda pair: -self.rank[pair[0]]):
            self.free[row] = False
            here, name = servers.space.place(row), self.snapshot.nodes.names[node]
            reason = Reason("overloaded node", {"node": name, "rank": float(self.rank[row])})
            place = servers.find(row, calm & servers.bears(row))
            if place is not None:
                servers.take(row, place)
                self.coming.append(self._action("migrate", row, place, reason))
                continue
            servers.take(row, here)
            too_much = servers.network_of(row, here) > self.settings.overload
            gives_way = self.settings.preempt and self.families.size(row) == 1 and not too_much
            if gives_way and servers.overfull()[node]:
                servers.give(row, here)
                self.leaving.append(Action("preempt", self.snapshot.jobs.keys[row], reason))

    def _start(self) -> None:
        """The pending jobs in order of priority, on what is free or on what others of lower priority give up."""
        jobs = self.snapshot.jobs
        order = in_order(jobs, -np.nan_to_num(self.rank))
        order = order[(startable(jobs) & jobs.managed)[order]]
        giving = _Giving(self) if self.settings.preempt else None
        while len(order):
            members = self.families.of(int(order[0]))
            order = order[1:] if len(members) == 1 else order[~np.isin(order, members)]
            if not self._whole(members):
                continue
            members = members[jobs.state[members] == "pending"]
            places = self.taken(members)
            if places is None and giving is not None:
                places = giving.make_room(members)
            if places is not None:
                reason = Reason("its turn", _known({"rank": float(self.rank[members].max())}))
                self.coming += [
                    self._action("place", row, place, reason)
                    for row, place in zip(members.tolist(), places, strict=True)
                ]
            elif not self.settings.skip:
                break
            elif len(members) == 1:
                order = order[~_no_easier(jobs, order, int(members[0]))]

    def _whole(self, members: Ints) -> bool:
        """Whether all jobs of an ML job run or may start: a part of a model cannot train alone."""
        if len(members) == 1:
            return True
        jobs = self.snapshot.jobs
        return bool(np.all((jobs.state[members] == "running") | (startable(jobs) & jobs.managed)[members]))

    def taken(self, members: Ints) -> list[Place] | None:
        """Places for all of these jobs, which they hold then, or None."""
        if self.snapshot.jobs.gpus[members].sum() > self.servers.space.gpus:
            return None
        places: list[Place] = []
        for row in members.tolist():
            place = self.servers.find(row)
            if place is None:
                for before, there in zip(members.tolist(), places, strict=False):
                    self.servers.give(before, there)
                return None
            self.servers.take(row, place)
            places.append(place)
        return places

    def _action(self, kind: Literal["place", "migrate"], row: int, place: Place, reason: Reason) -> Action:
        jobs, names = self.snapshot.jobs, self.snapshot.nodes.names
        where = tuple(names[node] for node in place.nodes)
        return Action(kind, jobs.keys[row], reason, int(jobs.gpus[row]), where, place.shares)


class _Giving:
    """The running jobs that may give way, those of the lowest priority first, the jobs of an ML job side by side."""

    def __init__(self, scheduling: _Scheduling) -> None:
        jobs = scheduling.snapshot.jobs
        runs = np.flatnonzero(jobs.state == "running")
        stays = np.bincount(jobs.ml_job[runs], ~scheduling.free[runs], minlength=len(jobs)) > 0
        rows = runs[~stays[jobs.ml_job[runs]]]
        highest = np.full(len(jobs), -np.inf)
        np.maximum.at(highest, jobs.ml_job[rows], scheduling.rank[rows])
        rank = highest[jobs.ml_job[rows]]
        order = np.lexsort((jobs.ml_job[rows], rank))
        self._of = scheduling
        self._rows, self._rank = rows[order], rank[order]
        self._held = held_gpus(scheduling.snapshot)
        self._lost = losses(jobs, scheduling.settings.restart)
        self._budget = min(MOST, max(FEW, int(scheduling.settings.churn * len(runs))))
        self._tries = TRIES
        self._lowest: dict[int, tuple[Ints, Floats]] = {}

    def make_room(self, members: Ints) -> list[Place] | None:
        """Places for these jobs on what others give up, which they hold then; None where that is not worth it."""
        of, asked = self._of, int(self._of.snapshot.jobs.gpus[members].sum())
        if not asked or not self._tries or not self._budget:
            return None
        rows, rank = self._candidates(int(of.snapshot.jobs.placement[members[0]]))
        lower = rows[: np.searchsorted(rank, of.rank[members].max())]
        lower = lower[: np.searchsorted(np.cumsum(self._new_families(lower)), self._budget, side="right")]
        if not len(lower):
            return None
        given: list[int] = []
        places = None
        for count in self._counts(lower, asked - of.servers.space.gpus):
            for row in lower[len(given) : count].tolist():
                of.servers.give(row, of.servers.space.place(row))
            given = lower[:count].tolist()
            if (places := of.taken(members)) is not None:
                break
        victims = self._still_needed(given)
        if places is not None and self._worth(victims, asked):
            return self._preempt(members, victims, places)
        for row, place in zip(members.tolist(), places or (), strict=False):
            of.servers.give(row, place)
        for row in victims:
            of.servers.take(row, of.servers.space.place(row))
        self._tries -= 1
        return None

    def _candidates(self, placement: int) -> tuple[Ints, Floats]:
        """The lowest that hold GPUs where jobs of this placement class may run, as many as may go, and their ranks."""
        if placement not in self._lowest:
            snapshot = self._of.snapshot
            on = snapshot.runs_on[snapshot.fits[placement][snapshot.runs_on[:, 1]]]
            there = np.isin(self._rows, on[:, 0])
            rows = self._rows[there]
            end = int(np.searchsorted(np.cumsum(self._new_families(rows)), MOST, side="right"))
            self._lowest[placement] = rows[:end], self._rank[there][:end]
        return self._lowest[placement]

    def _new_families(self, rows: Ints) -> Bools:
        """(k,) whether a row is the first of its ML job in these."""
        family = self._of.snapshot.jobs.ml_job[rows]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = family[1:] != family[:-1]
        return first

    def _counts(self, lower: Ints, missing: int) -> Iterator[int]:
        """How many of the lowest give way: as many as hold the missing GPUs, then by half more; whole ML jobs."""
        ends = np.append(np.flatnonzero(self._new_families(lower))[1:], len(lower))
        count = int(np.searchsorted(np.cumsum(self._held[lower]), missing)) + 1
        while count <= len(lower):
            count = int(ends[np.searchsorted(ends, count)])
            yield count
            count = min(max(count + 1, count * 3 // 2), max(len(lower), count + 1))

    def _still_needed(self, given: Sequence[int]) -> list[int]:
        """Those of the rows whose place is taken now; the others, the highest first, take theirs again."""
        servers, families = self._of.servers, self._of.families
        needed: list[int] = []
        left = list(given)
        while left:
            last = left[-1]
            unit = [row for row in families.of(last).tolist() if row in left] if families.size(last) > 1 else [last]
            left = [row for row in left if row not in unit] if len(unit) > 1 else left[:-1]
            taken: list[int] = []
            for row in unit:
                if servers.space.fits_there(row, servers.space.place(row)):
                    servers.take(row, servers.space.place(row))
                    taken.append(row)
            if len(taken) < len(unit):
                for row in taken:
                    servers.give(row, servers.space.place(row))
                needed += unit
        return needed

    def _worth(self, victims: Sequence[int], asked: int) -> bool:
        """Whether what the victims lose is little against what is spared: to wait for them to end, in GPU seconds."""
        cost = float(self._held[victims] @ self._lost[victims])
        spared = asked * float(self._of.remaining[victims].max(initial=0.0))
        return cost <= self._of.settings.loss * spared

    def _preempt(self, members: Ints, victims: Sequence[int], places: list[Place]) -> list[Place]:
        of, jobs = self._of, self._of.snapshot.jobs
        first = members[of.rank[members].argmax()]
        facts = {"by": float(jobs.keys[first].job_id), "by_rank": float(of.rank[first])}
        for row in victims:
            lost = {"rank": float(of.rank[row]), "lost": float(self._lost[row])}
            of.leaving.append(Action("preempt", jobs.keys[row], Reason("gives way", _known(facts | lost))))
        stays = np.ones(len(jobs), dtype=bool)
        stays[victims] = False
        here = stays[self._rows]
        self._budget -= int(self._new_families(self._rows[~here]).sum())
        self._rows, self._rank = self._rows[here], self._rank[here]
        for placement, (rows, rank) in self._lowest.items():
            self._lowest[placement] = rows[stays[rows]], rank[stays[rows]]
        return places


class _Families:
    """The rows of each ML job."""

    def __init__(self, jobs: Jobs) -> None:
        self._ml_job = jobs.ml_job
        self._sizes = np.bincount(jobs.ml_job, minlength=len(jobs))
        self._order = np.argsort(jobs.ml_job, kind="stable")
        self._first = np.cumsum(self._sizes) - self._sizes

    def size(self, row: int) -> int:
        return int(self._sizes[self._ml_job[row]])

    def of(self, row: int) -> Ints:
        """The rows of the ML job that this row belongs to."""
        family = self._ml_job[row]
        return self._order[self._first[family] : self._first[family] + self._sizes[family]]


def _no_easier(jobs: Jobs, rows: Ints, row: int) -> Bools:
    """(k,) which of these rows ask for no less than this one, on the same nodes."""
    same = jobs.placement[rows] == jobs.placement[row]
    return np.asarray(same & np.all(jobs.demand[rows] >= jobs.demand[row], axis=1))


def _known(facts: Mapping[str, float]) -> dict[str, float | str]:
    return {name: fact for name, fact in facts.items() if np.isfinite(fact)}
