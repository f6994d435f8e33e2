"""Iterations per second by GPUs: how a job scales by its kind, at its own pace or that of its forecast run time."""

import operator
from bisect import bisect_left
from collections.abc import Sequence
from math import exp, log
from typing import NamedTuple

import numpy as np

from policies.snapshot import JobKey, Jobs, Snapshot
from predictors.arrays import Floats
from predictors.forecast import Fan, Forecast
from predictors.influence import pooled
from slurmplug.forecasting.other_types import OtherTypes
from slurmplug.forecasting.paces import Pace, Request, pooled_pace, requests
from slurmplug.forecasting.seen_speeds import MAX_KINDS, SeenSpeeds, Steps, Whose, kind_of, untyped_kind
from slurmplug.forecasting.speed_tables import SpeedTables, Table


class _Scaled(NamedTuple):
    """The speeds of a job: a table times a factor, and flat from so many GPUs on, or the column of these."""

    table: Table
    factor: float
    flat_from: int
    source: str


class SpeedFans:
    """The speeds of the jobs in a snapshot by GPUs, on as few nodes as hold them.

    A job that trains or has trained goes by its own step times on all its placements. Another goes by its forecast run
    time on the GPUs that it asked for, and by how fast jobs of its kind were, each weighted by how well it tells the
    pace: jobs of a kind may be of very different sizes. How it scales from there follows from the ratios within jobs of
    its kind, and before any were seen from what may be expected of any job. Jobs on different types of GPU are of
    different kinds; where the user's jobs of one were not seen, the pace on other types tells (`OtherTypes`).

    Beyond the most GPUs that it asked for, or on which it or its kind was seen, its speed is taken to rise no more:
    GPUs that are given on a guess are missed elsewhere.
    """

    def __init__(self, seen: SeenSpeeds) -> None:
        self._seen = seen
        self._tables = SpeedTables(seen)
        self._paces: dict[Whose, tuple[int, Pace | None]] = {}
        """the pace of a kind's jobs on one GPU, and what had changed of the kind when it was computed"""
        self._most: dict[Whose, int] = {}
        self._others = OtherTypes(seen, self._pace_of_kind, self._tables.relative_speed)
        self._there: dict[tuple[Whose, int], Pace | None] = {}
        """in this cycle, the most GPUs on which a kind was seen, and the pace of its jobs on so many"""
        self._latest: tuple[list[int], list[_Scaled], list[Floats], Fan] = [], [], [], Fan.unknown(0)
        """the latest fan, and what it was made of"""

    def speeds(self, snapshot: Snapshot, as_requested: Forecast) -> Fan:
        """A fan over GPUs up to the most that any job may have. as_requested (n,): run times in seconds on what jobs
        asked for.

        Jobs of the same speeds share a row of it. The same object as in the cycle before where nothing changed.
        """
        jobs, n = snapshot.jobs, len(snapshot.jobs)
        self._seen.note(snapshot)
        rows = np.flatnonzero((jobs.gpus_max > 0) & (jobs.gpus > 0)).tolist()
        if not rows:
            return Fan.unknown(n)
        counts = grid(int(jobs.gpus_max.max()))
        self._tables.begin(counts, max(int(snapshot.nodes.capacity[:, 0].max(initial=0.0)), 1))
        self._most, self._there = {}, {}
        self._others.begin()
        request = requests(jobs, as_requested)
        kinds, keys, counted = self._kinds(jobs), jobs.keys, counts.tolist()
        users = jobs.user.tolist()
        shared: dict[_Scaled, int] = {}
        index = [-1] * n
        for row in rows:
            key, whose = keys[row], kinds[row]
            asked = request(row)
            most = max(self._most_gpus(whose), asked.gpus)
            steps = self._seen.of_job(whose, key)
            scaled = (
                self._by_steps(whose, key, steps, most)
                if steps
                else self._by_request(whose, asked, most, self._by_others(whose, users[row], key, asked.gpus))
            )
            if scaled is not None:
                scaled = scaled._replace(flat_from=bisect_left(counted, scaled.flat_from))
                index[row] = shared.setdefault(scaled, len(shared))
        return self._fan(counts, index, list(shared))

    def _by_steps(self, whose: Whose, key: JobKey, steps: Steps, most: int) -> _Scaled:
        """The speeds of a job that was seen on some placements; flat from the most GPUs on."""
        most = max(most, *(place.gpus for place in steps))
        pace = 1.0 / next(reversed(steps.values()))
        return _Scaled(self._tables.of_job(whose, key, steps), pace, most, "measured speed")

    def _by_request(self, whose: Whose, asked: Request, most: int, others: Sequence[Pace]) -> _Scaled | None:
        """The speeds of another, by what is expected where it asked for GPUs, also by `others`; None where nothing
        is."""
        pace = asked.pace
        for other in others:
            pace = other.with_other(pace)
        if pace is None:
            return None
        table = self._tables.by_placement(whose, self._tables.tight(asked.gpus), pace.spread)
        return _Scaled(table, exp(-pace.log_step), most, "run time and scaling" if asked.pace else "kind and scaling")

    def _fan(self, counts: Floats, index: list[int], scaled: list[_Scaled]) -> Fan:
        """A fan of these scaled tables; index (n,): which of them each job has, -1 for none."""
        tables = [self._tables[each.table] for each in scaled]
        before_index, before_scaled, before_tables, fan = self._latest
        if index == before_index and scaled == before_scaled and all(map(operator.is_, tables, before_tables)):
            return fan
        if scaled:
            flat: dict[tuple[Table, int], int] = {}
            place = [flat.setdefault((each.table, each.flat_from), len(flat)) for each in scaled]
            columns = np.minimum(np.arange(len(counts)), np.array([last for _, last in flat])[:, None])
            made = np.stack([self._tables[table][at] for (table, _), at in zip(flat, columns, strict=True)])[place]
            made *= np.array([each.factor for each in scaled])[:, None, None]
            x = np.tile(counts, (len(scaled), 1))
            fan = Fan(np.array(index), x, made, np.array([each.source for each in scaled]))
        else:
            fan = Fan.unknown(len(index))
        self._latest = index, scaled, tables, fan
        return fan

    def _kinds(self, jobs: Jobs) -> list[Whose]:
        """(n,) the kind of each job, and by whose jobs of it the job goes."""
        users = jobs.user.tolist()
        kinds = map(kind_of, jobs.kind.tolist(), users, jobs.name.tolist(), jobs.gpu_type.tolist())
        return list(map(self._seen.whose, kinds, users))

    def _most_gpus(self, whose: Whose) -> int:
        if whose not in self._most:
            self._most[whose] = self._seen.most_gpus(whose)
        return self._most[whose]

    def _by_others(self, whose: Whose, user: str, job: JobKey, gpus: int) -> list[Pace]:
        """What is known of the pace of a job on so many GPUs of its type, on which it was not seen: from itself on
        other types, else from its kind on that type, and on others where the user's jobs were not seen on that."""
        kind, gpu_type = untyped_kind(whose.kind)
        of_types = None
        if self._seen.on_other_types(kind, gpu_type):
            own = self._others.of_job(kind, gpu_type, user, job)
            if own is not None:
                return [self._at(whose, gpus, own)]
            of_types = None if whose.user else self._others.of_kind(kind, gpu_type, user)
        of_kind = self._of_kind_at(whose, gpus)
        return [*([of_kind] if of_kind else []), *([self._at(whose, gpus, of_types)] if of_types else [])]

    def _at(self, whose: Whose, gpus: int, pace: Pace) -> Pace:
        """The pace on so many GPUs, by that on one."""
        return pace._replace(log_step=pace.log_step - log(self._tables.relative_speed(whose, gpus)))

    def _of_kind_at(self, whose: Whose, gpus: int) -> Pace | None:
        """The pace of a job of the kind on so many GPUs, by that of others; None where none was seen that counts."""
        if (whose, gpus) not in self._there:
            of_kind = self._pace_of_kind(whose)
            self._there[whose, gpus] = of_kind and self._at(whose, gpus, of_kind)
        return self._there[whose, gpus]

    def _pace_of_kind(self, whose: Whose) -> Pace | None:
        """The pace of the kind's jobs on one GPU; None where none was seen whose pace counts."""
        changes, _ = self._seen.events(whose.kind)
        before = self._paces.get(whose)
        if before is None or before[0] != changes:
            if len(self._paces) > MAX_KINDS:
                self._paces.clear()
            by_user = {
                user: [log(step * self._tables.relative_speed(whose, place.gpus)) for place, step in jobs]
                for user, jobs in self._seen.latest(whose).items()
            }
            paces = pooled(whose.user, by_user)
            before = self._paces[whose] = changes, pooled_pace(paces) if paces else None
        return before[1]


def grid(most: int) -> Floats:
    """Counts of GPUs up to `most`, about a third apart: 1, 2, 3, 4, 6, 8, 12, ..."""
    powers = 2 ** np.arange(most.bit_length() + 1)
    counts = np.unique(np.concatenate([[1, most], powers, 3 * powers]))
    return counts[counts <= most].astype(np.float64)
