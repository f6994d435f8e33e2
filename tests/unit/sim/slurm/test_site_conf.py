"""slurm.conf, as settings of the simulated Slurm."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slurmplug.errors import DataError
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.slurm import site_conf
from slurmplug.sim.slurm.backfill_limits import BackfillLimits
from slurmplug.sim.slurm.conf_priority import SHARES
from slurmplug.sim.slurm.settings import Reservations

Write = Callable[[str], Path]
NODES = "NodeName=n[1-2] Gres=gpu:4 CPUs=32 RealMemory=64000\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / "slurm.conf"
        path.write_text(text)
        return path

    return written


def test_weights_and_backfill_are_those_of_the_site(write: Write) -> None:
    conf = site_conf.read(write("""
# PriorityWeightAge=7
priorityweightage=1000   # a remark
PriorityWeightFairshare=5000
PriorityWeightPartition=100
PriorityMaxAge=1-0
PriorityDecayHalfLife=3-12
SchedulerParameters=bf_interval=60,\\
bf_max_job_test=20,bf_continue
PartitionName=fast Nodes=n[1-2] PriorityJobFactor=10 MaxTime=60
PartitionName=slow Nodes=n[1-2] Default=YES DefaultTime=2:00:00
"""))  # fmt: skip
    settings, weights = conf.settings, conf.settings.weights
    assert (weights.age, weights.fairshare, weights.partition, weights.job_size) == (1000, 5000, 100, 0)
    assert (weights.max_age, weights.half_life) == (86_400, 3.5 * 86_400)
    assert dict(weights.partition_priority) == {"fast": 10, "slow": 1}
    assert (settings.backfill, settings.bf_interval, settings.bf_max_job_test) == (True, 60, 20)
    assert settings.default_limit == 7200
    assert "SchedulerParameters=bf_continue" in conf.not_followed
    assert conf.cluster == ""


def test_what_is_not_set_has_the_default_of_slurm(write: Write) -> None:
    settings = site_conf.read(write("ClusterName=c\n")).settings
    weights = settings.weights
    assert (weights.age, weights.fairshare, weights.partition, weights.job_size) == (0, 0, 0, 0)
    assert (weights.max_age, weights.half_life) == (7 * 86_400, 7 * 86_400)
    assert (settings.backfill, settings.bf_interval, settings.bf_max_job_test) == (True, 30, 500)


def test_jobs_go_in_order_of_submission_where_priorities_are_basic_and_without_backfill_where_it_is_built_in(
    write: Write,
) -> None:
    settings = site_conf.read(
        write("PriorityType=priority/basic\nPriorityWeightAge=9\nSchedulerType=sched/builtin")
    ).settings
    assert (settings.weights.total, settings.backfill) == (0, False)


def test_nodes_have_the_resources_that_slurm_gives_away(write: Write) -> None:
    lines = """
NodeName=DEFAULT CPUs=32 RealMemory=128000
NodeName=n[01-03] Gres=gpu:a100:4,nvme:1
NodeName=n04 Gres=gpu:a100:4
NodeName=later State=FUTURE
NodeName=c[1-2],login Sockets=2 CoresPerSocket=8 ThreadsPerCore=2
"""
    with_memory = site_conf.read(write(lines + "SelectTypeParameters=CR_Core_Memory\n")).cluster
    assert with_memory == "4x4x32x128000:a100+3x0x32x128000"
    assert len(parse(with_memory)) == 7
    assert set(parse(site_conf.read(write(lines)).cluster).memory) == {99_999_999.0}


def test_what_is_not_followed_is_said(write: Write) -> None:
    path = write(NODES + """
PriorityWeightQOS=10
PriorityWeightTRES=cpu=1,Energy=2
PreemptType=preempt/none
AccountingStorageEnforce=associations,limits
PartitionName=a Nodes=n1 OverSubscribe=FORCE:2
PartitionName=b Nodes=n2 PriorityTier=5 OverSubscribe=FORCE:1 ExclusiveUser=YES
""")  # fmt: skip
    assert site_conf.read(path).not_followed == (
        "PriorityWeightQOS (the priorities of QOS are in slurmdbd)",
        "PriorityWeightTRES of energy",
        "limits of QOS and associations",
        "OverSubscribe=FORCE:2 (jobs do not share CPUs)",
        "ExclusiveUser of partitions",
    )


def test_partitions_have_their_nodes_and_tiers(write: Write) -> None:
    found = site_conf.read(write("""
NodeName=n[1-2] CPUs=4 Feature=old
NodeName=soon State=FUTURE
NodeName=g[1-3] CPUs=8 Gres=gpu:4 Features=fast,new
NodeSet=quick Feature=fast
NodeSet=some Nodes=n2 Feature=new
PartitionName=DEFAULT PriorityTier=2
PartitionName=cpu Nodes=n[1-2],soon,elsewhere
PartitionName=gpu Nodes=quick PriorityTier=7
PartitionName=both Nodes=some,n1
PartitionName=all Nodes=ALL Priority=3
PartitionName=none
""")).settings.partitions  # fmt: skip
    assert {name: (sorted(each.nodes), each.tier) for name, each in found.items()} == {
        "cpu": ([0, 1], 2),
        "gpu": ([2, 3, 4], 7),
        "both": ([0, 1, 2, 3, 4], 2),
        "all": ([0, 1, 2, 3, 4], 3),
        "none": ([], 2),
    }


def test_jobs_of_exclusive_partitions_and_all_by_select_linear_get_whole_nodes(write: Write) -> None:
    conf = site_conf.read(write(NODES + """
PartitionName=DEFAULT OverSubscribe=EXCLUSIVE
PartitionName=a Nodes=n1
PartitionName=b Nodes=n1 OverSubscribe=NO
PartitionName=c Nodes=n1 Exclusive=NO
PartitionName=d Nodes=n1 OverSubscribe=NO Exclusive=NODE
"""))  # fmt: skip
    assert {name: each.exclusive for name, each in conf.settings.partitions.items()} == {
        "a": True, "b": False, "c": False, "d": True,
    }  # fmt: skip
    old = site_conf.read(write(NODES + "SelectType=select/linear\nPartitionName=a Nodes=n1 Shared=EXCLUSIVE\n"))
    assert (conf.settings.whole_nodes, old.settings.whole_nodes) == (False, True)
    assert old.settings.partitions["a"].exclusive
    assert conf.not_followed == old.not_followed == ()


TRES = """
NodeName=n[1-2] CPUs=8 RealMemory=1000 Gres=gpu:4
NodeName=n3 CPUs=4 RealMemory=2000
PriorityWeightTRES=CPU=400,Mem=1G,GRES/gpu=80,node=30
PartitionName=gpu Nodes=n[1-2] PriorityJobFactor=4
PartitionName=all Nodes=ALL PriorityJobFactor=10
"""


def test_weights_of_tres_are_over_all_that_a_partition_has(write: Write) -> None:
    weights = site_conf.read(write(TRES)).settings.weights
    a_mebibyte = 1 / 1024
    assert dict(weights.tres) == {
        "gpu": pytest.approx((10, 25, a_mebibyte / 2000, 15)),
        "all": pytest.approx((10, 20, a_mebibyte / 4000, 10)),
    }
    given = site_conf.read(write(TRES + "PriorityFlags=NO_NORMAL_TRES\n")).settings.weights
    assert given.tres["gpu"] == pytest.approx((80, 400, a_mebibyte, 30))
    assert dict(site_conf.read(write(TRES + "PriorityType=priority/basic\n")).settings.weights.tres) == {}


def test_flags_and_favor_small_change_the_factors(write: Write) -> None:
    plain = site_conf.read(write(TRES + "PriorityWeightPartition=100\n")).settings.weights
    assert (plain.favor_small, plain.relative_to_time, plain.partition) == (False, False, 100)
    lines = "PriorityWeightPartition=100\nPriorityFavorSmall=YES\nPriorityFlags=NO_NORMAL_PART,SMALL_RELATIVE_TO_TIME\n"
    conf = site_conf.read(write(TRES + lines))
    weights = conf.settings.weights
    assert (weights.favor_small, weights.relative_to_time, weights.partition) == (True, True, 1000)
    assert not any("Priority" in each for each in conf.not_followed)
    assert site_conf.read(write("PriorityFlags=NO_NORMAL_QOS")).qos_is_relative is False
    every = site_conf.read(write("PriorityFlags=NO_NORMAL_ALL"))
    assert (every.qos_is_relative, every.assoc_is_relative, every.not_followed) == (False, False, ())


def test_priority_of_a_partition_sets_its_tier_and_its_factor(write: Write) -> None:
    settings = site_conf.read(write("NodeName=n1\nPartitionName=a Nodes=n1 Priority=9")).settings
    assert settings.partitions["a"].tier == settings.weights.partition_priority["a"] == 9


def test_backfill_reserves_as_the_site_sets_it(write: Write) -> None:
    conf = site_conf.read(write("ClusterName=c\n"))
    assert conf.settings.reservations == Reservations(60.0, 86_400.0, 0.0, 0)
    conf = site_conf.read(write(
        f"{NODES}SchedulerParameters=bf_resolution=300,bf_window=4320,bf_window_linear=10,bf_job_part_count_reserve=3\n"
    ))  # fmt: skip
    assert conf.settings.reservations == Reservations(300.0, 3 * 86_400.0, 10.0, 3)
    assert conf.not_followed == ()


def test_backfill_tries_as_many_jobs_of_each_as_the_site_sets(write: Write) -> None:
    every = "bf_max_job_user=3,bf_max_job_part=4,bf_max_job_user_part=5,bf_max_job_assoc=6,bf_max_job_start=7"
    conf = site_conf.read(write(f"{NODES}SchedulerParameters={every}\n"))
    assert conf.settings.bf_limits == BackfillLimits(3, 4, 5, 6, 7)
    assert conf.not_followed == ()


def test_usage_is_counted_by_the_billing_weights_of_partitions(write: Write) -> None:
    settings = site_conf.read(write(f"""{NODES}
PriorityCalcPeriod=2
PartitionName=gpu Nodes=n1 TRESBillingWeights="CPU=0.5,Mem=0.25G,GRES/gpu=4"
PartitionName=cpu Nodes=n2
""")).settings  # fmt: skip
    weights = settings.billing.weights(np.array(["cpu", "gpu", "elsewhere"]), np.array(["normal"] * 3))
    assert weights.tolist() == [[0.0, 1.0, 0.0], [4.0, 0.5, 0.25 / 1024], [0.0, 1.0, 0.0]]
    assert settings.fairshare_interval == 120


@pytest.mark.parametrize(
    ("lines", "dampening", "said"),
    [
        ("", None, (SHARES,)),
        ("PriorityFlags=FAIR_TREE\nPriorityUsageResetPeriod=NONE", None, (SHARES,)),
        ("PriorityUsageResetPeriod=MONTHLY", None, (SHARES, "PriorityUsageResetPeriod=MONTHLY")),
        ("PriorityFlags=MAX_TRES,no_fair_tree", 1.0, (SHARES, "PriorityFlags=MAX_TRES")),
        ("PriorityFlags=DEPTH_OBLIVIOUS\nFairShareDampeningFactor=5", 5.0, (SHARES, "PriorityFlags=DEPTH_OBLIVIOUS")),
        (
            "PartitionName=a Nodes=n1 TRESBillingWeights=node=1",
            None,
            (SHARES, "TRESBillingWeights of node"),
        ),
    ],
)
def test_what_of_fairshare_is_not_followed_is_said(
    write: Write, lines: str, dampening: float | None, said: tuple[str, ...]
) -> None:
    conf = site_conf.read(write(f"SchedulerType=sched/builtin\nPriorityWeightFairshare=100\n{lines}\n"))
    assert conf.settings.dampening == dampening
    assert len(conf.not_followed) == len(said)
    assert all(each.startswith(start) for each, start in zip(conf.not_followed, said, strict=True))


def test_files_that_it_includes_are_read(write: Write, tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_text(NODES)
    assert site_conf.read(write("Include nodes.conf\n")).cluster == "2x4x32x99999999"


def test_a_file_that_includes_itself_is_refused(write: Write) -> None:
    with pytest.raises(DataError, match="is included by itself"):
        site_conf.read(write("Include slurm.conf\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("PriorityWeightAge=much", "priorityweightage is 'much', not a number from 0"),
        ("PriorityMaxAge=soon", "Invalid time limit"),
        ("PriorityWeightTRES=Mem=Q", "PriorityWeightTRES has 'mem=q', not a number"),
        ("PartitionName=p TRESBillingWeights=CPU=x", "TRESBillingWeights has 'cpu=x', not a number"),
        ("NodeName=n[1-900000] CPUs=1", "more than 100000 nodes"),
    ],
)
def test_a_value_that_slurm_would_not_take_is_named(write: Write, line: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        site_conf.read(write(line))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.conf cannot be read"):
        site_conf.read(tmp_path / "none.conf")
