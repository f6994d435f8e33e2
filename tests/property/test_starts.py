"""Whatever waits and runs, and whatever limits there are: many rows that are simulated at once start each job when one
queue that is worked off job by job does."""

from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from predictors.arrays import Floats
from slurmplug.forecasting.starts import waiting_lists
from slurmplug.forecasting.starts.queues import Running, Sums, Waiting
from slurmplug.forecasting.starts.simulation import start_times
from tests.plain_queue import plain_start_times

SIZE = 32


class _Queues(NamedTuple):
    running: Running
    waiting: Waiting
    free: Floats
    sums: Sums | None


def queues(random: np.random.Generator) -> _Queues:
    """Some, of jobs that are alike or not, with places without a job, and nodes on which too much runs."""
    q, s, k, r = (int(random.integers(low, high)) for low, high in ((1, 4), (1, 4), (0, 10), (1, 4)))
    j, groups, count = (int(random.integers(1, high)) for high in (50, 8, 6))
    demand = random.choice([0, 1, 2, 4, 8, 16, SIZE + 1], (q, j, r)).astype(np.float64)
    demand[:, :, 0] = random.choice([1, 2, 4, 8, 16, SIZE], (q, j))
    demand[random.random((q, j)) < random.choice([0.0, 0.2])] = 0
    few = random.choice([60.0, 300.0, 301.0, 900.1, 1 / 3], (q, j))
    limit = few if random.random() < 0.7 else random.uniform(1.0, 1000.0, (q, j))
    seconds = limit[:, None] * random.uniform(0.05, 1.0, (q, s, j))
    seconds = np.round(seconds) + 1 if random.random() < 0.5 else seconds
    held, until = random.integers(0, 5, (q, k, r)).astype(np.float64), random.uniform(10.0, 900.0, (q, k))
    ends = until[:, None] * random.uniform(0.05, 1.0, (q, s, k))
    free = SIZE - held.sum(axis=1) + random.integers(-3, 3, (q, r))
    if random.random() < 0.3:
        return _Queues(Running(held, ends, until), Waiting(demand, seconds, limit), free, None)
    counts = np.array([random.permutation(count)[:3] for _ in range(groups)])
    counts[random.random(counts.shape) < 0.2] = -1
    most = random.choice([-1.0, 0.0, 3.0, 8.0, 16.0, 20.0, np.inf, np.inf, np.inf], (groups, count))
    return _Queues(
        Running(held, ends, until, random.integers(0, groups, (q, k))),
        Waiting(demand, seconds, limit, random.integers(0, groups, (q, j))),
        free,
        Sums(counts, random.choice([1.0, 2.0, 4.0], counts.shape), most),
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 10, 500]), st.sampled_from([0, 4, waiting_lists.MOST_KINDS]))
def test_jobs_start_as_if_each_queue_were_worked_off_job_by_job(seed: int, max_tested: int, most_kinds: int) -> None:
    running, waiting, free, sums = queues(np.random.default_rng(seed))
    with patch.object(waiting_lists, "MOST_KINDS", most_kinds):
        found = start_times(running, waiting, free, sums=sums, max_tested=max_tested)
    plain = plain_start_times(running, waiting, free, sums=sums, max_tested=max_tested)
    np.testing.assert_array_equal(found, plain)
