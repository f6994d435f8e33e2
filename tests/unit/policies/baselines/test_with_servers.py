"""Optimus and DRF where jobs have parameter servers."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from policies.baselines.drf import DRF, DRFSettings
from policies.baselines.optimus import Optimus
from policies.marginal_gain.server_speeds import seconds
from policies.plan import NOTHING_REMEMBERED, Plan
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from tests.builders import NOW, jobs, nodes, servers, snapshot

WIDE = [0.02, 0.03, 0.95, 0.0, 0.0]
"""of a job that gains by servers"""
DEEP = [0.95, 0.03, 0.0, 0.0, 0.02]
"""of one that gains by workers"""


def queue(n: int, *, count: int = 4, **columns: Any) -> Snapshot:
    """Jobs of up to four workers of one CPU and four servers of two, half done, on nodes of four GPUs and 16 CPUs."""
    given = {
        "gpus": 2, "gpus_min": 1, "gpus_max": 4, "demand": [[2, 6.0, 0.0]], "submitted": NOW - n + np.arange(n),
        "iteration": 50.0, "max_iterations": 100.0, "user": [f"u{row}" for row in range(n)],
    } | columns.pop("jobs", {})  # fmt: skip
    return snapshot(jobs(n, **given), nodes(count, capacity=[4.0, 16.0, 1000.0]), servers=servers(n, **columns))


def given(plan: Plan) -> dict[int, tuple[int, int]]:
    """The workers and servers of each job, by id."""
    return {each.job.job_id: (each.gpus or 0, sum(each.servers or each.shares)) for each in plan.actions}


def decided(policy: Any, look: Snapshot) -> dict[int, tuple[int, int]]:
    return given(policy.decide(look, Forecasts.unknown(len(look.jobs)), NOTHING_REMEMBERED))


def test_optimus_gives_workers_to_whom_they_shorten_and_servers_to_whom_these_do() -> None:
    shares = decided(Optimus(), queue(2, times=[WIDE, DEEP]))
    assert shares[1][1] == 4
    assert shares[1][0] <= shares[1][1]
    assert shares[2] == (4, 1)


def test_optimus_takes_the_step_of_the_greatest_gain_for_its_dominant_share_each_time() -> None:
    times, left, count = np.array([WIDE, DEEP, [0.5, 0.1, 0.3, 0.02, 0.03]]), np.array([50.0, 20.0, 90.0]), 2
    look = queue(3, count=count, times=times, jobs={"iteration": 100.0 - left - 1})  # one is in progress
    gpus, cpus = 4 * count, 16 * count
    now = dict.fromkeys(range(3), (1, 1))

    def used() -> tuple[int, int]:
        return sum(w for w, _ in now.values()), sum(w + 2 * u for w, u in now.values())

    while True:
        options = []
        for row, (w, u) in now.items():
            for more, servers_more in ((1, 0), (0, 1)):
                if w + more > 4 or u + servers_more > 4:
                    continue
                if used()[0] + more > gpus or used()[1] + more + 2 * servers_more > cpus:
                    continue
                saved = left[row] * (seconds(times[row], w, u) - seconds(times[row], w + more, u + servers_more))
                share = max(1 / gpus, 1 / cpus) if more else 2 / cpus
                options.append((float(saved) / share, row, (w + more, u + servers_more)))
        best = max(options, default=(0.0, 0, (0, 0)))
        if best[0] <= 0:
            break
        now[best[1]] = best[2]
    assert decided(Optimus(), look) == {row + 1: shares for row, shares in now.items()}


def test_drf_gives_as_many_servers_as_workers_and_equal_dominant_shares() -> None:
    look = queue(4, count=2, cpus=3.0, jobs={"demand": [[2, 10.0, 0.0]]})
    shares = decided(DRF(DRFSettings(among="job")), look)
    assert all(workers == count for workers, count in shares.values())
    assert sorted(workers for workers, _ in shares.values()) == [1, 1, 2, 2]  # of five CPUs each, out of 32


@pytest.mark.parametrize("policy", [Optimus(), DRF()])
def test_no_more_than_there_is_is_given(policy: Any) -> None:
    for n, count in product((1, 5, 12), (1, 3)):
        shares = decided(policy, queue(n, count=count))
        assert all(1 <= workers <= 4 and 1 <= servers_ <= 4 for workers, servers_ in shares.values())
        assert sum(workers for workers, _ in shares.values()) <= 4 * count
        assert sum(workers + 2 * servers_ for workers, servers_ in shares.values()) <= 16 * count
