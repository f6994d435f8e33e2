"""A waiting job is resized where it stands; limits and shapes; what that counts for."""

import math
from typing import Any

import pytest

from slurmplug.cluster import parse
from slurmplug.cluster.limits import Assoc, AssocLimits, Limits, QosLimits, ResourceUse
from slurmplug.cluster.port import ResourceRequest
from tests.moving import MakeSite, MovingSite

SHRINK: dict[str, Any] = {"kind": "resize", "gpus": 1}


@pytest.fixture
def site(make_site: MakeSite) -> MovingSite:
    """Job 1 waits, with two GPUs."""
    one = make_site()
    one.cluster.submit(b"#PLUG --gpus=1..8 --max-iterations=9\n", gpus=2, cpus=4)
    return one


def test_it_is_rewritten_at_once_and_that_is_no_requeue(site: MovingSite) -> None:
    site.cycle(**SHRINK)
    site.cycle()
    assert site.result() == "done"
    assert (site.cluster.jobs[1]["gpus"], site.cluster.jobs[1]["cpus"]) == (1, 2)
    assert site.cluster.verbs() == ["update"]
    assert site.ledger.past(site.cluster.time).requeues == ()


def test_a_refused_shape_is_taken_back(site: MovingSite) -> None:
    site.cluster.refuse = frozenset({"update"})
    site.cycle(**SHRINK)
    site.cluster.jobs[1]["cpus"] = 2  # a part of it came through
    site.cluster.refuse = frozenset()
    site.cycle()
    site.cycle()
    assert site.result() == "gave up: Slurm refused the change of its resources"
    assert site.cluster.jobs[1]["cpus"] == 4


def test_one_that_starts_meanwhile_is_left_alone(site: MovingSite) -> None:
    site.cluster.refuse = frozenset({"update"})
    site.cycle(**SHRINK)
    site.cluster.start(1)
    site.cycle()
    assert site.result() == "it started before it was changed"


@pytest.mark.parametrize(("given", "why"), [({"elements": 3}, "array"), ({"het_id": 1}, "heterogeneous")])
def test_arrays_and_components_are_left_alone(site: MovingSite, given: Any, why: str) -> None:
    site.cluster.jobs[1] |= given
    site.cycle(**SHRINK)
    assert (site.vetoes(), site.cluster.verbs()) == ([why], [])


REQUEST = ResourceRequest(
    nodes=1, gpus=2, cpus=4, memory=800.0, het_id=0, reservation="", gres="gres:gpu:2", max_nodes=1,
    tasks=1, tasks_per_node=0, cpus_per_task=4, min_cpus_per_node=4, memory_requested=True,
    min_memory=800.0, cpus_follow_gpus=False, requeue=True, excluded_nodes="", required_nodes="", time_limit=None,
    nice=0,
)  # fmt: skip


QOS = (
    "normal|||||||||\nsmall|gres/gpu=8||gres/gpu=4|cpu=64|12:00:00||||\ncapped||gres/gpu=2,mem=1G|||||||\n"
    "over|||gres/gpu=9||||||OverPartQOS\njobs||||||5|2|3|\n"
)
ASSOCS = "root|||||||||\nvision|||gres/gpu=6||1-00:00:00|root|7|4|\nvision|ada|||gres/gpu=3|10:00:00|||4|small\n"
PARTITIONS = (
    "PartitionName=gpu QoS=capped MaxTime=06:00:00 Nodes=n1\nPartitionName=cpu QoS=N/A MaxTime=UNLIMITED Nodes=n1\n"
    "PartitionName=small QoS=small MaxTime=2-00:00:00 Nodes=n1\n"
)


def use(gpus: float, **given: str) -> ResourceUse:
    values = {"user": "ada", "account": "vision", "qos": "small", "partition": "cpu", **given}
    return ResourceUse(**values, tres={"gres/gpu": gpus, "cpu": 1.0, "mem": 100.0, "node": 1.0})


@pytest.mark.parametrize(
    ("job", "others", "limit"),
    [
        (use(3), [], ""),
        (use(4), [], "MaxTRES of ada in vision: gres/gpu=3"),
        (use(3), [use(2)], "MaxTRESPU of QOS small: gres/gpu=4"),
        (use(3, user="eve", account="x"), [use(6, user="bob", account="y")], "GrpTRES of QOS small: gres/gpu=8"),
        (use(3), [use(4, user="eve", qos="normal")], "GrpTRES of account vision: gres/gpu=6"),
        (use(3, user="eve", account="x", qos="normal", partition="gpu"), [], "MaxTRES of QOS capped: gres/gpu=2"),
        (use(99, user="eve", account="x", qos="normal"), [], ""),
    ],
)
def test_the_first_limit_that_would_hold_a_job_is_named(
    job: ResourceUse, others: list[ResourceUse], limit: str
) -> None:
    assert parse.limits(QOS, ASSOCS, PARTITIONS).exceeded(job, others) == limit


@pytest.mark.parametrize(
    ("user", "account", "qos", "partitions", "hours"),
    [
        ("eve", "x", "normal", "cpu", math.inf),
        ("eve", "x", "normal", "cpu,gpu", 6),
        ("eve", "x", "small", "cpu", 12),
        ("eve", "x", "normal", "small", 12),
        ("eve", "vision", "normal", "cpu", 24),
        ("ada", "vision", "small", "cpu", 10),
    ],
)
def test_the_longest_time_limit_is_the_least_of_those_that_may_count(
    user: str, account: str, qos: str, partitions: str, hours: float
) -> None:
    assert parse.limits(QOS, ASSOCS, PARTITIONS).longest(user, account, qos, partitions) == hours * 3600


def test_an_answer_of_another_form_is_an_error() -> None:
    with pytest.raises(ValueError, match="not 10 fields"):
        parse.limits("normal|||\n", "", "")


@pytest.mark.parametrize("amount", ["gres/gpu=many", "cpu=1e5", "cpu=²", "mem=1X"])
def test_a_limit_that_is_no_number_is_an_error(amount: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|not an amount"):
        parse.limits(f"small|{amount}||||||||\n", "", "")


def test_accounts_that_name_each_other_as_parents_come_to_an_end() -> None:
    group = AssocLimits(group={"gres/gpu": 1.0}, parent="b")
    limits = Limits({"normal": QosLimits()}, {Assoc("a", "", ""): group, Assoc("b", "", ""): AssocLimits(parent="a")})
    assert limits.exceeded(use(2, account="a"), []) == "GrpTRES of account a: gres/gpu=1"


def rules(**given: str) -> dict[str, float]:
    """The limits that apply to a job, by their names and kinds."""
    found = parse.limits(QOS, ASSOCS, PARTITIONS).rules(use(1, **given))
    return {f"{rule.name}: {rule.kind}": rule.most for rule in found}


def test_of_the_limits_of_one_kind_the_partitions_qos_decides_then_the_jobs_then_its_associations() -> None:
    assert rules(partition="small") == {
        "MaxTRESPU of QOS small: gres/gpu": 4,
        "MaxTRESPA of QOS small: cpu": 64,
        "GrpTRES of QOS small: gres/gpu": 8,
        "MaxTRES of ada in vision: gres/gpu": 3,
        "MaxJobs of ada in vision: jobs": 4,
        "GrpTRES of account vision: jobs": 7,
    }
    assert rules(partition="gpu")["MaxTRES of QOS capped: gres/gpu"] == 2
    assert "MaxTRES of ada in vision: gres/gpu" not in rules(partition="gpu")
    assert rules(partition="small", qos="jobs")["MaxTRESPU of QOS small: gres/gpu"] == 4
    assert "MaxJobs of ada in vision: jobs" not in rules(partition="small", qos="jobs")
    assert rules(qos="jobs")["MaxTRESPU of QOS jobs: jobs"] == 2
    assert "GrpTRES of account vision: jobs" not in rules(qos="jobs")


def test_a_qos_that_goes_over_that_of_the_partition_is_looked_at_first() -> None:
    found = rules(partition="small", qos="over")
    assert found["MaxTRESPU of QOS over: gres/gpu"] == 9
    assert "MaxTRESPU of QOS small: gres/gpu" not in found
    assert found["MaxTRESPA of QOS small: cpu"] == 64


def test_a_job_counts_in_its_account_and_in_those_above_it_where_the_limit_of_another_applies_too() -> None:
    tallies = list(parse.limits(QOS, ASSOCS, PARTITIONS).tallies(use(1, qos="over", partition="small")))
    assert tallies[:3] == [("qos", "over"), ("user of a qos", "over", "ada"), ("account of a qos", "over", "vision")]
    assert ("qos", "small") in tallies
    assert tallies[-3:] == [
        ("association", "vision", "ada", ""), ("association", "vision", "", ""), ("association", "root", "", ""),
    ]  # fmt: skip
