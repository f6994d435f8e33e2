"""MLF-H's schedule: who moves, who starts, and who gives way, in order of priority.

Wang, Liu, Shen: Job Scheduling for Large-Scale Machine Learning Clusters (MLFS), CoNEXT 2020, sections 3.3.2 and 3.3.3.
The paper takes nobody's GPUs away but to relieve a node. With `preempt` running jobs compete by their priority too,
which their hysteresis raises, as far as they can go on from a checkpoint and what is lost is little against what the
other is spared. The jobs of an ML job train together, so they start and give way together.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Literal, NamedTuple

import numpy as np

from policies.mlfs.migration import MigrationSettings, select_migrations
from policies.mlfs.placement import PlacementSettings, Servers
from policies.placement.allocation import held_gpus, movable, queue_order, startable
from policies.placement.space import Placement
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


def preemption_loss(jobs: Jobs, restart: float) -> Floats:
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
        self.free = changeable(snapshot, stopping, settings)
        self.runs, self.starts = jobs.running, startable(jobs) & jobs.managed
        self._trains = self.runs | self.starts
        self.leaving: list[Action] = []
        self.coming: list[Action] = []

    @cached_property
    def families(self) -> "_Families":
        return _Families(self.snapshot.jobs)

    @cached_property
    def giving(self) -> "_Giving":
        return _Giving(self)

    def run(self) -> tuple[Action, ...]:
        if self.settings.migrate:
            self._migrate()
        if self.starts.any():
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
        if calm.all():
            return
        leaving = select_migrations(servers, self.rank, self.free, self.settings.lowest)
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
        order = queue_order(jobs, -np.nan_to_num(self.rank))
        order = order[self.starts[order]]
        while len(order):
            members = self.families.of(int(order[0]))
            order = order[1:] if len(members) == 1 else order[jobs.ml_job[order] != jobs.ml_job[members[0]]]
            if not self._whole(members):
                continue
            rows = members[self.starts[members]].tolist()
            missing = self.missing(rows)
            places = self.taken(rows) if missing <= 0 else None
            if places is None and self.settings.preempt:
                places = self.giving.make_room(rows, missing)
            if places is not None:
                reason = Reason("its turn", _known({"rank": self.highest(rows)}))
                self.coming += [
                    self._action("place", row, place, reason) for row, place in zip(rows, places, strict=True)
                ]
            elif not self.settings.skip:
                break
            elif len(rows) == 1:
                order = order[~_no_easier(jobs, order, rows[0])]

    def _whole(self, members: Ints) -> bool:
        """Whether all jobs of an ML job run or may start: a part of a model cannot train alone."""
        return len(members) == 1 or bool(self._trains[members].all())

    def highest(self, rows: Sequence[int]) -> float:
        """The highest priority of these jobs."""
        return float(max(self.rank[row] for row in rows))

    def missing(self, rows: Sequence[int]) -> int:
        """The GPUs that these jobs ask for beyond all that are free; negative where more are."""
        return sum(int(self.snapshot.jobs.gpus[row]) for row in rows) - self.servers.space.gpus

    def taken(self, rows: Sequence[int]) -> list[Placement] | None:
        """Places for all of these jobs, which they hold then, or None."""
        places: list[Placement] = []
        for row in rows:
            place = self.servers.find(row)
            if place is None:
                for before, there in zip(rows, places, strict=False):
                    self.servers.give(before, there)
                return None
            self.servers.take(row, place)
            places.append(place)
        return places

    def taken_on(self, rows: Sequence[int], freed: Sequence[int]) -> list[Placement] | None:
        """The same, where these jobs found no places before there was more room on these nodes."""
        if len(rows) > 1:
            return self.taken(rows) if self.missing(rows) <= 0 else None
        place = self.servers.find_on(rows[0], freed)
        if place is None:
            return None
        self.servers.take(rows[0], place)
        return [place]

    def _action(self, kind: Literal["place", "migrate"], row: int, place: Placement, reason: Reason) -> Action:
        jobs, names = self.snapshot.jobs, self.snapshot.nodes.names
        where = tuple(names[node] for node in place.nodes)
        return Action(kind, jobs.keys[row], reason, int(jobs.gpus[row]), where, place.shares)


class _Unit(NamedTuple):
    """The jobs of an ML job that give way together: their rows, the highest of their ranks, and the GPUs they hold.

    helps: whether anybody may be placed on one of their nodes then; where not, nothing is sought there.
    """

    rows: tuple[int, ...]
    rank: float
    held: int
    helps: bool


class _Giving:
    """The running jobs that may give way, those of the lowest priority first, the jobs of an ML job side by side."""

    def __init__(self, scheduling: _Scheduling) -> None:
        jobs = scheduling.snapshot.jobs
        runs = np.flatnonzero(scheduling.runs)
        stays = np.bincount(jobs.ml_job[runs], ~scheduling.free[runs], minlength=len(jobs)) > 0
        rows = runs[~stays[jobs.ml_job[runs]]]
        highest = np.full(len(jobs), -np.inf)
        np.maximum.at(highest, jobs.ml_job[rows], scheduling.rank[rows])
        rank = highest[jobs.ml_job[rows]]
        self._of = scheduling
        self._rows, self._highest = rows[np.lexsort((jobs.ml_job[rows], rank))], highest
        self._held = held_gpus(scheduling.snapshot)
        on = scheduling.snapshot.runs_on
        self._helps = np.zeros(len(jobs), dtype=bool)
        self._helps[on[~scheduling.servers.overfull_without(scheduling.free)[on[:, 1]], 0]] = True
        self._lost = preemption_loss(jobs, scheduling.settings.restart)
        self._budget = min(MOST, max(FEW, int(scheduling.settings.churn * len(runs))))
        self._tries = TRIES
        self._given: set[int] = set()
        self._lowest: dict[int, dict[int, _Unit]] = {}

    def make_room(self, rows: Sequence[int], missing: int) -> list[Placement] | None:
        """Places for these jobs, which found none, on what others give up; they hold them then.

        None where that is not worth it. missing: GPUs that they ask for beyond all that are free.
        """
        of, jobs = self._of, self._of.snapshot.jobs
        asked = sum(int(jobs.gpus[row]) for row in rows)
        if not asked or not self._tries or not self._budget:
            return None
        units = list(self._candidates(int(jobs.placement[rows[0]])).values())
        lower = units[: min(bisect_left(units, of.highest(rows), key=_rank), self._budget)]
        if not lower:
            return None
        before, given = 0, list[_Unit]()
        places: list[Placement] | None = None
        for count in _counts(lower, missing):
            more = [unit for unit in lower[before:count] if unit.helps]
            before, given = count, given + more
            places = of.taken_on(rows, self._give(more)) if more else None
            if places is not None:
                break
        victims = self._still_needed(given)
        if places is not None and self._worth(victims, asked):
            self._preempt(rows, victims)
            return places
        for row, place in zip(rows, places or (), strict=False):
            of.servers.give(row, place)
        for row in victims:
            of.servers.take(row, of.servers.space.place(row))
        self._tries -= 1
        return None

    def _candidates(self, placement: int) -> dict[int, _Unit]:
        """The lowest that hold GPUs where jobs of this placement class may run, as many as may go, by ML job."""
        if placement not in self._lowest:
            snapshot = self._of.snapshot
            on = snapshot.runs_on[snapshot.fits[placement][snapshot.runs_on[:, 1]]]
            there = np.zeros(len(snapshot.jobs), dtype=bool)
            there[on[:, 0]] = True
            there[list(self._given)] = False
            rows = self._rows[there[self._rows]]
            self._lowest[placement] = self._units(rows)
        return self._lowest[placement]

    def _give(self, units: Sequence[_Unit]) -> list[int]:
        """These give up what they hold; the nodes that it is on, in order."""
        servers = self._of.servers
        nodes: set[int] = set()
        for unit in units:
            for row in unit.rows:
                place = servers.space.place(row)
                servers.give(row, place)
                nodes.update(place.nodes)
        return sorted(nodes)

    def _units(self, rows: Ints) -> dict[int, _Unit]:
        """The first of these rows, of which those of an ML job lie side by side, by ML job."""
        families = self._of.snapshot.jobs.ml_job[rows]
        begins = np.flatnonzero(np.diff(families, prepend=-1))
        if not len(begins):
            return {}
        ends = np.append(begins, len(rows))[1 : MOST + 1]
        begins, rows = begins[:MOST], rows[: ends[-1]]
        held, helps = np.add.reduceat(self._held[rows], begins), np.logical_or.reduceat(self._helps[rows], begins)
        columns = (begins, ends, families[begins], self._highest[families[begins]], held, helps)
        each = zip(*(column.tolist() for column in columns), strict=True)
        return {
            family: _Unit(tuple(rows[begin:end].tolist()), rank, gpus, some)
            for begin, end, family, rank, gpus, some in each
        }

    def _still_needed(self, given: Sequence[_Unit]) -> list[int]:
        """Those of the rows whose place is taken now; the others, the highest first, take theirs again."""
        servers = self._of.servers
        needed: list[int] = []
        for unit in reversed(given):
            taken: list[int] = []
            for row in unit.rows:
                if servers.space.fits_there(row, servers.space.place(row)):
                    servers.take(row, servers.space.place(row))
                    taken.append(row)
            if len(taken) < len(unit.rows):
                for row in taken:
                    servers.give(row, servers.space.place(row))
                needed += unit.rows
        return needed

    def _worth(self, victims: Sequence[int], asked: int) -> bool:
        """Whether what the victims lose is little against what is spared: to wait for them to end, in GPU seconds."""
        cost = sum(float(self._held[row] * self._lost[row]) for row in victims)
        spared = asked * max((float(self._of.remaining[row]) for row in victims), default=0.0)
        return cost <= self._of.settings.loss * spared

    def _preempt(self, rows: Sequence[int], victims: Sequence[int]) -> None:
        of, jobs = self._of, self._of.snapshot.jobs
        first = max(rows, key=lambda row: of.rank[row])
        facts = {"by": float(jobs.keys[first].job_id), "by_rank": float(of.rank[first])}
        for row in victims:
            lost = {"rank": float(of.rank[row]), "lost": float(self._lost[row])}
            of.leaving.append(Action("preempt", jobs.keys[row], Reason("gives way", _known(facts | lost))))
        families = {int(jobs.ml_job[row]) for row in victims}
        self._budget -= len(families)
        self._given.update(victims)
        for units in self._lowest.values():
            for family in families & units.keys():
                left = [row for row in units[family].rows if row not in self._given]
                if left:
                    units.update(self._units(np.array(left)))
                else:
                    del units[family]


def _rank(unit: _Unit) -> float:
    return unit.rank


def _counts(lower: Sequence[_Unit], missing: int) -> Iterator[int]:
    """How many of the lowest give way: as many as hold the missing GPUs, then by half more jobs, at last all."""
    held = jobs = enough = 0
    for count, unit in enumerate(lower, start=1):
        held, jobs = held + unit.held, jobs + len(unit.rows)
        if held >= missing and (jobs >= enough or count == len(lower)):
            yield count
            enough = max(jobs + 1, jobs * 3 // 2)


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
    no_less = [column[rows] >= column[row] for column in jobs.demand.T]  # much faster than over rows of three
    return np.asarray(np.logical_and.reduce([jobs.placement[rows] == jobs.placement[row], *no_less]))


def _known(facts: Mapping[str, float]) -> dict[str, float | str]:
    return {name: fact for name, fact in facts.items() if isfinite(fact)}
