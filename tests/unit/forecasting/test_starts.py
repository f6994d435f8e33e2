"""Queues simulated forward on many samples start jobs when the simulator's Slurm starts them, on the same run times."""

import numpy as np
import pytest

from predictors.arrays import Floats, Ints
from slurmplug.forecasting.starts import Running, Waiting, start_times
from slurmplug.sim.slurm.launcher import HeldResources, LauncherSettings, NodeResources, Pending, jobs_to_start
from slurmplug.sim.slurm.multifactor import Usage, Weights

SIZE = 64
SAMPLES = 5
IN_ORDER = LauncherSettings(weights=Weights(age=0, fairshare=0, job_size=0, partition=0))


def by_launcher(units: Ints, seconds: Floats, limit: Floats, running: list[tuple[float, float, int]]) -> Floats:
    """(j,) when the launcher starts each job on a node of `SIZE`, by a scheduling pass at every end. running: when each
    job ends, when by its limit, and what it holds."""
    starts, now = np.full(len(units), np.inf), 0.0
    total = np.full((1, 2), float(SIZE))
    while True:
        left = np.flatnonzero(np.isinf(starts))
        zeros, texts, users = np.zeros(len(left)), np.array([""] * len(left)), np.zeros(len(left), dtype=np.int64)
        pending = Pending(
            units[left],
            np.ones((len(left), 2)),
            limit[left],
            zeros,
            zeros,
            users,
            texts,
            texts,
            texts,
            zeros,
            zeros,
        )
        resources = HeldResources(
            np.zeros(len(running), dtype=np.int64),
            np.array([[amount, amount] for _, _, amount in running], dtype=float).reshape(-1, 2),
            np.array([end for _, end, _ in running]),
        )
        room = NodeResources(total - sum(amount for _, _, amount in running), total, np.array([""]), np.ones(1, bool))
        for start in jobs_to_start(pending, resources, room, Usage(), now=now, settings=IN_ORDER):
            job = int(left[start.row])
            starts[job] = now
            running.append((now + seconds[job], now + limit[job], int(units[job])))
        if not running:
            return starts
        now = min(end for end, _, _ in running)
        running = [each for each in running if each[0] > now]


@pytest.mark.parametrize("seed", range(25))
def test_every_job_starts_when_the_launcher_starts_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    units = random.choice([1, 2, 4, 8, 16, 32, SIZE, SIZE + 1], 40)  # the last fits never
    limit = random.choice([60.0, 300.0, 301.0, 900.0], len(units))
    held, until = random.integers(1, 9, 8), np.round(random.uniform(10, 900, 8))
    seconds = np.round(limit * random.uniform(0.05, 1.0, (SAMPLES, len(units))))
    ends = np.round(until * random.uniform(0.05, 1.0, (SAMPLES, len(held))))
    ours = start_times(
        Running(held[None, :, None].astype(np.float64), ends[None], until[None]),
        Waiting(units[None, :, None], seconds[None], limit[None]),
        np.array([[SIZE - held.sum()]]),
    )
    theirs = [
        by_launcher(units, seconds[i], limit, list(zip(ends[i], until, held.tolist(), strict=True)))
        for i in range(SAMPLES)
    ]
    np.testing.assert_array_equal(ours[0], theirs)


def test_queues_of_other_lengths_do_not_change_each_other() -> None:
    running = Running(
        np.array([[[4], [0]], [[2], [2]]]), np.array([[[10.0, 0]], [[5.0, 7.0]]]), np.array([[20.0, 0], [9.0, 9.0]])
    )
    waiting = Waiting(np.array([[[4], [1]], [[3], [0]]]), np.full((2, 1, 2), 5.0), np.full((2, 2), 8.0))
    starts = start_times(running, waiting, np.zeros((2, 1)))
    np.testing.assert_array_equal(starts, [[[10.0, 15.0]], [[7.0, np.nan]]])


def test_the_simulation_of_a_queue_ends_with_the_job_that_was_asked_for() -> None:
    running = Running(np.array([[[4]]]), np.array([[[10.0]]]), np.array([[20.0]]))
    waiting = Waiting(np.array([[[4], [4]]]), np.full((1, 1, 2), 5.0), np.full((1, 2), 8.0))
    starts = start_times(running, waiting, np.zeros((1, 1)), target=np.array([0]))
    np.testing.assert_array_equal(starts, [[[10.0, np.nan]]])


def test_an_empty_cluster_starts_what_fits_at_once() -> None:
    waiting = Waiting(np.array([[[4], [4]]]), np.full((1, 3, 2), 5.0), np.full((1, 2), 8.0))
    np.testing.assert_array_equal(start_times(_nothing(3), waiting, np.array([[8.0]])), np.zeros((1, 3, 2)))


def test_a_job_that_an_empty_cluster_cannot_hold_never_starts_and_keeps_nobody_waiting() -> None:
    waiting = Waiting(np.array([[[9], [4]]]), np.full((1, 3, 2), 5.0), np.full((1, 2), 8.0))
    starts = start_times(_nothing(3), waiting, np.array([[8.0]]))
    np.testing.assert_array_equal(starts, np.tile([np.inf, 0.0], (1, 3, 1)))


def test_a_job_waits_for_each_of_its_resources() -> None:
    """The first job holds all CPUs, the second all GPUs."""
    running = Running(np.array([[[0, 8], [4, 0]]]), np.array([[[10.0, 20.0]]]), np.array([[10.0, 20.0]]))
    waiting = Waiting(np.array([[[4, 8], [0, 4], [1, 1]]]), np.full((1, 1, 3), 5.0), np.array([[5.0, 5.0, 100.0]]))
    starts = start_times(running, waiting, np.zeros((1, 2)))
    np.testing.assert_array_equal(starts, [[[20.0, 10.0, 25.0]]])


def test_a_resource_that_is_overcommitted_keeps_only_those_waiting_that_need_it() -> None:
    running = Running(np.array([[[2, 0]]]), np.array([[[10.0]]]), np.array([[10.0]]))
    waiting = Waiting(np.array([[[1, 1], [0, 1]]]), np.full((1, 1, 2), 5.0), np.array([[5.0, 5.0]]))
    starts = start_times(running, waiting, np.array([[-1.0, 2.0]]))
    np.testing.assert_array_equal(starts, [[[10.0, 0.0]]])


def _nothing(samples: int) -> Running:
    return Running(np.zeros((1, 0, 1)), np.zeros((1, samples, 0)), np.zeros((1, 0)))
