"""MLF-H's schedule: the jobs that migrate, start and are preempted, in order of priority.

Wang, Liu, Shen: Job Scheduling for Large-Scale Machine Learning Clusters (MLFS), CoNEXT 2020, sections 3.3.2 and 3.3.3.
The paper preempts jobs only to relieve a node. With `preempt` running jobs compete by priority too, which hysteresis
raises, if they can resume from a checkpoint and what they lose is little against the waiting time that the other job
saves. The jobs of an ML job train together: they are a gang, which starts and is preempted as a whole.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Literal

import numpy as np

from policies.mlfs.gangs import Gang, GangRequests, GangRows, gang_counts, rank_of, requests_no_less
from policies.mlfs.migration import MigrationSettings, select_migrations
from policies.mlfs.placement import PlacementSettings, Servers
from policies.mlfs.preferences import ByNode
from policies.mlfs.sizes import Resizing, Sizes
from policies.placement.allocation import held_gpus, movable, queue_order, startable
from policies.placement.space import Placement
from policies.plan import Action, OtherJob, Reason
from policies.snapshot import Jobs, Snapshot
from predictors.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class ScheduleSettings(PlacementSettings, MigrationSettings):
    """Which jobs may start and which may be preempted.

    preempt: whether running jobs are preempted for those of higher priority. skip: whether jobs may start before one of
    higher priority that does not fit. loss: the cost of preemptions for a job, in GPU seconds, as a share of the
    waiting time saved. restart: seconds that a start from a checkpoint takes. settle: seconds that a job runs before it
    may be moved. churn: the share of the running jobs that one decision may preempt, if that is more than a few.
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
"""A decision may preempt at least FEW gangs, however few run, and at most MOST, however many."""
MAX_FAILED_SEARCHES = 20
"""After this many failed searches for victims a decision makes no further one."""


def schedule(
    snapshot: Snapshot,
    score: Floats,
    remaining: Floats,
    stopping: Ints,
    settings: ScheduleSettings,
    *,
    sizes: Sizes | None = None,
    nodes: ByNode | None = None,
) -> tuple[Action, ...]:
    """The migrations, preemptions, placements and resizes of one decision.

    score (n,): the priorities, those of running jobs with their hysteresis. remaining (n,): predicted seconds of run
    time left. stopping: rows of jobs that are being stopped, which are not touched. sizes: None for those requested.
    nodes: which of them each job prefers, as for `Servers`.
    """
    sizes = sizes or Sizes.none(len(snapshot.jobs))
    return _Decision(
        snapshot, score, remaining, stopping, settings, sizes=sizes, servers=Servers(snapshot, settings, nodes)
    ).run()


def preemption_loss(jobs: Jobs, restart: float) -> Floats:
    """(n,) seconds of training that a job loses when it is preempted: a restart, and work since the last checkpoint.

    A job gets a request to save first. One that saved in this run by itself is assumed to save at its own times only,
    and loses its work since then.
    """
    by_itself = jobs.checkpoint > jobs.resumed
    since = (jobs.iteration - jobs.checkpoint) * jobs.iteration_time
    return restart + np.where(by_itself & (since > 0), since, 0.0)


def changeable(snapshot: Snapshot, stopping: Ints, settings: ScheduleSettings) -> Bools:
    """(n,) the running jobs that may be migrated, preempted or resized now."""
    allowed = movable(snapshot.jobs) & (snapshot.elapsed >= settings.settle)
    allowed[stopping] = False
    return allowed


def gives_way(jobs: Jobs, score: Floats, remaining: Floats, allowed: Bools, settings: ScheduleSettings) -> Bools:
    """(n,) which of the jobs `allowed` (n,) may be preempted in one decision, where the wait for their end is worth the
    loss: those of the lowest priority."""
    worth_it = allowed & (preemption_loss(jobs, settings.restart) <= settings.loss * remaining)
    rows = np.flatnonzero(worth_it)
    rows = rows[np.argsort(score[rows], kind="stable")][: _budget(jobs, settings)]
    return np.isin(np.arange(len(jobs)), rows)


def _budget(jobs: Jobs, settings: ScheduleSettings) -> int:
    """How many gangs one decision may preempt."""
    return min(MOST, max(FEW, int(settings.churn * jobs.running.sum())))


class _Decision:
    """One decision in progress."""

    def __init__(
        self,
        snapshot: Snapshot,
        score: Floats,
        remaining: Floats,
        stopping: Ints,
        settings: ScheduleSettings,
        *,
        sizes: Sizes,
        servers: Servers,
    ) -> None:
        jobs = snapshot.jobs
        self.snapshot, self.score, self.remaining, self.settings = snapshot, score, remaining, settings
        self.servers, self.sizes = servers, sizes
        self.changeable = changeable(snapshot, stopping, settings) & ~sizes.sized
        self.resizing = Resizing(snapshot, self.servers, sizes)
        resized = self.resizing.resized
        self.runs = jobs.running & ~resized
        self.starts = (resized | (startable(jobs) & jobs.managed)) & ~(sizes.sized & (sizes.gpus == 0))
        self._trains_or_follows = self.runs | self.starts | _follows_its_own(jobs)
        self.preemptions: list[Action] = []
        self.placements: list[Action] = []

    @cached_property
    def gang_rows(self) -> "GangRows":
        return GangRows(self.snapshot.jobs)

    @cached_property
    def preemption(self) -> "_Preemption":
        return _Preemption(self)

    def run(self) -> tuple[Action, ...]:
        if self.settings.migrate:
            self._migrate()
        self.resizing.begin()
        if self.starts.any():
            self._start(self.starts & ~self.sizes.last)
        self.preemptions += self.resizing.end()
        if self.sizes.last.any():
            self._start(self.starts & self.sizes.last)
        return (*self.preemptions, *self.placements)

    def _migrate(self) -> None:
        """Move jobs off overloaded nodes to others that they do not overload, in order of priority.

        A job that fits on no other node stays, unless the GPUs or, by its own report, the network of its node are
        overloaded then: it is preempted. On contended CPUs it trains more slowly, in the queue not at all; a job that
        overloads any network by itself would be preempted for ever.
        """
        servers = self.servers
        not_overloaded = ~servers.overloaded()
        if not_overloaded.all() and not (servers.reports_overload() & self.changeable).any():
            return
        migrations = select_migrations(servers, self.score, self.changeable, self.settings.lowest)
        for row, node in sorted(migrations, key=lambda pair: -self.score[pair[0]]):
            self.changeable[row] = False
            here, name = servers.space.place(row), self.snapshot.nodes.names[node]
            reason = Reason("overloaded node", {"node": name, "rank": float(self.score[row])})
            elsewhere = not_overloaded & (np.arange(len(not_overloaded)) != node)
            place = servers.find(row, elsewhere & servers.has_idle_cpus(row))
            if place is not None:
                servers.take(row, place)
                self.placements.append(self._action("migrate", row, place, reason))
                continue
            servers.take(row, here)
            too_much = servers.network_share(row, here) > self.settings.overload
            may_preempt = self.settings.preempt and self.gang_rows.size(row) == 1 and not too_much
            if may_preempt and (servers.gpus_overcommitted[node] or servers.network_overloaded(row, node)):
                servers.give(row, here)
                self.preemptions.append(Action("preempt", self.snapshot.jobs.keys[row], reason))

    def _start(self, some: Bools) -> None:
        """Start these jobs (n,) in order of priority, on free resources or on those of preempted jobs."""
        jobs = self.snapshot.jobs
        order = queue_order(jobs, -np.nan_to_num(self.score))
        order = order[some[order]]
        requests = GangRequests.of(jobs, self.score, self.starts)
        while len(order):
            members = self.gang_rows.of(int(order[0]))
            order = order[1:] if len(members) == 1 else order[jobs.ml_job[order] != jobs.ml_job[members[0]]]
            if not self._complete(members):
                continue
            rows = members[self.starts[members]].tolist()
            if self.sizes.sized[rows[0]]:
                self.placements += self.resizing.place(rows[0])
                continue
            missing_gpus = self.servers.missing_gpus(rows)
            places = self.servers.allocate_all(rows) if missing_gpus <= 0 else None
            if places is None and self.settings.preempt:
                places = self.preemption.make_room(rows, missing_gpus)
            if places is not None:
                reason = Reason("its turn", _known({"rank": self.highest(rows)}))
                self.placements += [
                    self._action("place", row, place, reason) for row, place in zip(rows, places, strict=True)
                ]
            elif not self.settings.skip:
                break
            else:
                may_start = requests.gpus[order] <= self.servers.space.gpus
                if self.settings.preempt:
                    may_start |= self.preemption.may_help(requests.score[order], requests.placement[order])
                if len(rows) == 1:
                    may_start &= ~requests_no_less(jobs, order, rows[0])
                order = order[self.sizes.sized[order] | may_start]

    def _complete(self, members: Ints) -> bool:
        """Whether all jobs of a gang run, may start or follow another of them: a part of a model cannot train alone."""
        return len(members) == 1 or bool(self._trains_or_follows[members].all())

    def highest(self, rows: Sequence[int]) -> float:
        """The highest rank of these jobs."""
        return float(max(self.score[row] for row in rows))

    def _action(self, kind: Literal["place", "migrate"], row: int, place: Placement, reason: Reason) -> Action:
        jobs, names = self.snapshot.jobs, self.snapshot.nodes.names
        where = tuple(names[node] for node in place.nodes)
        return Action(kind, jobs.keys[row], reason, int(jobs.gpus[row]), where, place.shares)


def _follows_its_own(jobs: Jobs) -> Bools:
    """(n,) whether the job waits for another one of its ML job to end, as the next step of a pipeline."""
    child, parent = jobs.parents[jobs.parents[:, 1] >= 0].T
    follows = np.zeros(len(jobs), dtype=np.bool_)
    follows[child[jobs.ml_job[parent] == jobs.ml_job[child]]] = True
    return np.asarray(follows & jobs.pending & (jobs.reason == "Dependency"))


class _Preemption:
    """Preemption of running gangs, those of the lowest priority first."""

    def __init__(self, decision: _Decision) -> None:
        jobs = decision.snapshot.jobs
        runs = np.flatnonzero(decision.runs)
        stays = np.bincount(jobs.ml_job[runs], ~decision.changeable[runs], minlength=len(jobs)) > 0
        rows = runs[~stays[jobs.ml_job[runs]]]
        highest = np.full(len(jobs), -np.inf)
        np.maximum.at(highest, jobs.ml_job[rows], decision.score[rows])
        score = highest[jobs.ml_job[rows]]
        self._decision = decision
        self._rows, self._highest = rows[np.lexsort((jobs.ml_job[rows], score))], highest
        self._held = held_gpus(decision.snapshot)
        on = decision.snapshot.runs_on
        self._helps = np.zeros(len(jobs), dtype=bool)
        self._helps[on[~decision.servers.closed()[on[:, 1]], 0]] = True
        self._lost = preemption_loss(jobs, decision.settings.restart)
        self._budget = _budget(jobs, decision.settings)
        self._tries = MAX_FAILED_SEARCHES
        self._preempted: set[int] = set()
        self._by_placement: dict[int, dict[int, Gang]] = {}
        self._lowest = np.full(len(decision.snapshot.fits), -np.inf)
        """(classes,) the least score of the gangs left, where it is known; it only gets higher"""

    def may_help(self, score: Floats, placement: Ints) -> Bools:
        """(k,) whether gangs of these scores and placement classes may still get room by preemptions."""
        if not self._tries or not self._budget:
            return np.zeros(len(score), dtype=bool)
        return np.asarray(score > self._lowest[placement])

    def make_room(self, rows: Sequence[int], missing_gpus: int) -> list[Placement] | None:
        """Preempt gangs of lower priority and allocate placements to these jobs, which had none before.

        None if that costs more than it is worth. missing_gpus: GPUs that they request beyond all that are free.
        """
        decision, jobs = self._decision, self._decision.snapshot.jobs
        requested = sum(int(jobs.gpus[row]) for row in rows)
        if not requested or not self._tries or not self._budget:
            return None
        placement = int(jobs.placement[rows[0]])
        gangs = list(self._candidates(placement).values())
        lower = gangs[: min(bisect_left(gangs, decision.highest(rows), key=rank_of), self._budget)]
        if not lower:
            self._lowest[placement] = gangs[0].score if gangs else np.inf
            return None
        before, freed = 0, list[Gang]()
        places: list[Placement] | None = None
        for count in gang_counts(lower, missing_gpus):
            more = [gang for gang in lower[before:count] if gang.helps]
            before, freed = count, freed + more
            places = decision.servers.allocate_all_on(rows, self._free(more)) if more else None
            if places is not None:
                break
        victims = self._needed(freed)
        if places is not None and self._worthwhile(victims, requested):
            self._preempt(rows, victims)
            return places
        for row, place in zip(rows, places or (), strict=False):
            decision.servers.give(row, place)
        for row in victims:
            decision.servers.take(row, decision.servers.space.place(row))
        self._tries -= 1
        return None

    def _candidates(self, placement: int) -> dict[int, Gang]:
        """The gangs of lowest priority with GPUs where jobs of this placement class may run, by ML job."""
        if placement not in self._by_placement:
            snapshot = self._decision.snapshot
            on = snapshot.runs_on[snapshot.fits[placement][snapshot.runs_on[:, 1]]]
            there = np.zeros(len(snapshot.jobs), dtype=bool)
            there[on[:, 0]] = True
            there[list(self._preempted)] = False
            rows = self._rows[there[self._rows]]
            self._by_placement[placement] = self._gangs(rows)
        return self._by_placement[placement]

    def _free(self, gangs: Sequence[Gang]) -> list[int]:
        """Free what these gangs hold; returns its nodes in order of rows."""
        servers = self._decision.servers
        nodes: set[int] = set()
        for gang in gangs:
            for row in gang.rows:
                place = servers.space.place(row)
                servers.give(row, place)
                nodes.update(place.nodes)
        return sorted(nodes)

    def _gangs(self, rows: Ints) -> dict[int, Gang]:
        """The first gangs of these rows, in which those of an ML job are adjacent, by ML job."""
        ml_jobs = self._decision.snapshot.jobs.ml_job[rows]
        begins = np.flatnonzero(np.diff(ml_jobs, prepend=-1))
        if not len(begins):
            return {}
        ends = np.append(begins, len(rows))[1 : MOST + 1]
        begins, rows = begins[:MOST], rows[: ends[-1]]
        held, helps = np.add.reduceat(self._held[rows], begins), np.logical_or.reduceat(self._helps[rows], begins)
        columns = (begins, ends, ml_jobs[begins], self._highest[ml_jobs[begins]], held, helps)
        each = zip(*(column.tolist() for column in columns), strict=True)
        return {
            ml_job: Gang(tuple(rows[begin:end].tolist()), score, gpus, some)
            for begin, end, ml_job, score, gpus, some in each
        }

    def _needed(self, freed: Sequence[Gang]) -> list[int]:
        """The rows whose placement is needed now; the other gangs, the highest first, get theirs back."""
        servers = self._decision.servers
        needed: list[int] = []
        for gang in reversed(freed):
            taken: list[int] = []
            for row in gang.rows:
                if servers.space.fits_there(row, servers.space.place(row)):
                    servers.take(row, servers.space.place(row))
                    taken.append(row)
            if len(taken) < len(gang.rows):
                for row in taken:
                    servers.give(row, servers.space.place(row))
                needed += gang.rows
        return needed

    def _worthwhile(self, victims: Sequence[int], requested: int) -> bool:
        """Whether the victims lose little against the wait for their end that is saved, in GPU seconds."""
        cost = sum(float(self._held[row] * self._lost[row]) for row in victims)
        saved = requested * max((float(self._decision.remaining[row]) for row in victims), default=0.0)
        return cost <= self._decision.settings.loss * saved

    def _preempt(self, rows: Sequence[int], victims: Sequence[int]) -> None:
        decision, jobs = self._decision, self._decision.snapshot.jobs
        first = max(rows, key=lambda row: decision.score[row])
        by = OtherJob(jobs.keys[first], float(decision.score[first]))
        for row in victims:
            own = _known({"rank": float(decision.score[row]), "lost": float(self._lost[row])})
            decision.preemptions.append(Action("preempt", jobs.keys[row], Reason("gives way", {"by": by, **own})))
        ml_jobs = {int(jobs.ml_job[row]) for row in victims}
        self._budget -= len(ml_jobs)
        self._preempted.update(victims)
        for gangs in self._by_placement.values():
            for ml_job in ml_jobs & gangs.keys():
                left = [row for row in gangs[ml_job].rows if row not in self._preempted]
                if left:
                    gangs.update(self._gangs(np.array(left)))
                else:
                    del gangs[ml_job]


def _known(facts: Mapping[str, float]) -> dict[str, float | str]:
    return {name: fact for name, fact in facts.items() if isfinite(fact)}
