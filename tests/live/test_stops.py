"""What running jobs are stopped for on a real Slurm, and what they are told where a stop would be wrong."""

import sys
from collections.abc import Iterator

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside

TRAIN = """#!/bin/sh
#SBATCH --gres=gpu:1 --output=%j.out --error=%j.err
#PLUG {lines} --max-iterations={iterations}
exec {python} -c '
import math, sys, time
from slurmplug import report
for i in range(1, {iterations} + 1):
    time.sleep(0.2)
    if report(iteration=i, {quantities}):
        sys.exit(0)
'
"""


def training(lines: str, quantities: str, iterations: int = 60) -> str:
    """A script; `quantities`: the arguments of its report() of iteration i, in Python."""
    return TRAIN.format(lines=lines, quantities=quantities, iterations=iterations, python=sys.executable)


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def test_jobs_are_stopped_for_what_they_asked_and_held_where_a_unit_is_in_doubt(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    user = cluster.researchers[0]
    percent = cluster.sbatch(
        user,
        training(
            "--target=accuracy>=0.92 --stop=target", "loss=1 / i, accuracy=80 + 6 * i / (i + 20)", iterations=2_000
        ),
    )
    missing = cluster.sbatch(user, training("--target=accuracy>=0.92 --stop=target", "loss=1 / i, accuracy=0.5"))
    meeting = cluster.sbatch(
        user, training("--target=accuracy>=0.92 --stop=optstop", "accuracy=1 - 1 / (1 + i)", 2_000)
    )
    lost = cluster.sbatch(
        user, training("--stop=optstop", "loss=1 / i if i < 9 else math.nan, accuracy=0.1", iterations=2_000)
    )
    dependent = cluster.sbatch(user, "#!/bin/sh\ntrue\n", f"--dependency=afterok:{percent}")
    daemon.start()
    for job in (meeting, lost, missing):
        cluster.wait_job(job, "COMPLETED", 60)
    daemon.pass_cycles(3)

    stops = {
        row["job_id"]: row["rule"]
        for row in daemon.query("SELECT job_id, rule FROM operations JOIN jobs ON jobs.id = job")
    }
    assert stops == {meeting: "target", lost: "diverged"}
    assert cluster.job(percent)["JobState"] == "RUNNING"
    assert cluster.job(dependent)["JobState"] == "PENDING"

    why = daemon.command("why", str(percent)).stdout
    assert "It is not stopped by any rule: its target is 0.92, it reports 8" in why
    assert "reports in percent" in daemon.command("queue").stdout
    error = cluster.home(user) / f"{percent}.err"
    cluster.wait(lambda: "slurmplug: It is not stopped by any rule" in error.read_text(), what="the notice")
    assert error.read_text().count("slurmplug:") == 1

    why = daemon.command("why", str(lost)).stdout
    assert "loss nan" in why
    assert "stop, by the rule diverged. Its training has diverged: its last" in why
    header, row = daemon.command("acct", "-P", "-j", str(lost), "-o", "stop,diverged,loss").stdout.splitlines()
    assert dict(zip(header.split("|"), row.split("|"), strict=True)) == {
        "Stop": "diverged", "Diverged": "True", "Loss": "nan",
    }  # fmt: skip
