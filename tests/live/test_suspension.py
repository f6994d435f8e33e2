"""A job that is suspended runs for as long as Slurm says, and not since its start."""

import time
from collections.abc import Iterator

import pytest

from slurmplug.cluster.parse.table import duration
from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside

LIMIT = 600.0
SUSPENDED = 8.0
SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:1 --time=10\n#PLUG --urgency=5 --type=naps\nsleep {}\n"
OFF_BY = 2.5
"""seconds between what Slurm and the last cycle show"""


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        one.start()
        yield one


def by_slurm(cluster: Sandbox, job: int) -> float:
    return duration(cluster.job(job)["RunTime"])


def shown(daemon: DaemonProcess, job: int) -> tuple[float, float]:
    """The time that the job has run and the time left, as `slurmplug queue` has them."""
    elapsed, _, left = (
        daemon.command("queue", "--noheader", "-o", "%M|%L", "-j", str(job)).stdout.strip().partition("|")
    )
    return duration(elapsed), duration(left)


def test_the_time_for_which_a_job_is_suspended_is_no_run_time(cluster: Sandbox, daemon: DaemonProcess) -> None:
    job = cluster.sbatch(cluster.researchers[0], SCRIPT.format(25))
    cluster.wait_job(job, "RUNNING")
    time.sleep(2)
    cluster.run("root", ["scontrol", "suspend", str(job)])
    cluster.wait_job(job, "SUSPENDED")
    time.sleep(SUSPENDED)
    daemon.pass_cycles()
    before = shown(daemon, job)
    assert before[0] == pytest.approx(by_slurm(cluster, job), abs=OFF_BY)
    assert before[1] == pytest.approx(LIMIT - by_slurm(cluster, job), abs=OFF_BY)
    cluster.run("root", ["scontrol", "resume", str(job)])
    cluster.wait_job(job, "RUNNING")
    daemon.pass_cycles()
    after = shown(daemon, job)
    assert after[0] == pytest.approx(by_slurm(cluster, job), abs=OFF_BY)
    assert after[0] < SUSPENDED
    cluster.wait_job(job, "COMPLETED", 60)
    daemon.pass_cycles()
    [ended] = daemon.query("SELECT runtime, suspended, end - start AS whole FROM history WHERE job_id = ?", job)
    assert ended["runtime"] == by_slurm(cluster, job)
    assert ended["suspended"] == pytest.approx(ended["whole"] - by_slurm(cluster, job))
    assert ended["suspended"] >= SUSPENDED


def test_a_job_that_is_cancelled_while_it_is_suspended_ran_for_as_long_as_the_accounting_says(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    """It was suspended twice."""
    job = cluster.sbatch(cluster.researchers[0], SCRIPT.format(600))
    cluster.wait_job(job, "RUNNING")
    time.sleep(2)
    for verb, state in (("suspend", "SUSPENDED"), ("resume", "RUNNING"), ("suspend", "SUSPENDED")):
        cluster.run("root", ["scontrol", verb, str(job)])
        cluster.wait_job(job, state)
        time.sleep(3)
    daemon.pass_cycles()
    cluster.run("root", ["scancel", str(job)])
    cluster.wait_job(job, "CANCELLED")
    daemon.pass_cycles()
    shown = ["acct", "--noheader", "--parsable2", "-o", "elapsedraw", "-j", str(job)]
    ours = float(daemon.command(*shown).stdout)

    def by_sacct() -> float:
        options = ["-n", "-X", "-P", "-o", "ElapsedRaw", "-j", str(job)]
        return float(cluster.run("root", ["sacct", *options]).stdout or "nan")

    cluster.wait(
        lambda: by_sacct() == pytest.approx(ours, abs=OFF_BY), what=f"sacct to show {ours} s, not {by_sacct()}"
    )
