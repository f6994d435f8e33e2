"""Time limits on a real Slurm: raised no further than the cluster's own limits, and a run that is ended before its."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.live_site import fresh_site, script, start_again

RANGE = "--gpus=1..4 --max-iterations=2000 --type=net"
SLEEP = "#!/bin/sh\n#SBATCH --hold --time=5\nsleep 600\n"


@pytest.fixture
def of_partition(cluster: Sandbox) -> Iterator[None]:
    """The partition's jobs may run for six minutes."""
    cluster.run("root", ["scontrol", "update", "PartitionName=gpu", "MaxTime=6"])
    yield
    cluster.run("root", ["scontrol", "update", "PartitionName=gpu", "MaxTime=UNLIMITED"])


@pytest.fixture
def of_qos(cluster: Sandbox) -> Iterator[None]:
    """The jobs of the QOS may run for six minutes."""
    cluster.run("root", ["sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxWall=6"])
    cluster.wait(lambda: _wall(cluster) == "6", 20)
    yield
    cluster.run("root", ["sacctmgr", "-i", "modify", "qos", "normal", "set", "MaxWall=-1"])
    cluster.wait(lambda: _wall(cluster) != "6", 20)


def _wall(cluster: Sandbox) -> str:
    """Of the QOS, in minutes as slurmctld knows it."""
    shown = cluster.run("root", ["scontrol", "show", "assoc_mgr", "qos=normal", "flags=qos"]).stdout
    return shown.partition("MaxWallPJ=")[2].split()[0]


@pytest.mark.parametrize("limited", ["of_partition", "of_qos"])
def test_a_limit_is_not_raised_beyond_those_of_the_cluster(
    cluster: Sandbox, tmp_path: Path, limited: str, request: pytest.FixtureRequest
) -> None:
    """Some 200 s of training are left on four GPUs, and on one by its forecast more than six minutes."""
    request.getfixturevalue(limited)
    with fresh_site(cluster, tmp_path, guardrails={"raise_time_limit": 100.0}) as site:
        text = script("bound", gpus=4, lines="#SBATCH --time=5").replace("--gpus=1..8", RANGE)
        job = site.trains(text)
        site.until(lambda: site.query("SELECT 1 FROM progress WHERE iteration > 20"))
        site.wants(job, kind="resize", gpus=1)
        assert (site.vetoes(job), site.operations(job)) == (["time limit"], [])
        assert cluster.job(job)["TimeLimit"] == "00:05:00"


def test_slurm_starts_a_job_that_an_operator_gave_more_time_than_its_qos_allows(cluster: Sandbox, of_qos: None) -> None:
    """So slurmplug has to know the limit itself."""
    job = cluster.sbatch(cluster.researchers[0], SLEEP)
    cluster.run("root", ["scontrol", "update", f"JobId={job}", "TimeLimit=60"])
    cluster.run("root", ["scontrol", "release", str(job)])
    assert cluster.wait_job(job, "RUNNING", 60)["TimeLimit"] == "01:00:00"


def test_a_run_that_would_not_end_in_time_is_ended_before_its_limit_and_goes_on_in_another(
    cluster: Sandbox, tmp_path: Path
) -> None:
    """Within 71 s of two minutes: its grace period, a cycle, and a second. The other one is nearly done by then."""
    with fresh_site(cluster, tmp_path, guardrails={"requeue_before_limit": 1.0}) as site:
        lines = "#SBATCH --time=2"
        ends = script("ends", grace=10, lines=lines).replace("#PLUG", "#PLUG --max-iterations=700")
        other = site.trains(ends, user=1)
        job = site.trains(script("goes", grace=10, lines=lines))
        began = cluster.job(job)["StartTime"]
        site.until(lambda: site.operations(job), 90)
        assert site.until_over(job) == "done"
        assert site.operations(other) == []
        [operation] = site.operations(job)
        assert (operation["kind"], operation["rule"]) == ("preempt", "time limit ahead")
        assert cluster.job(job)["JobState"] == "PENDING"
        start_again(cluster, job)
        cluster.wait_job(job, "RUNNING", 60)
        site.until(lambda: len(site.runs("goes")) == 2)
        first, second = site.runs("goes")
        assert int(first[3]) == 0 < int(second[3])
        assert cluster.job(job)["StartTime"] > began
        assert site.leftovers() == []
