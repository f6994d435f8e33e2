"""A learnt policy that fails, is late or does not know the state: the fallback decides in that same cycle."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.mlfs.mlfs import MLFH
from policies.plan import Memory, Plan
from policies.policy import LearntPolicy, Policy
from policies.snapshot import Snapshot
from predictors.forecast import Forecasts
from slurmplug.config import policy_registry
from slurmplug.config.schema import Config
from slurmplug.cycle.record import CycleRecord
from slurmplug.cycle.scheduler import Scheduler
from slurmplug.ledger.ledger import Ledger
from tests.fake_cluster import FakeCluster
from tests.schedulers import begun

ACT = Config.from_table({"mode": {"default": "act"}})


def by_job_id(snapshot: Snapshot) -> Plan:
    return Plan(-np.array([key.job_id for key in snapshot.jobs.keys], dtype=float), memory={"learnt": np.ones(1)})


class Learnt(LearntPolicy):
    name = "learnt"
    settings = None

    def __init__(self, decide: Callable[[Snapshot], Plan] = by_job_id, distance: float = 0.0) -> None:
        self._decide, self._distance = decide, distance

    def distance(self, snapshot: Snapshot, forecasts: Forecasts) -> float:
        return self._distance

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        return self._decide(snapshot)


class Last(Policy):
    """The last submitted first, and a count of its own decisions."""

    name = "last"
    settings = None

    def decide(self, snapshot: Snapshot, forecasts: Forecasts, memory: Memory) -> Plan:
        count = memory.get("count", np.zeros(1)) + 1
        return Plan(np.array([key.job_id for key in snapshot.jobs.keys], dtype=float), memory={"count": count})


def poisoned(snapshot: Snapshot) -> Plan:
    return Plan(np.full(len(snapshot.jobs) + 1, np.nan))


def ranks_nothing(snapshot: Snapshot) -> Plan:
    return Plan(np.full(len(snapshot.jobs), np.nan))


def fails(snapshot: Snapshot) -> Plan:
    raise FloatingPointError("overflow")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger(tmp_path / "ledger.db")) as opened:
        yield opened


def site(ledger: Ledger, policy: Policy, fallback: Policy | None) -> tuple[FakeCluster, Scheduler]:
    cluster = FakeCluster()
    made = begun(cluster, policy, ledger, ACT)
    made.use(ACT, policy, fallback)
    for _ in range(2):
        cluster.submit()
    return cluster, made


def cycle(cluster: FakeCluster, made: Scheduler) -> CycleRecord:
    cluster.time += 60.0
    record = made.run()
    assert record is not None
    return record


def order(record: CycleRecord) -> list[int]:
    keys = record.snapshot.jobs.keys
    return [keys[row].job_id for row in np.argsort(-record.plan.score)]


def test_a_learnt_policy_that_knows_the_state_is_followed(ledger: Ledger) -> None:
    record = cycle(*site(ledger, Learnt(distance=1.0), Last()))
    assert (record.policy, record.error) == ("learnt", "")
    assert order(record) == sorted(order(record))


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Learnt(fails), "policy learnt failed: FloatingPointError: overflow; last decided"),
        (Learnt(poisoned), "score is one number per job"),
        (Learnt(ranks_nothing), "it ranks none of the 2 jobs that wait; last decided"),
        (Learnt(distance=1.01), "unlike those it was trained on (distance 1.01, at most 1); last decided"),
        (Learnt(distance=np.nan), "unlike those it was trained on (distance nan"),
        (Learnt(distance=np.inf), "unlike those it was trained on (distance inf"),
    ],
)
def test_the_fallback_decides_in_the_same_cycle_and_the_ledger_says_why(
    ledger: Ledger, policy: Policy, why: str
) -> None:
    record = cycle(*site(ledger, policy, Last()))
    assert record.policy == "last"
    assert why in record.error
    assert order(record) == sorted(order(record), reverse=True)
    assert record.commands
    [row] = ledger.query("SELECT policy, error FROM cycles")
    assert row["policy"] == "last"
    assert why in row["error"]


def test_a_late_decision_is_not_used(ledger: Ledger) -> None:
    clock = [0.0]

    def late(snapshot: Snapshot) -> Plan:
        clock[0] += ACT.interval + 1.0
        return by_job_id(snapshot)

    cluster, made = site(ledger, Learnt(late), Last())
    made.clock = lambda: clock[0]
    record = cycle(cluster, made)
    assert record.policy == "last"
    assert "to decide, and the interval of cycles is" in record.error
    assert order(record) == sorted(order(record), reverse=True)


def test_both_keep_their_own_memory_and_the_learnt_policy_decides_again(ledger: Ledger) -> None:
    cluster, made = site(ledger, Learnt(), Last())
    cycle(cluster, made)
    for count in (1, 2):
        made.use(ACT, Learnt(distance=2.0), made.fallback)
        assert cycle(cluster, made).plan.memory["count"] == [count]
    made.use(ACT, Learnt(), made.fallback)
    record = cycle(cluster, made)
    assert (record.policy, record.error) == ("learnt", "")
    assert list(record.memory) == ["learnt"]


def test_where_the_fallback_fails_too_slurm_decides_and_both_errors_are_kept(ledger: Ledger) -> None:
    record = cycle(*site(ledger, Learnt(fails), Learnt(poisoned)))
    assert record.commands == ()
    assert "overflow" in record.error
    assert "one number per job" in record.error


def test_the_fallback_of_a_learnt_policy_is_the_configured_one_or_mlf_h_and_others_have_none() -> None:
    made: Any = policy_registry.fallback(ACT, Learnt(), Learnt())
    assert isinstance(made, MLFH)
    configured = Last()
    assert policy_registry.fallback(ACT, Learnt(), configured) is configured
    assert policy_registry.fallback(ACT, configured, configured) is None
