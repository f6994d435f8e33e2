"""`slurmplug top` beside a real Slurm, as a user, by its keys."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside
from tests.live.login_node import LoginNode

ROOT = Path(__file__).parents[2]
TRAINING = """#!/bin/sh
#SBATCH --gres=gpu:1 --time=5
#PLUG --urgency=4
echo the output of $SLURM_JOB_ID
sleep 600
"""
DRIVER = """
import sys
from pathlib import Path
from slurmplug.commands.screen import app
from slurmplug.commands.screen.source import Source
from tests.screens import Driven, drive

app.QUEUE_SECONDS = 1.0

async def scenario(driven: Driven) -> None:
    for step in sys.argv[2:]:
        kind, _, text = step.partition(":")
        if kind == "type":
            await driven.type(text)
        elif kind == "press":
            await driven.press(*text.split())
        else:
            await driven.until(text)

drive(Source(Path(sys.argv[1]), None, unicode=True), scenario, (180, 40))
print("driven")
"""


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


class Login:
    """A login node: users ask the daemon's endpoint, and Slurm."""

    def __init__(self, cluster: Sandbox, daemon: DaemonProcess) -> None:
        self.cluster = cluster
        login = LoginNode(cluster)
        daemon.start(login.listen, policy="fifo")
        self.config = login.config

    def drives(self, user: str, *steps: str) -> None:
        """The user presses and types, and waits until the screen shows what it has to."""
        done = self.cluster.run(
            user,
            [sys.executable, "-c", DRIVER, str(self.config), *steps],
            env={"PYTHONPATH": str(ROOT)},
            check=False,
            timeout=600,
        )
        assert done.stdout.endswith("driven\n"), done.stdout + done.stderr


@pytest.fixture
def login(cluster: Sandbox, daemon: DaemonProcess) -> Login:
    return Login(cluster, daemon)


def test_a_user_sees_holds_releases_and_cancels_a_job(cluster: Sandbox, login: Login) -> None:
    ada = cluster.researchers[0]
    job = cluster.sbatch(ada, TRAINING, "--begin=now+1hour", "--job-name=later")
    login.drives(
        ada,
        "until:1 job 1 waiting",
        "press:h",
        f"until:Hold job {job} (later, of {ada})?",
        "press:y",
        f"until:hold {job}: done",
        "until:(JobHeldUser)",
        "press:r y",
        f"until:release {job}: done",
        "until:(BeginTime)",
        "press:c y",
        f"until:cancel {job}: done",
        "until:0 jobs",
    )
    assert cluster.job(job)["JobState"] == "CANCELLED"


def test_what_slurm_refuses_is_shown_and_not_done(cluster: Sandbox, login: Login) -> None:
    ada = cluster.researchers[0]
    job = cluster.sbatch(ada, TRAINING, "--begin=now+1hour")
    cluster.run("root", ["scontrol", "hold", str(job)])
    login.drives(ada, "until:(JobHeldAdmin)", "press:r y", "until:Access/permission denied", "press:enter")
    assert cluster.job(job)["Reason"] == "JobHeldAdmin"


def test_a_running_job_shows_its_output_and_is_cancelled(cluster: Sandbox, login: Login) -> None:
    ada = cluster.researchers[0]
    job = cluster.sbatch(ada, TRAINING, "--job-name=[b]hers[/b]", "--output=[red]%j.out")
    cluster.wait_job(job, "RUNNING")
    login.drives(
        ada,
        "until:[b]hers[/b]",
        "press:enter",
        "until:--urgency=4",
        f"until:[red]{job}.out: ",
        f"until:the output of {job}",
        "press:c y",
        f"until:cancel {job}: done",
        "press:escape",
        "until:0 jobs",
    )
    cluster.wait_job(job, "CANCELLED")


def test_the_elements_of_an_array_that_wait_are_changed_and_no_others(cluster: Sandbox, login: Login) -> None:
    ada = cluster.researchers[0]
    array = cluster.sbatch(ada, TRAINING, "--array=0-6%1")
    cluster.wait_job(f"{array}_0", "RUNNING")
    waiting = f"{array}_[1-6]"
    login.drives(
        ada,
        f"until:{waiting}",
        "press:slash",
        "type:state=pd",
        "press:enter",
        "until:1 of 2 jobs",
        "press:h y",
        f"until:hold {waiting}: done",
        "until:(JobHeldUser)",
        "press:c y",
        f"until:cancel {waiting}: done",
        "until:0 of 1 job",
    )
    assert cluster.job(f"{array}_0")["JobState"] == "RUNNING"


def test_another_users_jobs_are_not_there(cluster: Sandbox, login: Login) -> None:
    ada, bob = cluster.researchers[:2]
    job = cluster.sbatch(ada, TRAINING)
    cluster.wait_job(job, "RUNNING")
    login.drives(ada, f"until:{job}", "until:1 job")
    login.drives(bob, "until:0 jobs", "press:enter c y h r")
    assert cluster.job(job)["JobState"] == "RUNNING"
