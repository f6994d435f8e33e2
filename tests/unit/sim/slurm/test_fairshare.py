"""The simulated Slurm with the shares of accounts: who goes first, beside schedules worked out by hand."""

from typing import Any

import pytest

from slurmplug.cluster.limits import Assoc
from slurmplug.sim.slurm.multifactor import Billing, Weights
from slurmplug.sim.slurm.settings import LauncherSettings
from slurmplug.sim.slurm.share_tree import Shares
from tests.sim_jobs import ScriptedPolicy, job, run, speed

LABS = Shares(
    {
        Assoc("root", "", ""): 1.0,
        Assoc("large", "", ""): 90.0,
        Assoc("large", "ada", ""): 1.0,
        Assoc("small", "", ""): 10.0,
        Assoc("small", "bob", ""): 1.0,
    },
    {"root": "", "large": "root", "small": "root"},
)
"""Nine tenths are Ada's."""


def starts(*jobs: Any, cluster: str = "1x4", **slurm: Any) -> list[float]:
    """When each starts, by default on one node of four GPUs."""
    weights = Weights(age=0.0, fairshare=1000.0, job_size=0.0, partition=0.0)
    settings = LauncherSettings(weights, pace=0.1, backfill=False, fairshare_interval=60.0, **slurm)
    made = run(*jobs, launcher="slurm", policy=ScriptedPolicy(lambda _: ()), slurm=settings, cluster=cluster)
    return [each.started for each in made.finished]


def one(account: str, user: str, submit: float, gpus: int = 4, **fields: Any) -> Any:
    """A job of 300 s that slurmplug does not manage."""
    return job(
        submit=submit,
        account=account,
        user=user,
        gpus=gpus,
        iterations=300,
        speed=speed((max(gpus, 1), 1, 1.0)),
        managed=False,
        **fields,
    )


@pytest.mark.parametrize(("shares", "expected"), [(LABS, [1200.0, 900.0]), (None, [900.0, 1200.0])])
def test_who_used_more_of_a_larger_share_goes_first_only_where_shares_are_known(
    shares: Shares | None, expected: list[float]
) -> None:
    """Ada has used twice as much as Bob when one more job of each waits."""
    before = [one("large", "ada", 0.0), one("small", "bob", 1.0), one("large", "ada", 2.0)]
    found = starts(*before, one("small", "bob", 700.0), one("large", "ada", 701.0), shares=shares)
    assert found[:3] == pytest.approx([0.0, 300.0, 600.0], abs=5.0)
    assert found[3:] == pytest.approx(expected, abs=5.0)


@pytest.mark.parametrize(
    ("billing", "expected"),
    [
        (Billing(), [600.0, 300.0]),
        (Billing(partitions={"gpu": (0.0, 1.0, 0.0)}), [300.0, 600.0]),
        (Billing(qos={"free": 0.0}), [300.0, 600.0]),
    ],
)
def test_usage_is_counted_as_partitions_bill_it(billing: Billing, expected: list[float]) -> None:
    """Ada has used three GPUs and CPUs with a QOS of her own, Bob a GPU and nine CPUs, when one more of each waits."""
    even = Shares({**LABS.of, Assoc("large", "", ""): 10.0}, LABS.above)
    before = [one("large", "ada", 0.0, 3, cpus=3, qos="free"), one("small", "bob", 1.0, 1, cpus=9)]
    after = [one("large", "ada", 100.0), one("small", "bob", 101.0)]
    found = starts(*before, *after, shares=even, billing=billing)
    assert found[:2] == pytest.approx([0.0, 1.0], abs=5.0)
    assert found[2:] == pytest.approx(expected, abs=50.0)


def test_usage_counts_what_a_job_holds_on_all_its_nodes() -> None:
    """Ada's ten CPUs are on two nodes, Bob's nine on one, when one more of each waits for all GPUs."""
    even = Shares({**LABS.of, Assoc("large", "", ""): 10.0}, LABS.above)
    before = [
        one("large", "ada", 0.0, 0, cpus=10, nodes=2),
        one("small", "bob", 1.0, 0, cpus=9),
        one("small", "eve", 1.0),
    ]
    after = [one("large", "ada", 50.0, 8, nodes=2), one("small", "bob", 51.0, 8, nodes=2)]
    by_cpus = Billing(partitions={"gpu": (0.0, 1.0, 0.0)})
    found = starts(*before, *after, cluster="2x4", shares=even, billing=by_cpus)
    assert found[:3] == pytest.approx([0.0, 1.0, 1.0], abs=1.0)
    assert found[3:] == pytest.approx([601.0, 301.0], abs=5.0)


@pytest.mark.parametrize(("priorities", "expected"), [({}, [300.0, 600.0]), ({"bob": 5.0}, [600.0, 300.0])])
def test_priorities_of_accounts_and_users_decide_between_equals(
    priorities: dict[str, float], expected: list[float]
) -> None:
    weights = Weights(age=0.0, fairshare=0.0, job_size=0.0, partition=0.0, assoc=100.0)
    settings = LauncherSettings(
        weights, pace=0.1, assoc_priority={Assoc("small", user, ""): one for user, one in priorities.items()}
    )
    jobs = [one("large", "ada", 0.0), one("large", "ada", 1.0), one("small", "bob", 2.0)]
    made = run(*jobs, launcher="slurm", policy=ScriptedPolicy(lambda _: ()), slurm=settings, cluster="1x4").finished
    assert [each.started for each in made[1:]] == pytest.approx(expected, abs=5.0)
