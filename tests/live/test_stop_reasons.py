"""What a program learns of a stop on a real Slurm, and what becomes of the jobs that depend on it."""

import sys
from collections.abc import Iterator

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import SLURMPLUG, DaemonProcess, daemon_beside

HEAD = """#!/bin/sh
#SBATCH --gres=gpu:4 --output=%j.out
#PLUG --target=accuracy>={target} --require-target=yes --stop=optstop --max-iterations=150
"""
CURVE = "min(0.5, 0.1 * i)"
"""It rises to 0.5 and no further."""
REPORTS = (
    HEAD
    + f"""exec {sys.executable} -c '
import sys, time
from slurmplug import report
for i in range(1, 151):
    time.sleep(0.2)
    stop = report(iteration=i, loss=1 / i, accuracy={CURVE})
    if stop:
        print("told", stop.reason, flush=True)
        break
sys.exit(stop.status)
'
"""
)
PRINTS = (
    HEAD
    + f"""exec {SLURMPLUG} run --pattern 'epoch (?P<iteration>\\d+) (?P<accuracy>\\S+)' -- {sys.executable} -c '
import time
for i in range(1, 151):
    time.sleep(0.2)
    print("epoch", i, {CURVE})
'
"""
)


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def output(cluster: Sandbox, job: int) -> list[str]:
    return (cluster.home(cluster.researchers[0]) / f"{job}.out").read_text().splitlines()


@pytest.mark.parametrize("script", [REPORTS, PRINTS], ids=["report", "slurmplug run"])
def test_a_job_stopped_before_the_target_that_it_requires_fails_and_its_dependent_does_not_run(
    script: str, cluster: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start()
    user = cluster.researchers[0]
    job = cluster.sbatch(user, script.format(target=0.92))
    dependent = cluster.sbatch(user, "#!/bin/sh\ntrue\n", f"--dependency=afterok:{job}")
    cluster.wait_job(job, "FAILED", 90)
    assert cluster.job(job)["ExitCode"] == "1:0"
    cluster.wait(lambda: cluster.job(dependent)["Reason"] == "DependencyNeverSatisfied", what="the dependent to stay")
    said = [line for line in output(cluster, job) if line.startswith("slurmplug:")]
    assert len(said) == 1
    assert said[0].startswith("slurmplug: stop requested after iteration ")
    assert ": accuracy 0.5 of iteration 5 is not likely to " in said[0]
    assert said[0].endswith("; exit with status 1, since the script requires its target")


def test_a_job_stopped_at_the_target_that_it_requires_is_completed_and_its_dependent_runs(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start()
    user = cluster.researchers[0]
    job = cluster.sbatch(user, REPORTS.format(target=0.4))
    dependent = cluster.sbatch(user, "#!/bin/sh\ntrue\n", f"--dependency=afterok:{job}")
    cluster.wait_job(dependent, "COMPLETED", 90)
    assert cluster.job(job)["JobState"] == "COMPLETED"


FOLDS = """#!/bin/sh
#SBATCH --gres=gpu:4 --output=%j.out
#PLUG --target=accuracy>=0.8 --stop=target --max-iterations=40 {directive}
exec {python} -c '
import sys, time
from slurmplug import report
for fold in range(3):
    for epoch in range(40):
        time.sleep(0.2)
        accuracy = 0.9 if epoch > 2 and fold in {meet} else 0.1
        stop = report(iteration=epoch, loss=1 + fold, accuracy=accuracy{trial})
        if stop:
            print("stopped in fold", fold, flush=True)
            sys.exit(stop.status)
print("all folds", flush=True)
'
"""


@pytest.mark.parametrize(
    ("meet", "trial", "directive"),
    [((0, 1, 2), ", trial=fold", ""), ((1, 2), "", ""), ((0, 1, 2), "", "--trials=all")],
    ids=["named", "by its count", "declared"],
)
def test_a_target_that_one_fold_meets_ends_no_job(
    meet: tuple[int, ...], trial: str, directive: str, cluster: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start()
    script = FOLDS.format(meet=meet, trial=trial, directive=directive, python=sys.executable)
    job = cluster.sbatch(cluster.researchers[0], script)
    cluster.wait_job(job, "COMPLETED", 90)
    daemon.pass_cycles()
    assert output(cluster, job) == ["all folds"]
    assert daemon.operation(job) == {}
    told = daemon.query("SELECT trial, count(*) AS n, min(quantities) AS q FROM progress GROUP BY trial")
    assert [(row["trial"], row["n"], f'"loss": {row["trial"] + 1}' in row["q"]) for row in told] == [
        (fold, 40, True) for fold in range(3)
    ]


def test_the_first_fold_that_meets_the_target_ends_a_job_that_says_so(cluster: Sandbox, daemon: DaemonProcess) -> None:
    daemon.start()
    script = FOLDS.format(meet=(1, 2), trial="", directive="--trials=first", python=sys.executable)
    job = cluster.sbatch(cluster.researchers[0], script)
    cluster.wait_job(job, "COMPLETED", 90)
    told, stopped = output(cluster, job)
    assert told.startswith("slurmplug: stop requested after iteration ")
    assert told.endswith("meets the target 0.8")
    assert stopped == "stopped in fold 1"
