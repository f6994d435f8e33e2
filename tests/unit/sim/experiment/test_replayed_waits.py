"""What a log itself says of why its jobs waited, on a few jobs whose waits can be worked out by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors.arrays import Floats
from slurmplug.sim.engine.job import SimJob
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.experiment.replayed_waits import ReplayedWaits, Waiter, replayed_waits
from slurmplug.sim.experiment.waiting_beside_idle import Held, Spans, waiting_beside_idle
from slurmplug.sim.workloads.importers.recorded import RecordedJob, job

EIGHT = parse("1x8")
HOUR = 3600.0
NOTHING = Spans(np.empty(0), np.empty(0), np.empty(0))


def recorded(submit: float, waited: float, seconds: float, gpus: int = 8, **fields: str) -> SimJob:
    return job(RecordedJob("j", submit, seconds, gpus, waited=waited, **fields))  # type: ignore[arg-type]


def spans(*rows: tuple[float, float, float]) -> Spans:
    return Spans(*np.array(rows, dtype=np.float64).T)


def found(jobs: Sequence[SimJob], started: Sequence[float]) -> ReplayedWaits:
    starts: Floats = np.array(started)
    took = np.array([1 / float(each.speed.rate[0]) for each in jobs])
    made = replayed_waits(jobs, starts, starts + took, EIGHT)
    assert made is not None
    return made


def test_a_job_waits_beside_idle_gpus_where_as_many_as_it_requests_are_idle() -> None:
    # The first holds 6 of 8 GPUs from 0 to 100: the second needs 2 and waits beside them, the third needs 3.
    gpus = np.array([6, 2, 3])
    waited = waiting_beside_idle(gpus, 8 * gpus, spans((0, 0, 100), (10, 60, 70), (10, 130, 140)), (8, 64))
    assert waited.tolist() == [0, 50, 30]


def test_a_job_without_gpus_waits_beside_idle_cpus() -> None:
    gpus, cpus = np.array([8, 0, 0]), np.array([60, 4, 5])
    waited = waiting_beside_idle(gpus, cpus, spans((0, 0, 100), (0, 50, 60), (0, 150, 160)), (8, 64))
    assert waited.tolist() == [0, 50, 50]


def test_a_job_that_did_not_start_holds_nothing_and_counts_as_nothing() -> None:
    gpus = np.array([8, 8])
    waited = waiting_beside_idle(gpus, gpus, spans((0, math.nan, math.nan), (0, 40, 50)), (8, 64))
    assert waited.tolist() == [0, 40]
    assert waiting_beside_idle(gpus[:0], gpus[:0], NOTHING, (8, 64)).size == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 30), st.integers(1, 4)),
        min_size=1,
        max_size=12,
    )
)
def test_it_is_what_is_counted_second_by_second(rows: list[tuple[int, int, int, int]]) -> None:
    submit, waits, takes, gpus = np.array(rows).T
    start, end = submit + waits, submit + waits + takes
    seconds = np.arange(0, 130)
    idle = 6 - ((start <= seconds[:, None]) & (seconds[:, None] < end)) @ gpus
    expected = [int((idle[s:e] >= g).sum()) for s, e, g in zip(submit, start, gpus, strict=True)]
    waited = waiting_beside_idle(gpus, gpus, Spans(submit * 1.0, start * 1.0, end * 1.0), (6, 48))
    assert waited.tolist() == expected


def test_the_most_that_is_held_is_held_for_a_hundredth_of_the_time() -> None:
    held = Held.by(np.array([4.0, 4.0, 4.0]), spans((0, 0, 500), (0, 499, 1000), (0, 600, 650)))
    assert held.most() == 8  # from 600 to 650
    held = Held.by(np.array([4.0, 4.0]), spans((0, 0, 501), (0, 500, 1000)))
    assert held.most() == 4  # both for a second
    assert Held.by(np.empty(0), NOTHING).most() == 0


def test_waiting_beside_idle_gpus_is_told_apart_in_what_happened_and_in_the_replay() -> None:
    jobs = [recorded(0, 0, 10 * HOUR), recorded(HOUR, 29 * HOUR, HOUR, user="held")]
    made = found(jobs, [0, 10 * HOUR])
    assert (made.true_mean, made.replayed_mean) == (14.5 * HOUR, 4.5 * HOUR)
    assert (made.true_idle, made.replayed_idle) == (10 * HOUR, 0)
    assert (made.gpus, made.true_most) == (8, 8)
    assert made.waiters == (Waiter("user", "held", 1.0),)


def test_those_whose_jobs_waited_beside_idle_gpus_are_named_with_the_largest_shares_first() -> None:
    waits = {"a": 10.0, "b": 40.0, "c": 0.0, "d": 30.0, "e": 20.0}
    jobs = [recorded(0, seconds, 1, gpus=1, user=user) for user, seconds in waits.items()]
    made = found(jobs, [0.0] * 5)
    assert [(each.name, each.share) for each in made.waiters] == [("b", 0.4), ("d", 0.3), ("e", 0.2)]


@pytest.mark.parametrize(("every", "share"), [(24 * HOUR, 1.0), (26 * HOUR, 1 / 12)])
def test_waiting_that_ends_at_one_time_of_the_day_is_found(every: float, share: float) -> None:
    # Twelve jobs that start a day after each other, at 17:55 and 18:05 by turns; or each two hours later in the day.
    starts = [48 * HOUR + 17.9 * HOUR + number * every + (number % 2) * 600 for number in range(12)]
    jobs = [recorded(start - 24 * HOUR, 24 * HOUR, 60, gpus=1) for start in starts]
    assert found(jobs, starts).same_hour == pytest.approx(share)


def test_where_nobody_waited_beside_idle_gpus_nobody_is_named() -> None:
    made = found([recorded(0, 0, 100), recorded(0, 100, 100, user="other")], [0, 100])
    assert (made.true_idle, made.waiters) == (0, ())
    assert math.isnan(made.same_hour)
