"""Limits in what sacctmgr dumps and shows, as limits of the simulated Slurm."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slurmplug.cluster.limits import JOBS, Assoc, AssocLimits, QosLimits
from slurmplug.errors import DataError
from slurmplug.sim.slurm import site_conf, site_limits
from slurmplug.sim.slurm.assoc_priority import factors
from slurmplug.sim.slurm.conf_priority import SHARES
from slurmplug.sim.slurm.job_limits import SECONDS_OF, USED_SECONDS_OF
from slurmplug.sim.slurm.settings import LauncherSettings
from slurmplug.sim.slurm.share_tree import OF_PARENT
from slurmplug.sim.slurm.site_conf import ASSOC_PRIORITIES, LIMITS, QOS_PRIORITIES, SiteConf

GPU = "gres/gpu"
Write = Callable[[str], Path]
DUMP = """# To edit this file start with a cluster line for the new cluster
Cluster - 'c':Fairshare=1:QOS='normal':MaxJobs=20
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'vision':Description='a: b':Organization='lab':DefaultQOS='few':Fairshare=5:GrpTRESMins=cpu=1000:GrpTRES=cpu=10,gres/gpu:A100=6:GrpJobs=9:MaxTRESPerJob=gres/gpu=3,mem=10G:MaxJobs=4:MaxWallDurationPerJob=1440:QOS='+few'
Parent - 'vision'
User - 'ada':DefaultAccount='vision':Fairshare=1:MaxTRESPerJob=gres/gpu=1
User - 'bob':Partition='gpu':DefaultAccount='vision':Fairshare=1:MaxJobs=2
Account - 'sub':Description='with `quotes`':Organization='o':Fairshare=1:GrpTRES=node=4
Parent - 'sub'
User - 'eve':DefaultAccount='sub':Fairshare=1
"""  # noqa: E501 as Slurm 22.05 writes it
QOS = """Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags|UsageThres|UsageFactor|GrpTRES|GrpTRESMins|GrpTRESRunMins|GrpJobs|GrpSubmit|GrpWall|MaxTRES|MaxTRESPerNode|MaxTRESMins|MaxWall|MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxTRESPA|MaxJobsPA|MaxSubmitPA|MinTRES
normal|0|00:00:00|||cluster|||1.000000|||||||||||||||||
few|10|00:00:00|||cluster|DenyOnLimit,OverPartQOS||1.000000|gres/gpu=4|||7|||cpu=2|||1-00:00:00|cpu=8,gres/gpu=2|3|9|gres/gpu=3|5||
"""  # noqa: E501
NEW_DUMP = """QOS - 'normal':Description='Normal QOS default':UsageFactor=1.000000
QOS - 'few':Description='few':Flags='DenyOnLimit,OverPartQOS':GrpJobs=7:GrpTRES=gres/gpu=4:MaxJobsPA=5:MaxJobsPU=3:MaxTRESPerAccount=gres/gpu=3:MaxTRESPerJob=cpu=2:MaxTRESPerUser=cpu=8,gres/gpu=2:Priority=10:MaxWallDurationPerJob=1440:MaxSubmitJobsPU=9
"""  # noqa: E501 as later releases begin a dump
FEW = QosLimits(
    {GPU: 4.0, JOBS: 7.0}, {"cpu": 2.0}, {"cpu": 8.0, GPU: 2.0, JOBS: 3.0}, {GPU: 3.0, JOBS: 5.0}, over_partition=True
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.txt"
        path.write_text(text)
        return path

    return written


def test_a_dump_has_the_limits_of_accounts_and_users_and_what_accounts_pass_down(write: Write) -> None:
    found = site_limits.read(write(DUMP), None)
    assocs = found.limits.assocs
    assert assocs[Assoc("root", "", "")] == AssocLimits(jobs=20.0)
    group = {"cpu": 10.0, "gres/gpu:A100": 6.0, JOBS: 9.0, f"{USED_SECONDS_OF}cpu": 60_000.0}
    passed = {GPU: 3.0, "mem": 10_240.0}
    assert assocs[Assoc("vision", "", "")] == AssocLimits(group, passed, parent="root", jobs=4.0)
    assert assocs[Assoc("vision", "ada", "")] == AssocLimits(job={**passed, GPU: 1.0}, jobs=4.0)
    assert assocs[Assoc("vision", "bob", "gpu")] == AssocLimits(job=passed, jobs=2.0)
    assert assocs[Assoc("sub", "", "")].parent == "vision"
    assert assocs[Assoc("sub", "eve", "")] == AssocLimits(job=passed, jobs=4.0)
    assert assocs[Assoc("root", "root", "")] == AssocLimits(jobs=20.0)
    assert found.not_followed == ("limits of associations: GrpTRES of node, MaxWallDurationPerJob",)
    assert found.of == {"associations"}


@pytest.mark.parametrize("of_dump", [True, False])
def test_qos_are_read_from_what_sacctmgr_shows_and_from_the_dump_of_a_later_release(
    write: Write, *, of_dump: bool
) -> None:
    found = site_limits.read(*((write(NEW_DUMP + DUMP), None) if of_dump else (None, write(QOS))))
    assert found.limits.qos == {"normal": QosLimits(), "few": FEW}
    assert found.qos_priority == {"normal": 0, "few": 10}
    assert found.usage_factor == {"normal": 1, "few": 1}
    others = "MaxSubmitJobsPU, MaxWallDurationPerJob" if of_dump else "MaxSubmitPU, MaxWall"
    assert found.not_followed[0] == f"limits of QOS: {others}"
    assert found.of >= {"QOS"}


def test_limits_on_the_minutes_of_running_jobs_are_read(write: Write) -> None:
    dump = """Cluster - 'c':Fairshare=1
Account - 'a':GrpTRESRunMins=cpu=100:MaxTRESMinsPerJob=gres/gpu=60:Fairshare=1
"""
    qos = """Name|GrpTRESRunMins|MaxTRESMins|MaxTRESRunMinsPU|MaxTRESRunMinsPA
few|gres/gpu=1|cpu=2|gres/gpu:a100=3|mem=4
"""
    found = site_limits.read(write(dump), write(qos))
    seconds = SECONDS_OF
    assert found.limits.qos["few"] == QosLimits(
        {f"{seconds}{GPU}": 60.0}, {f"{seconds}cpu": 120.0}, {f"{seconds}{GPU}:a100": 180.0}, {f"{seconds}mem": 240.0}
    )
    account = found.limits.assocs[Assoc("a", "", "")]
    assert (account.group, account.job) == ({f"{seconds}cpu": 6_000.0}, {f"{seconds}{GPU}": 3_600.0})
    assert found.not_followed == ()


def test_qos_that_are_shown_replace_those_of_the_dump(write: Write) -> None:
    other = NEW_DUMP.replace("few", "other") + DUMP
    assert set(site_limits.read(write(other), write(QOS)).limits.qos) == {"normal", "few"}


@pytest.mark.parametrize(
    ("dump", "said"),
    [
        ("Cluster - 'c'\nUser ada\n", "line 2: is not a line of a dump: 'User ada'; write it with: sacctmgr dump"),
        ("Cluster - 'c'\nWckey - 'x'\n", "line 2: begins with 'Wckey', not with Cluster"),
        ("Cluster - 'c'\nParent - 'x'\n", "line 2: names the parent 'x', which no earlier line defines"),
        ("Cluster - 'c'\nAccount - 'x':GrpTRES=gres/gpu=many\n", "line 2: gres/gpu='many', which is not a number"),
        ("Cluster - 'c'\nAccount - 'x':GrpJobs=1.5\n", "line 2: GrpJobs='1.5', which is not a number"),
        ("Cluster - 'c'\nAccount - 'x':GrpJobs\n", "line 2: has an option that is not NAME=VALUE: 'GrpJobs'"),
        ("Cluster - 'c'\nAccount - 'x':MaxTRESPerJob=mem=1X\n", "line 2: 'mem=1X' is not an amount of memory"),
        ("Cluster - 'c'\nAccount - 'x\n", "line 2: is not a line of a dump"),
        (
            "Cluster - 'c'\nAccount - 'x':Fairshare=-1\n",
            "column Fairshare: is '-1', neither a number from 0 nor parent",
        ),
        ("Cluster - 'c'\nAccount - 'x':GrpJobs=1\nAccount - 'x'\n", "line 3: defines the account 'x' again"),
        ("", "it has no account and no user; write it with: sacctmgr dump CLUSTER file=FILE"),
    ],
)
def test_a_dump_that_is_none_is_refused_with_its_line_and_what_to_do(write: Write, dump: str, said: str) -> None:
    with pytest.raises(DataError) as error:
        site_limits.read(write(dump), None)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("qos", "said"),
    [
        ("normal|0\n", "its heading lacks Name"),
        ("Name|GrpTRES\nnormal\n", "line 2: has 1 cells; the heading has 2"),
        ("Name|GrpTRES\nnormal|gres/gpu=x\n", "line 2: gres/gpu='x', which is not a number"),
        ("Name|Priority\nnormal|high\n", "line 2, column Priority: is 'high', not a number from 0"),
        ("Name|GrpTRES\n", "it has no QOS"),
    ],
)
def test_a_table_of_qos_that_is_none_is_refused_with_its_line_and_what_to_do(write: Write, qos: str, said: str) -> None:
    with pytest.raises(DataError) as error:
        site_limits.read(None, write(qos))
    assert said in str(error.value)
    assert "write it with: sacctmgr --parsable2 show qos" in str(error.value)


def test_a_dump_has_the_shares_of_accounts_and_users_and_the_accounts_above(write: Write) -> None:
    dump = DUMP.replace("'sub':Description='with `quotes`':Organization='o':Fairshare=1", "'sub':Fairshare=2147483647")
    shares = site_limits.read(write(dump + "User - 'dan':DefaultAccount='sub':Fairshare=parent\n"), None).shares
    assert shares is not None
    assert shares.of == {
        Assoc("root", "", ""): 1.0,
        Assoc("root", "root", ""): 1.0,
        Assoc("vision", "", ""): 5.0,
        Assoc("vision", "ada", ""): 1.0,
        Assoc("vision", "bob", "gpu"): 1.0,
        Assoc("sub", "", ""): OF_PARENT,
        Assoc("sub", "eve", ""): 1.0,
        Assoc("sub", "dan", ""): OF_PARENT,
    }
    assert shares.above == {"root": "", "vision": "root", "sub": "vision"}
    assert site_limits.read(None, write(QOS)).shares is None


def test_users_have_the_priority_of_their_account_unless_they_have_one_of_their_own(write: Write) -> None:
    dump = DUMP.replace("Fairshare=5", "Priority=40:Fairshare=5").replace("'gpu':Def", "'gpu':Priority=10:Def")
    found = site_limits.read(write(dump), None)
    given = conf(assoc_weight=100.0, not_followed=(ASSOC_PRIORITIES,))
    settings = site_limits.with_limits(given, found).settings
    jobs = [Assoc("vision", "ada", "gpu"), Assoc("vision", "bob", "gpu"), Assoc("sub", "eve", ""), Assoc("x", "y", "")]
    assert factors(settings.assoc_priority, jobs).tolist() == [1.0, 0.25, 1.0, 0.0]
    assert settings.weights.assoc == 100.0
    assert site_limits.with_limits(replace(given, assoc_is_relative=False), found).settings.weights.assoc == 4000.0
    assert ASSOC_PRIORITIES not in site_limits.with_limits(given, found).not_followed
    assert ASSOC_PRIORITIES in site_limits.with_limits(given, site_limits.read(None, write(QOS))).not_followed


def test_shares_count_also_without_limits(write: Write) -> None:
    given, found = conf(enforces_limits=False, not_followed=(SHARES,)), site_limits.read(write(DUMP), None)
    made = site_limits.with_limits(given, found)
    assert made.settings.shares == found.shares
    assert SHARES not in made.not_followed
    assert SHARES in site_limits.with_limits(given, site_limits.read(None, write(QOS))).not_followed


def conf(**given: object) -> SiteConf:
    return replace(SiteConf(LauncherSettings(), "", (LIMITS, "Licenses")), **given)  # type: ignore[arg-type]


def test_limits_are_those_of_the_settings_with_the_qos_of_partitions(write: Write) -> None:
    made = site_limits.with_limits(conf(partition_qos={"gpu": "few"}), site_limits.read(write(DUMP), write(QOS)))
    assert made.settings.limits.partition_qos == {"gpu": "few"}
    assert made.settings.limits.qos["few"] == FEW
    assert made.not_followed == (
        "Licenses",
        "limits of QOS: MaxSubmitPU, MaxWall",
        "limits of associations: GrpTRES of node, MaxWallDurationPerJob",
    )


def test_what_no_file_has_is_said(write: Write) -> None:
    qos, dump = site_limits.read(None, write(QOS)), site_limits.read(write(DUMP), None)
    assert "limits of associations (name them with --sacctmgr)" in site_limits.with_limits(conf(), qos).not_followed
    assert "limits of QOS (name them with --qos)" in site_limits.with_limits(conf(), dump).not_followed


def test_limits_that_slurm_does_not_enforce_are_not_followed(write: Write) -> None:
    made = site_limits.with_limits(conf(enforces_limits=False), site_limits.read(write(DUMP), write(QOS)))
    assert not made.settings.limits.qos
    assert not made.settings.limits.assocs
    assert "AccountingStorageEnforce of this slurm.conf does not have" in made.not_followed[-1]


def test_the_priorities_of_qos_count_once_they_are_known(write: Write) -> None:
    path = write("PriorityWeightQOS=500\nAccountingStorageEnforce=safe\nPartitionName=gpu QOS=few Nodes=n1\n")
    read = site_conf.read(path)
    assert (read.enforces_limits, read.qos_weight, read.partition_qos) == (True, 500.0, {"gpu": "few"})
    assert read.settings.weights.qos == 0
    assert QOS_PRIORITIES in read.not_followed
    with_qos = site_limits.with_limits(read, site_limits.read(None, write(QOS.replace("|1.000000|g", "|0.5|g"))))
    assert with_qos.settings.billing.qos == {"normal": 1.0, "few": 0.5}
    assert (with_qos.settings.weights.qos, with_qos.settings.weights.qos_priority) == (500.0, {"normal": 0, "few": 10})
    assert QOS_PRIORITIES not in with_qos.not_followed
    as_they_are = site_limits.with_limits(replace(read, qos_is_relative=False), site_limits.read(None, write(QOS)))
    assert as_they_are.settings.weights.qos == 500.0 * 10, "500 for each point of the priority of a QOS"
    without = site_limits.with_limits(read, site_limits.read(write(DUMP), None))
    assert without.settings.weights.qos == 0
    assert QOS_PRIORITIES in without.not_followed


def test_limits_on_used_minutes_are_those_of_tres_and_billing(write: Write) -> None:
    qos = QOS.replace("|gres/gpu=4|||7|", "|gres/gpu=4|billing=5,energy=9,gres/gpu=2||7|")
    found = site_limits.read(None, write(qos.replace("DenyOnLimit,", "NoDecay,")))
    assert found.limits.qos["few"].group == {
        GPU: 4.0, JOBS: 7.0, f"{USED_SECONDS_OF}billing": 300.0, f"{USED_SECONDS_OF}{GPU}": 120.0,
    }  # fmt: skip
    assert found.no_decay == {"few"}
    assert any("GrpTRESMins of energy" in each for each in found.not_followed)
    with pytest.raises(DataError, match="'billing=x', which is not a number"):
        site_limits.read(None, write(qos.replace("billing=5", "billing=x")))
