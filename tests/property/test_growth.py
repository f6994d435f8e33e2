"""The GPUs of elastic jobs, against a slow computation of each step of the rule in whole numbers and fractions."""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.mlfs.dependencies import Dependencies
from policies.mlfs.growth import GrowthSettings, Movable, sizes
from policies.mlfs.priority import Ranking
from policies.snapshot import Snapshot
from predictors.forecast import Fan, Forecast
from tests.builders import NOW, forecasts, jobs, nodes, snapshot

MOST = 12
RESTART = 60.0


@dataclass(frozen=True)
class Job:
    """speed: on 1, 2, ... MOST GPUs. remaining: seconds, on the GPUs that it holds or, where that is 0, asks for."""

    held: int
    least: int
    most: int
    asked: int
    speed: tuple[int, ...]
    remaining: int

    def hull(self, gpus: int) -> Fraction:
        """The speed on the concave hull through (0, 0) of what the job can have, by every chord above that number."""
        at = {0: Fraction(0)} | {k: Fraction(self.speed[k - 1]) for k in range(self.least, self.most + 1)}
        gpus = min(gpus, self.most)
        below, above = [k for k in at if k <= gpus], [k for k in at if k >= gpus]
        chords = [at[a] + (at[b] - at[a]) * Fraction(gpus - a, b - a) if b > a else at[a] for a in below for b in above]
        return max(*chords, *(at[k] for k in below))  # it never falls

    def relative(self, gpus: int) -> Fraction:
        return self.hull(gpus) / self.hull(1)


def literal(queue: list[Job], units: int, keep: float) -> list[int]:
    """Steps 2 to 5, one GPU at a time."""
    size = [job.remaining * job.relative(job.held or job.asked) for job in queue]
    largest = sorted(range(len(queue)), key=lambda row: (-size[row], row))
    c = 1 / (1 - 0.7)
    weight: dict[int, float] = {row: (i**c - (i - 1) ** c) ** 0.3 for i, row in enumerate(largest, start=1)}

    def worth(row: int, k: int) -> float:
        job = queue[row]
        gain = job.relative(job.least) / job.least if k <= job.least else job.relative(k) - job.relative(k - 1)
        return weight[row] * float(gain) * (keep if k <= job.held else 1)

    def share(most: list[int]) -> list[int]:
        got, left, out = [0] * len(queue), units, set()
        while left:
            wants = [row for row, job in enumerate(queue) if row not in out and got[row] < most[row]]
            wants = [row for row in wants if worth(row, got[row] + 1) > 0 or got[row] < queue[row].held]
            if not wants:
                break
            row = max(wants, key=lambda each: (worth(each, got[each] + 1), -each))
            step = 1 if got[row] else queue[row].least
            if step > left:
                out.add(row)
                continue
            got[row] += step
            left -= step
        return got

    got = share([job.most for job in queue])
    stays = [
        0 < job.held < gpus and job.remaining * (1 - float(job.relative(job.held) / job.relative(gpus))) < 2 * RESTART
        for job, gpus in zip(queue, got, strict=True)
    ]
    return share([job.held if stay else job.most for job, stay in zip(queue, stays, strict=True)])


@st.composite
def queues(draw: st.DrawFn) -> list[Job]:
    """Jobs that hold between their least and most GPUs, or none."""
    queue = []
    for _ in range(draw(st.integers(1, 6))):
        least = draw(st.integers(1, 4))
        most = draw(st.integers(least + 1, MOST))
        gains = draw(st.lists(st.integers(0, 40), min_size=MOST - 1, max_size=MOST - 1))
        falls = draw(st.integers(0, MOST))  # from so many GPUs on some
        speed = np.cumsum([draw(st.integers(20, 100)), *gains])
        speed[falls:] = np.maximum(speed[falls:] - draw(st.integers(0, 60)), 1)
        held = draw(st.sampled_from([0, least, most, (least + most) // 2]))
        asked = draw(st.integers(least, most))
        queue.append(Job(held, least, most, asked, tuple(speed.tolist()), draw(st.integers(60, 50_000))))
    return queue


def cluster(queue: list[Job], spare: int) -> Snapshot:
    """Nodes of one GPU each: those that the jobs hold, and some that nobody does."""
    held = [job.held for job in queue]
    runs_on = [(row, sum(held[:row]) + gpu, 1) for row, job in enumerate(queue) for gpu in range(job.held)]
    there = max(sum(held) + spare, 1)
    used = np.array([[float(node < sum(held)), 0, 0] for node in range(there)])
    of_jobs = jobs(
        len(queue),
        gpus=[job.held or job.asked for job in queue],
        gpus_min=[job.least for job in queue],
        gpus_max=[job.most for job in queue],
        state=["running" if job.held else "pending" for job in queue],
        started=[NOW - 3600 if job.held else np.nan for job in queue],
        restartable=True,
    )
    on = np.array(runs_on, dtype=np.int64).reshape(-1, 3)
    return snapshot(of_jobs, nodes(there, capacity=[1, 32, 0], used=used), runs_on=on)


def shares(queue: list[Job], look: Snapshot, keep: float) -> list[int]:
    """The GPUs of each job."""
    n, grid = len(queue), np.arange(1.0, MOST + 1)
    speed = np.array([job.speed for job in queue], dtype=np.float64)
    fan = Fan.of(n, np.arange(n), np.repeat(grid[None], n, axis=0), [Forecast.certain(s, "test") for s in speed.T])
    remaining = np.array([float(job.remaining) for job in queue])
    ranking = Ranking(1 / remaining, {}, Dependencies.of(look.jobs.ml_job, look.jobs.parents), remaining)
    runs = look.jobs.running
    known = replace(forecasts(n, remaining=remaining), speed=fan)
    found = sizes(look, ranking, known, Movable(runs, runs), GrowthSettings(keep=keep), restart=RESTART)
    assert found is not None
    assert found.sized.all()
    return list(found.gpus.tolist())


@given(queues(), st.integers(0, 30), st.sampled_from([1.0, 2.0, 3.0]))
def test_gpus_go_one_by_one_to_where_they_are_worth_most(queue: list[Job], spare: int, keep: float) -> None:
    look = cluster(queue, spare)
    assert shares(queue, look, keep) == literal(queue, len(look.nodes.names), keep)


@given(queues(), st.integers(0, 30))
def test_nobody_has_less_than_its_least_or_more_than_its_most_nor_all_together_more_than_there_is(
    queue: list[Job], spare: int
) -> None:
    look = cluster(queue, spare)
    got = shares(queue, look, 2.0)
    assert all(gpus == 0 or job.least <= gpus <= job.most for job, gpus in zip(queue, got, strict=True))
    assert sum(got) <= len(look.nodes.names)


@given(queues(), st.integers(1, 30))
def test_nobody_is_left_without_gpus_while_its_least_is_free(queue: list[Job], spare: int) -> None:
    look = cluster(queue, spare)
    got = shares(queue, look, 2.0)
    free = len(look.nodes.names) - sum(got)
    assert all(gpus > 0 or job.least > free for job, gpus in zip(queue, got, strict=True))


@given(queues(), st.integers(0, 30))
def test_once_shared_out_the_shares_stay_as_they_are(queue: list[Job], spare: int) -> None:
    """With the same sizes: the GPUs that a job has are worth more to it than before, so none of them moves."""
    look = cluster(queue, spare)
    got = shares(queue, look, 2.0)
    size = [job.remaining * job.relative(job.held or job.asked) for job in queue]
    after = [
        replace(job, held=gpus, remaining=max(int(left / job.relative(gpus or job.asked)), 1))
        for job, gpus, left in zip(queue, got, size, strict=True)
    ]
    ranks = [
        sorted(
            range(len(queue)),
            key=lambda row: each[row].remaining * each[row].relative(each[row].held or each[row].asked),
        )
        for each in (queue, after)
    ]
    if ranks[0] == ranks[1]:
        assert shares(after, cluster(after, len(look.nodes.names) - sum(got)), 2.0) == got
