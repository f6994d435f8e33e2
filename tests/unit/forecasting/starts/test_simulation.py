"""Queues simulated forward on many samples start jobs when the simulator's Slurm starts them, on the same run times."""

import numpy as np
import pytest

from predictors.arrays import Floats, Ints
from slurmplug.cluster.limit_columns import limit_columns
from slurmplug.cluster.limits import JOBS, Assoc, AssocLimits, Limits, QosLimits, ResourceUse
from slurmplug.forecasting.starts.limit_sums import limit_sums
from slurmplug.forecasting.starts.queues import Running, Sums, Waiting
from slurmplug.forecasting.starts.simulation import start_times
from slurmplug.sim.slurm.launcher import jobs_to_start, priorities
from slurmplug.sim.slurm.limited import Limited
from slurmplug.sim.slurm.multifactor import Weights
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending
from slurmplug.sim.slurm.settings import LauncherSettings

SIZE = 64
SAMPLES = 5
KINDS = (JOBS, "gres/gpu")
USES = tuple(ResourceUse(f"user{n}", f"lab{n % 2}", "few" if n < 4 else "normal", "gpu", {}) for n in range(5))
"""of each user's jobs, whatever these use"""
IN_ORDER = LauncherSettings(weights=Weights(age=0, fairshare=0, job_size=0, partition=0))


def by_launcher(
    units: Ints,
    seconds: Floats,
    limit: Floats,
    running: list[tuple[float, float, int, int]],
    *,
    users: Ints | None = None,
    limits: Limits | None = None,
) -> Floats:
    """(j,) when the launcher starts each job on a node of `SIZE`, by a scheduling pass at every end. running: when each
    job ends, when by its limit, what it holds, and its user. users: (j,) where these have limits."""
    of = np.zeros(len(units), dtype=np.int64) if users is None else users
    columns = limit_columns(limits or Limits(), USES, KINDS)
    starts, now = np.full(len(units), np.inf), 0.0
    total = np.full((1, 2), float(SIZE))
    while True:
        left = np.flatnonzero(np.isinf(starts))
        zeros, texts = np.zeros(len(left)), np.array([""] * len(left))
        pending = Pending(
            units[left],
            np.zeros(len(left), dtype=np.int64),
            np.ones((len(left), 2)),
            limit[left],
            zeros,
            zeros,
            texts,
            texts,
            texts,
            zeros,
            zeros,
        )
        resources = HeldResources(
            np.zeros(len(running), dtype=np.int64),
            np.array([[amount, amount] for _, _, amount, _ in running], dtype=float).reshape(-1, 2),
            np.array([end for _, end, _, _ in running]),
        )
        room = NodeResources(total - sum(each[2] for each in running), total, np.array([""]), np.ones(1, bool))
        limited = None
        if columns is not None:
            holding = np.array([[1.0, amount] for _, _, amount, _ in running]).reshape(-1, 2)
            used = columns.used(np.array([each[3] for each in running], dtype=np.int64), holding)
            wanted = np.stack([np.ones(len(left)), units[left]], axis=1)
            limited = Limited(columns, of[left], wanted, used)
        ranked = priorities(pending, room, np.ones(len(pending)), now, IN_ORDER)
        found = jobs_to_start(pending, resources, room, ranked, now=now, settings=IN_ORDER, limited=limited)
        for start in found:
            job = int(left[start.row])
            starts[job] = now
            running.append((now + seconds[job], now + limit[job], int(units[job]), int(of[job])))
        if not running:
            return starts
        now = min(each[0] for each in running)
        running = [each for each in running if each[0] > now]


def sums(units: Ints, users: Ints, held: Ints, of_running: Ints, limits: Limits) -> tuple[Sums, Ints]:
    """The limits of USES on these jobs, and the group of each, those that wait first: one for each user and number of
    units."""
    columns = limit_columns(limits, USES, KINDS)
    assert columns is not None
    whose, amounts = np.concatenate([users, of_running]), np.concatenate([units, held]).astype(np.float64)
    pairs, group = np.unique(np.stack([whose, amounts], axis=1), axis=0, return_inverse=True)
    amounts = np.stack([np.ones(len(pairs)), pairs[:, 1]], axis=1)
    return limit_sums(columns, pairs[:, 0].astype(np.int64), amounts), group.ravel()


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
        by_launcher(units, seconds[i], limit, list(zip(ends[i], until, held.tolist(), [0] * 8, strict=True)))
        for i in range(SAMPLES)
    ]
    np.testing.assert_array_equal(ours[0], theirs)


@pytest.mark.parametrize("seed", range(25))
def test_under_limits_every_job_starts_when_the_launcher_starts_it(seed: int) -> None:
    random = np.random.default_rng(seed)

    def some(most: int) -> dict[str, float]:
        return {kind: float(random.integers(1, most)) for kind in KINDS if random.random() < 0.5}

    qos = QosLimits(group=some(48), user=some(24), account=some(40), job=some(64))
    assocs = {Assoc(f"lab{n}", "", ""): AssocLimits(group=some(48)) for n in range(2)}
    limits = Limits(qos={"few": qos}, assocs=assocs)
    units, users = random.choice([1, 2, 4, 8, 16, 32, SIZE], 40), random.integers(0, len(USES), 40)
    limit = random.choice([60.0, 300.0, 301.0, 900.0], len(units))
    held, until = random.integers(1, 9, 8), np.round(random.uniform(10, 900, 8))
    of_running = random.integers(0, len(USES), 8)
    seconds = np.round(limit * random.uniform(0.05, 1.0, (SAMPLES, len(units))))
    ends = np.round(until * random.uniform(0.05, 1.0, (SAMPLES, len(held))))
    limiting, group = sums(units, users, held, of_running, limits)
    ours = start_times(
        Running(held[None, :, None].astype(np.float64), ends[None], until[None], group[None, len(units) :]),
        Waiting(units[None, :, None], seconds[None], limit[None], group[None, : len(units)]),
        np.array([[SIZE - held.sum()]]),
        sums=limiting,
    )
    theirs = [
        by_launcher(
            units,
            seconds[i],
            limit,
            list(zip(ends[i], until, held.tolist(), of_running.tolist(), strict=True)),
            users=users,
            limits=limits,
        )
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
