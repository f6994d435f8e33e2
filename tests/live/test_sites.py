"""What some sites have, and others do to a cluster that runs: jobs that are suspended for others, limits of a QOS on
all of its jobs, partitions that get another name, GPUs that become another type."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slurmplug.sandbox import ClusterSpec, Node, Partition, Sandbox
from tests.live import chosen
from tests.live.daemon_process import DaemonProcess, daemon_beside, training

SPEC = ClusterSpec(
    nodes=(Node(gpu_type="a100"), Node(gpu_type="a100")),
    partitions=(
        Partition("low", options={"PriorityTier": "1", "OverSubscribe": "FORCE:1"}),
        Partition("high", options={"PriorityTier": "10", "OverSubscribe": "FORCE:1"}),
    ),
    settings={
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "SUSPEND,GANG",
        "SchedulerTimeSlice": "30",
    },
)
TARGET = "#PLUG --target=accuracy>=0.9 --stop=target"
SLEEP = "#!/bin/sh\n#SBATCH --gres=gpu:{}\n#PLUG --urgency={}\nsleep 600\n"


@pytest.fixture
def cluster(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    return special_cluster(SPEC)


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def errors(daemon: DaemonProcess) -> list[dict[str, Any]]:
    """The cycles that failed, and what the log says besides INFO."""
    failed = daemon.query("SELECT error FROM cycles WHERE error != ''")
    return [*failed, *({"log": line} for line in daemon.log.read_text().splitlines() if "Traceback" in line)]


def test_a_job_that_gang_scheduling_suspends_is_shown_so_and_stopped_once_it_goes_on(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    user, other = cluster.researchers[:2]
    daemon.start("[stop]\ngrace = 5\n")
    cpus = "--nodes=2 --ntasks=2 --cpus-per-task=8 --mem=100".split()
    low = cluster.sbatch(user, training(TARGET, gpus=1, seconds=0.5), "--partition=low", *cpus)
    cluster.wait_job(low, "RUNNING")
    daemon.pass_cycles()
    high = cluster.sbatch(other, "#!/bin/sh\nsleep 15\n", "--partition=high", *cpus)
    cluster.wait_job(low, "SUSPENDED")
    daemon.pass_cycles(2)
    assert daemon.query("SELECT state FROM jobs WHERE job_id = ?", low) == [{"state": "SUSPENDED"}]
    assert not daemon.operation(low)
    cluster.wait_job(high, "COMPLETED", 40)
    cluster.wait_job(low, "COMPLETED", 60)
    daemon.pass_cycles()
    assert daemon.operation(low)["result"] == "stopped"
    assert not errors(daemon)


def test_a_qos_limit_on_all_jobs_holds_back_only_who_exceeds_it(cluster: Sandbox, daemon: DaemonProcess) -> None:
    """The first in the ranks waits for it; who is behind starts."""
    user, other = cluster.researchers[:2]
    cluster.run("root", ["sacctmgr", "-i", "add", "qos", "few", "set", "GrpTRES=gres/gpu=2"])
    cluster.run("root", ["sacctmgr", "-i", "modify", "user", user, "set", "qos+=few"])
    try:
        daemon.start()
        runs = cluster.sbatch(user, SLEEP.format(2, 1), "--qos=few")
        cluster.wait_job(runs, "RUNNING")
        first = cluster.sbatch(user, SLEEP.format(2, 10), "--qos=few")
        behind = cluster.sbatch(other, SLEEP.format(2, 1))
        cluster.wait_job(behind, "RUNNING")
        daemon.pass_cycles(3)
        assert cluster.job(first)["Reason"] == "QOSGrpGRES"
        assert not errors(daemon)
    finally:
        cluster.run("root", ["scancel", f"--user={user}"])
        cluster.run("root", ["sacctmgr", "-i", "modify", "user", user, "set", "qos-=few"])
        cluster.run("root", ["sacctmgr", "-i", "delete", "qos", "few"])


def test_a_partition_gets_another_name_while_jobs_wait_in_it(cluster: Sandbox, daemon: DaemonProcess) -> None:
    user = cluster.researchers[0]
    conf = cluster.layout.slurm_conf
    daemon.start()
    runs = cluster.sbatch(user, SLEEP.format(4, 1), "--nodes=2", "--partition=high")
    cluster.wait_job(runs, "RUNNING")
    waits = cluster.sbatch(user, SLEEP.format(4, 9), "--nodes=2", "--partition=high")
    daemon.pass_cycles()
    before = conf.read_text()
    try:
        conf.write_text(before.replace("PartitionName=high", "PartitionName=higher"))
        cluster.run("root", ["scontrol", "reconfigure"])
        for each in (runs, waits):
            cluster.wait_job(each, "NODE_FAIL")
        new = cluster.sbatch(user, SLEEP.format(4, 9), "--nodes=2", "--partition=higher")
        daemon.pass_cycles(3)
        rows = daemon.query("SELECT state, partition FROM jobs WHERE job_id IN (?, ?)", runs, waits)
        assert [tuple(row.values()) for row in rows] == [("NODE_FAIL", "high")] * 2
        assert daemon.query("SELECT partition FROM jobs WHERE job_id = ?", new) == [{"partition": "higher"}]
        assert not errors(daemon)
    finally:
        conf.write_text(before)
        cluster.run("root", ["scontrol", "reconfigure"], check=False)


def is_type(cluster: Sandbox, kind: str) -> bool:
    """Whether slurmctld has GPUs of that type alone, on nodes that are up."""
    shown = cluster.run("root", ["sinfo", "-h", "-N", "-o", "%T %G"]).stdout.split("\n")
    return all(f"gpu:{kind}:4" in line and line.startswith("idle") for line in shown if line)


def test_the_gpus_of_a_node_become_another_type(cluster: Sandbox, daemon: DaemonProcess) -> None:
    """The job there runs on; 25.11 requeues it, and it waits for a type that no node has. After another start without
    jobs, slurmctld has the new type."""
    user = cluster.researchers[0]
    conf, gres = cluster.layout.slurm_conf, cluster.layout.slurm_conf.with_name("gres.conf")
    daemon.start()
    runs = cluster.sbatch(user, SLEEP.format(2, 1), "--nodelist=n1")
    cluster.wait_job(runs, "RUNNING")
    typed = cluster.sbatch(user, SLEEP.format("a100:4", 1), "--nodes=2")
    daemon.pass_cycles()
    before = [path.read_text() for path in (conf, gres)]
    try:
        for path in (conf, gres):
            path.write_text(path.read_text().replace("a100", "h100"))
        cluster.run("root", ["scontrol", "reconfigure"])
        for name in ("n1", "n2"):
            cluster.restart(name)
        daemon.pass_cycles(4)
        states = daemon.query("SELECT state FROM jobs WHERE job_id IN (?, ?) ORDER BY job_id", runs, typed)
        ran = "RUNNING" if chosen.release() < (25, 11) else "PENDING"
        assert [row["state"] for row in states] == [ran, "PENDING"]
        assert not errors(daemon)
        cluster.run("root", ["scancel", str(runs), str(typed)])
        cluster.restart("slurmctld")
        cluster.wait(lambda: is_type(cluster, "h100"), 60, "the new type")
        new = cluster.sbatch(user, SLEEP.format("h100:2", 1))
        cluster.wait_job(new, "RUNNING")
        daemon.pass_cycles(2)
        assert daemon.query("SELECT gpu_type FROM jobs WHERE job_id = ?", new) == [{"gpu_type": "h100"}]
        assert "Traceback" not in daemon.log.read_text()
    finally:
        for path, text in zip((conf, gres), before, strict=True):
            path.write_text(text)
        cluster.run("root", ["scancel", f"--user={user}"])
        cluster.restart("slurmctld")
        for name in ("n1", "n2"):
            cluster.restart(name)
