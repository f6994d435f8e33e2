"""The simulated Slurm under limits of QOS and associations, beside schedules worked out by hand."""

from math import nan
from typing import Any

import pytest

from policies.snapshot import JobKey
from slurmplug.cluster.limits import JOBS, Assoc, AssocLimits, Limits, QosLimits
from slurmplug.cluster.port import Command
from slurmplug.sim.engine.engine import Engine
from slurmplug.sim.engine.job import Part
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.engine.workload_table import workload_table
from slurmplug.sim.slurm.cluster import SlurmSimCluster
from slurmplug.sim.slurm.job_limits import BILLING, SECONDS_OF, USED_SECONDS_OF
from slurmplug.sim.slurm.multifactor import Billing, Weights
from slurmplug.sim.slurm.settings import LauncherSettings
from tests.sim_jobs import ScriptedPolicy, job, run, speed

GPU = "gres/gpu"


def starts(limits: Limits, *jobs: Any, cluster: str = "2x4", half_life: float = 0.0, **slurm: Any) -> list[float]:
    """When each starts, by default on two nodes of four GPUs; each lasts 100 s but where it says otherwise."""
    settings = LauncherSettings(Weights(fairshare=0.0, half_life=half_life), pace=0.1, limits=limits, **slurm)
    made = run(*jobs, launcher="slurm", policy=ScriptedPolicy(lambda _: ()), slurm=settings, cluster=cluster)
    return [each.started for each in made.finished]


def one(gpus: int = 1, submit: float = 0.0, seconds: int = 100, **fields: Any) -> Any:
    return job(submit=submit, gpus=gpus, iterations=seconds, speed=speed((max(gpus, 1), 1, 1.0)), **fields)


def qos(**limits: Any) -> Limits:
    return Limits(qos={"normal": QosLimits(**limits)})


def of_account(account: AssocLimits, **others: AssocLimits) -> Limits:
    """By account, each below the root."""
    return Limits(assocs={Assoc(name, "", ""): each for name, each in {"account": account, **others}.items()})


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), [0, 0, 0, 0]),
        (qos(user={GPU: 2.0}), [0, 0, 100, 0]),
        (qos(user={JOBS: 2.0}), [0, 0, 100, 0]),
        (qos(user={"cpu": 5.0}), [0, 0, 100, 0]),
        (qos(user={"mem": 2_500.0}), [0, 0, 100, 0]),
        (qos(group={GPU: 3.0}), [0, 0, 0, 100]),
        (qos(group={JOBS: 1.0}), [0, 100, 200, 300]),
        (qos(account={JOBS: 3.0}), [0, 0, 0, 100]),
        (qos(account={GPU: 2.0}), [0, 0, 100, 100]),
        (qos(group={GPU: 3.0}, user={GPU: 1.0}), [0, 100, 200, 0]),
        (of_account(AssocLimits(group={GPU: 2.0})), [0, 0, 100, 100]),
        (of_account(AssocLimits(group={JOBS: 1.0})), [0, 100, 200, 300]),
        (of_account(AssocLimits(parent="lab"), lab=AssocLimits(group={GPU: 3.0})), [0, 0, 0, 100]),
        (Limits(assocs={Assoc("account", "ada", ""): AssocLimits(jobs=1.0)}), [0, 100, 200, 0]),
    ],
)
def test_three_jobs_of_one_user_and_one_of_another_start_beside_idle_gpus_as_their_limits_allow(
    limits: Limits, expected: list[float]
) -> None:
    """Each has one GPU of eight, two CPUs and 1,000 MiB; a limit that is reached holds back nobody else."""
    jobs = [one(user="ada", cpus=2, memory=1_000.0) for _ in range(3)]
    found = starts(limits, *jobs, one(user="bob", cpus=2, memory=1_000.0))
    assert found == pytest.approx(expected, abs=1.0)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (qos(user={f"{SECONDS_OF}{GPU}": 2_500.0}), [0.0, 0.0, 100.0, 0.0]),
        (qos(group={f"{SECONDS_OF}{GPU}": 2_500.0}), [0.0, 0.0, 100.0, 100.0]),
        (qos(account={f"{SECONDS_OF}cpu": 3_700.0}), [0.0, 100.0, 200.0, 300.0]),
        (of_account(AssocLimits(group={f"{SECONDS_OF}{GPU}": 2_890.0})), [0.0, 0.0, 60.0, 100.0]),
    ],
)
def test_a_limit_on_the_time_left_of_running_jobs_lets_another_start_as_they_come_to_their_end(
    limits: Limits, expected: list[float]
) -> None:
    """Each has one GPU, two CPUs and a time limit of 1,000 s, of which it takes 100 s. In the last case the third one
    starts once the first two have run for 55 s each, at the next pass, and the other user's when these have ended."""
    jobs = [one(user="ada", cpus=2, time_limit=1_000.0) for _ in range(3)]
    found = starts(limits, *jobs, one(user="bob", cpus=2, time_limit=1_000.0))
    assert found == pytest.approx(expected, abs=12.0)


@pytest.mark.parametrize(
    ("limits", "settings", "expected"),
    [
        (qos(group={f"{USED_SECONDS_OF}{GPU}": 150.0}), {}, [0.0, 100.0, nan]),
        (qos(group={f"{USED_SECONDS_OF}{GPU}": 150.0}), {"safe_limits": True}, [nan, nan, nan]),
        (qos(group={f"{USED_SECONDS_OF}{GPU}": 1_150.0}), {"safe_limits": True}, [0.0, 100.0, nan]),
        (of_account(AssocLimits(group={f"{USED_SECONDS_OF}cpu": 399.0})), {}, [0.0, 100.0, nan]),
        (of_account(AssocLimits(group={f"{USED_SECONDS_OF}cpu": 401.0})), {}, [0.0, 100.0, 200.0]),
        (
            of_account(AssocLimits(group={f"{USED_SECONDS_OF}{BILLING}": 150.0})),
            {"billing": Billing(other=(0.0, 1.0, 0.0), qos={"normal": 0.5})},
            [0.0, 100.0, nan],
        ),
        (qos(group={f"{USED_SECONDS_OF}mem": 1.0}), {}, [0.0, 100.0, 200.0]),
    ],
)
def test_who_has_used_as_much_as_the_limit_starts_no_more(
    limits: Limits, settings: dict[str, Any], expected: list[float]
) -> None:
    """Jobs of one GPU, two CPUs and 100 s on one GPU; with the third, 200 GPU seconds and 400 CPU seconds are used."""
    jobs = [one(cpus=2, submit=float(n), time_limit=1_000.0) for n in range(3)]
    found = starts(limits, *jobs, cluster="1x1", **settings)
    assert found == pytest.approx(expected, abs=1.0, nan_ok=True)


@pytest.mark.parametrize(("no_decay", "expected"), [(frozenset(), 4_108.0), (frozenset({"normal"}), nan)])
def test_what_was_used_halves_with_time_but_that_of_a_qos_without_decay(
    no_decay: frozenset[str], expected: float
) -> None:
    """Of 1,000 seconds, 910 count at their end, and 500 after another 3,108."""
    limits = qos(group={f"{USED_SECONDS_OF}{GPU}": 500.0})
    jobs = [one(seconds=1_000), one(submit=1_000.0), one(submit=1_001.0, qos="other", seconds=5_000)]
    found = starts(limits, *jobs, half_life=3_600.0, no_decay=no_decay)
    assert found[1] == pytest.approx(expected, abs=65.0, nan_ok=True)


def test_a_job_above_a_limit_of_its_resources_and_time_limit_together_never_starts() -> None:
    limits = qos(job={f"{SECONDS_OF}{GPU}": 1_000.0})
    found = starts(limits, one(2, time_limit=600.0), one(1, submit=1.0, time_limit=600.0))
    assert found[0] != found[0]
    assert found[1] == pytest.approx(1.0, abs=1.0)


def test_a_limit_of_a_qos_hides_the_same_one_of_the_account() -> None:
    limits = Limits(
        qos={"normal": QosLimits(group={GPU: 4.0})}, assocs={Assoc("account", "", ""): AssocLimits(group={GPU: 1.0})}
    )
    assert starts(limits, one(), one(), one()) == [0.0] * 3


def test_what_a_job_of_another_qos_uses_counts_in_the_account() -> None:
    """Its own QOS has a limit that hides the account's; the other job is held by the account's."""
    limits = Limits(
        qos={"normal": QosLimits(), "high": QosLimits(group={GPU: 8.0})},
        assocs={Assoc("account", "", ""): AssocLimits(group={GPU: 2.0})},
    )
    assert starts(limits, one(2, qos="high"), one(1, submit=1.0)) == pytest.approx([0.0, 100.0], abs=1.0)


@pytest.mark.parametrize("bf_interval", [0.0, 30.0])
def test_a_job_above_a_limit_is_passed_over_and_reserves_nothing(bf_interval: float) -> None:
    """Ada's second job is first in the queue and larger than what is free. Where it has a reservation, Eve's long job
    starts behind it."""
    jobs = (
        one(4, user="ada", time_limit=100.0),
        one(2, submit=1.0, user="bob", seconds=300, time_limit=300.0),
        one(7, submit=2.0, user="ada", time_limit=100.0),
        one(2, submit=3.0, user="eve", seconds=900, time_limit=1_000.0),
    )
    limited, free = (starts(limits, *jobs, bf_interval=bf_interval) for limits in (qos(user={GPU: 8.0}), Limits()))
    assert limited[3] == pytest.approx(3.0, abs=30.0)
    assert free[2:] == pytest.approx([301.0, 401.0], abs=30.0)
    assert limited[2] == pytest.approx(903.0, abs=30.0)


def test_a_job_above_a_limit_of_a_job_never_starts_and_holds_up_nobody() -> None:
    found = starts(qos(job={GPU: 2.0}), one(3), one(2, submit=1.0))
    assert found[0] != found[0]
    assert found[1] == pytest.approx(1.0, abs=1.0)


def test_a_limit_of_what_a_job_does_not_use_does_not_hold_it_back() -> None:
    limits = qos(user={GPU: 0.0})
    assert starts(limits, one(0, cpus=4), one(0, cpus=2, submit=1.0)) == pytest.approx([0.0, 1.0], abs=1.0)


def test_the_parts_of_a_job_are_as_many_jobs() -> None:
    parts = tuple(Part(1, 1, 10.0) for _ in range(2))
    two = job(gpus=2, parts=parts, speed=speed((2, 1, 1.0)), user="ada")
    found = starts(qos(user={JOBS: 2.0}), two, one(user="ada", submit=1.0), one(user="bob", submit=1.0))
    assert found == pytest.approx([0.0, 100.0, 1.0], abs=1.5)


def test_a_limit_of_a_type_of_gpu_counts_those_that_request_it() -> None:
    settings = LauncherSettings(pace=0.1, limits=qos(user={"gres/gpu:fast": 1.0}))
    jobs = (one(gpu_type="fast"), one(gpu_type="fast"), one())
    made = run(
        *jobs, launcher="slurm", policy=ScriptedPolicy(lambda _: ()), slurm=settings, cluster="1x4:fast+1x4:slow"
    )
    assert [each.started for each in made.finished] == pytest.approx([0.0, 100.0, 0.0], abs=1.0)


def test_a_change_of_a_request_that_a_limit_would_never_let_start_is_refused() -> None:
    table = workload_table([one(1), one(1, submit=1.0)], all_managed=False)
    cluster = SlurmSimCluster(
        Engine(table, parse("2x4"), 0.9, limits=True), LauncherSettings(pace=100.0, limits=qos(user={GPU: 2.0}))
    )
    cluster.wait(2.0)
    resized = [
        cluster.apply([Command("1", "update", JobKey("simulated", 2, 1), {"Gres": f"gpu:{gpus}", "NumNodes": "1"})])[0]
        for gpus in (3, 2)
    ]
    assert [each.status for each in resized] == ["refused", "done"]
    assert "limit" in resized[0].message


def test_limits_count_what_a_job_holds_on_all_its_nodes() -> None:
    wide: dict[str, Any] = {"gpus": 0, "nodes": 2, "cpus": 8, "user": "ada"}
    assert starts(qos(user={"cpu": 9.0}), one(**wide), one(cpus=2, user="ada"), one(cpus=2, user="bob")) == (
        pytest.approx([0.0, 100.0, 0.0], abs=1.0)
    )
