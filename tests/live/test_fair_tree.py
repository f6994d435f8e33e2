"""Fairshare on a real Slurm: the factors and the usage that sshare shows, and the replay's of the same accounts."""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slurmplug.cluster.limits import Assoc
from slurmplug.sandbox import ClusterSpec, Partition, Sandbox
from slurmplug.sim.slurm import site_conf, site_limits
from slurmplug.sim.slurm.classic_fairshare import ClassicFairshare
from slurmplug.sim.slurm.fair_tree import FairTree

SPEC = ClusterSpec(
    partitions=(Partition("gpu", options={"TRESBillingWeights": "CPU=1.5,Mem=1G,GRES/gpu=20"}),),
    weights={"Age": 1000, "FairShare": 100_000, "JobSize": 100},
)
ACCOUNTS = (
    ("physics", "root", "40"), ("biology", "root", "60"), ("theory", "physics", "3"), ("shared", "biology", "parent"),
    ("idle", "root", "10"), ("nothing", "root", "0"),
    ("direct", "root", "parent"),
)  # fmt: skip
USERS = (
    (0, "physics", "1"), (1, "physics", "2"), (0, "theory", "5"), (1, "theory", "1"), (0, "shared", "1"),
    (2, "shared", "1"), (2, "biology", "parent"), (1, "biology", "4"), (0, "idle", "1"), (1, "idle", "1"),
    (2, "nothing", "1"), (1, "direct", "2"),
)  # fmt: skip
"""researcher, account, shares"""
JOBS = (
    (0, "physics", 2, 6), (1, "physics", 1, 18), (0, "theory", 1, 4), (1, "theory", 3, 9), (0, "shared", 1, 14),
    (2, "shared", 4, 11), (2, "biology", 1, 21), (2, "nothing", 1, 3),
)  # fmt: skip
"""researcher, account, GPUs, seconds"""
SHOWN = "Account,User,Partition,RawUsage,NormUsage,FairShare"


@pytest.mark.parametrize(
    "settings", [{}, {"PriorityFlags": "NO_FAIR_TREE", "FairShareDampeningFactor": "3"}], ids=["fair_tree", "classic"]
)
def test_factors_and_usage_are_those_of_sshare(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path, settings: Mapping[str, str]
) -> None:
    cluster = special_cluster(replace(SPEC, settings=settings))
    users = cluster.researchers
    for account, parent, shares in ACCOUNTS:
        accounting(cluster, "add", "account", account, f"parent={parent}", f"fairshare={shares}")
    for user, account, shares in USERS:
        accounting(cluster, "add", "user", users[user], f"account={account}", f"fairshare={shares}")
    script = "#!/bin/sh\n#SBATCH --mem=200 --time=5 --output=/dev/null\nexec sleep {}\n"
    submitted = [
        cluster.sbatch(users[user], script.format(seconds), f"--account={account}", f"--gres=gpu:{gpus}")
        for user, account, gpus, seconds in JOBS
    ]
    for job in submitted:
        cluster.wait_job(job, "COMPLETED", 120)
    by_assoc = {Assoc(each["Account"], each["User"], each["Partition"]): each for each in counted(cluster)}
    usage = {assoc: float(each["RawUsage"]) for assoc, each in by_assoc.items()}

    conf = site_limits.with_limits(site_conf.read(cluster.layout.slurm_conf), dumped(cluster, tmp_path))
    assert conf.settings.shares is not None
    whom = [assoc for assoc in conf.settings.shares.of if assoc.user]
    dampening = conf.settings.dampening
    if dampening:
        parts = np.array([float(by_assoc[each]["NormUsage"] or 0) for each in whom])
        factors = ClassicFairshare(conf.settings.shares, [], dampening).factors(parts)
    else:
        factors = FairTree(conf.settings.shares, []).factors(np.array([usage[each] for each in whom]))
    expected = [float(by_assoc[each]["FairShare"]) for each in whom]
    assert factors == pytest.approx(expected, abs=1e-5), by_assoc
    assert len(set(expected)) > 8

    weights = conf.settings.billing.weights(np.array(["gpu"]), np.array(["normal"]))[0]
    for assoc, used in billed(cluster, weights).items():
        assert usage[assoc] == pytest.approx(used, rel=0.02, abs=2 * weights @ [4, 4, 200])


def accounting(cluster: Sandbox, *words: str) -> None:
    cluster.run("root", ["sacctmgr", "-i", *words])


def dumped(cluster: Sandbox, folder: Path) -> site_limits.SiteLimits:
    file = folder / "dump.cfg"
    cluster.run("root", ["sacctmgr", "dump", cluster.name, f"file={file}"])
    return site_limits.read(file, None)


def sshare(cluster: Sandbox) -> list[dict[str, str]]:
    """A line for each user in an account."""
    try:
        shown = cluster.run("root", ["sshare", "-a", "--parsable2", f"--format={SHOWN}"]).stdout
    except subprocess.CalledProcessError as error:
        raise AssertionError(error.stderr) from error
    heading, *lines = [[word.strip() for word in line.split("|")] for line in shown.splitlines()]
    rows = [dict(zip(heading, line, strict=True)) for line in lines]
    return [row for row in rows if row["User"]]


def counted(cluster: Sandbox) -> list[dict[str, str]]:
    """What it shows once the factors go by the usage of all jobs: PriorityCalcPeriod is a minute."""

    def all_counted() -> list[dict[str, str]]:
        rows = sshare(cluster)
        return rows if sum(float(row["NormUsage"] or 0) > 0 for row in rows) == len(JOBS) else []

    return cluster.wait(all_counted, 200, "factors by the usage of all jobs")


def billed(cluster: Sandbox, weights: np.ndarray) -> dict[Assoc, float]:
    """Weights x seconds of each user in an account, by sacct."""
    columns = ["sacct", "-nPX", "--allusers", "--starttime=now-1hours", "-o", "Account,User,AllocTRES,ElapsedRaw"]
    found: dict[Assoc, float] = {}
    for line in cluster.run("root", columns).stdout.splitlines():
        account, user, allocated, seconds = line.split("|")
        tres = dict(each.split("=") for each in allocated.split(","))
        amounts = [float(tres["gres/gpu"]), float(tres["cpu"]), float(tres["mem"].removesuffix("M"))]
        assoc = Assoc(account, user, "")
        found[assoc] = found.get(assoc, 0.0) + float(weights @ amounts) * float(seconds)
    return found
