"""Researchers change the directives of their own jobs through the real daemon, munged and Slurm."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from subprocess import CompletedProcess

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside, site_factors, training
from tests.live.login_node import LoginNode

WAITING = "#!/bin/sh\n#SBATCH --gres=gpu:4 --time=5\n#PLUG --urgency={}\nsleep 600\n"


class Site:
    """A daemon with an endpoint, and a login node's configuration."""

    def __init__(self, cluster: Sandbox, daemon: DaemonProcess) -> None:
        self.cluster, self.daemon = cluster, daemon
        self.login = LoginNode(cluster)

    def start(self) -> None:
        self.daemon.start(self.login.listen)

    def ask(self, user: str, *arguments: str) -> CompletedProcess[str]:
        return self.login.ask(user, *arguments)

    def rank(self, job: int) -> int | None:
        """None before the cycle that first gave it a priority is recorded, which is after Slurm has that priority."""
        jobs = json.loads(self.ask(self.cluster.operator, "queue", "--json", "-j", str(job)).stdout)["jobs"]
        return jobs[0]["position"] if jobs else None

    def put_first_in_slurm(self, job: int) -> None:
        """To put another before it then takes a SiteFactor above 0."""
        self.cluster.run("root", ["scontrol", "update", f"JobId={job}", "Nice=-50"])

    def until(self, true: Callable[[], bool], what: str) -> None:
        self.cluster.wait(true, 60, what)


@pytest.fixture
def site(cluster: Sandbox) -> Iterator[Site]:
    """All GPUs are in use, so that what else is submitted waits."""
    with daemon_beside(cluster) as daemon:
        cluster.wait_job(
            cluster.sbatch(cluster.researchers[2], "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\nsleep 600\n"), "RUNNING"
        )
        made = Site(cluster, daemon)
        made.start()
        yield made


def test_an_owner_changes_the_deadline_of_a_waiting_job_and_it_goes_first_also_after_a_restart(site: Site) -> None:
    """Both jobs are hers: of another user's job another run time is forecast, from what ran before this test."""
    ada = site.cluster.researchers[0]
    earlier = site.cluster.sbatch(ada, WAITING.format("6 --deadline=2h"))
    time.sleep(1.1)  # Slurm keeps whole seconds
    job = site.cluster.sbatch(ada, WAITING.format(5))
    site.until(lambda: len(site_factors(site.cluster)) == 2, "two jobs with a priority")
    site.until(lambda: (site.rank(earlier), site.rank(job)) == (1, 2), "the deadline to go first, once both are read")

    changed = site.ask(ada, "set", str(job), "--deadline=30m", "--urgency=10")

    assert changed.returncode == 0, changed.stderr
    assert changed.stdout.startswith(f"job {job}: --deadline=20")
    site.until(lambda: site.rank(job) == 1, "her job to go first")
    site.until(lambda: site_factors(site.cluster)[job] > site_factors(site.cluster)[earlier], "Slurm to have it, too")
    told = site.ask(ada, "why", str(job)).stdout
    assert f"by {ada}: --deadline=20" in told
    assert "--urgency=10 (5 before)." in told
    assert site.daemon.signal(signal.SIGTERM) == 0
    site.start()
    site.daemon.pass_cycles()
    assert site.rank(job) == 1
    assert f"by {ada}: --deadline=20" in site.ask(ada, "why", str(job)).stdout


def test_nobody_changes_anothers_job_and_mistakes_are_named(site: Site) -> None:
    ada, bob = site.cluster.researchers[:2]
    his = site.cluster.sbatch(bob, WAITING.format(6))
    site.until(lambda: his in site_factors(site.cluster), "his job")
    site.daemon.pass_cycles()
    hidden, never = site.ask(ada, "set", str(his), "--manage=off"), site.ask(ada, "set", "999999", "--manage=off")
    assert (hidden.returncode, never.returncode) == (1, 1)
    assert hidden.stderr.replace(str(his), "999999") == never.stderr
    assert "slurmplug knows no job" in hidden.stderr
    for mistake, message in {
        "--urgency=11": "Error: --urgency=11: expected a number from 0 to 10, for example --urgency=7",
        "--stop=target": "Error: --stop: needs --target",
        "--ml-job=other": "Error: --ml-job=other: cannot change after the submission: which jobs train one model",
        "--deadline=2020-01-01T00:00": "Error: --deadline=2020-01-01T00:00: lies in the past",
    }.items():
        assert message in site.ask(bob, "set", str(his), mistake).stderr
    alone = site.cluster.folder / "alone.toml"
    alone.write_text('[ledger]\npath = "/nowhere/ledger.db"\n')
    alone.chmod(0o644)
    assert "endpoint.url is not set" in site.ask(bob, "set", str(his), "--urgency=1", f"--config={alone}").stderr
    site.daemon.pass_cycles()
    assert "Changed" not in site.ask(bob, "why", str(his)).stdout
    by_operator = site.ask(site.cluster.operator, "set", str(his), "--urgency=1")
    assert by_operator.returncode == 0, by_operator.stderr
    site.until(lambda: "--urgency=1 (6 before)" in site.ask(bob, "why", str(his)).stdout, "the operator's change")


def test_a_job_that_its_owner_takes_out_is_given_back_to_slurm(site: Site) -> None:
    ada = site.cluster.researchers[0]
    other = site.cluster.sbatch(ada, WAITING.format(1))
    site.put_first_in_slurm(other)
    job = site.cluster.sbatch(ada, WAITING.format(9))
    site.until(lambda: site_factors(site.cluster).get(job, 0) > 0, "it to be put first")
    taken_out = site.ask(ada, "set", str(job), "--manage=off")
    assert taken_out.returncode == 0, taken_out.stderr
    site.until(lambda: site_factors(site.cluster)[job] == 0, "its SiteFactor to be given back")
    site.until(lambda: "Left to Slurm." in site.ask(ada, "why", str(job)).stdout, "its record to say so")
    site.daemon.pass_cycles()
    assert site_factors(site.cluster)[job] == 0
    assert site.ask(ada, "set", str(job), "--manage=").returncode == 0
    site.until(lambda: site_factors(site.cluster)[other] < -50, "the order of before")


def test_a_training_that_runs_gets_a_target_and_is_stopped_when_it_meets_it(site: Site) -> None:
    ada = site.cluster.researchers[0]
    site.cluster.run("root", ["scancel", "-u", site.cluster.researchers[2]])
    job = site.cluster.sbatch(ada, training("#PLUG --urgency=5", gpus=1))
    site.cluster.wait_job(job, "RUNNING", 60)
    site.until(lambda: "Iteration" in site.ask(ada, "why", str(job)).stdout, "its first report")
    assert site.ask(ada, "set", str(job), "--target=accuracy>=0.5", "--stop=target").returncode == 0
    site.cluster.wait_job(job, "COMPLETED", 90)
    site.until(lambda: "by the rule target" in site.ask(ada, "why", str(job)).stdout, "why it was stopped")
    ended = f"job {job} has ended (COMPLETED): its directives count no more"
    site.until(lambda: ended in site.ask(ada, "set", str(job), "--stop=iterations").stderr, "its end to be recorded")


def test_an_array_changes_as_a_whole_and_its_elements_inherit_it_and_a_heterogeneous_job_changes_in_all_components(
    site: Site,
) -> None:
    ada, busy = site.cluster.researchers[0], site.cluster.researchers[2]
    array = site.cluster.sbatch(ada, WAITING.format(9), "--array=0-2")
    het = site.cluster.sbatch(
        ada, "#!/bin/sh\n#SBATCH --gres=gpu:1\n#SBATCH hetjob\n#SBATCH --gres=gpu:2\n#PLUG --urgency=3\nsleep 600\n"
    )
    other = site.cluster.sbatch(ada, WAITING.format(1), "--array=0-2")
    site.put_first_in_slurm(other)
    site.until(lambda: site_factors(site.cluster).get(array, 0) > 0, "the array to be put first")
    assert site.ask(ada, "set", str(array), "--manage=off").stdout.startswith(f"job {array}_[0-2]: --manage=off")
    assert site.ask(ada, "set", f"{het}+1", "--urgency=8").stdout.startswith(f"jobs {het}+0, {het}+1: --urgency=8")
    alone = site.ask(ada, "set", f"{array}_1", "--urgency=8").stderr
    assert f"{array}_1 has not started: pending elements of an array are one job, {array}" in alone
    site.until(lambda: site_factors(site.cluster)[array] == 0, "the array's SiteFactor to be given back")
    site.until(lambda: "--urgency=8 (3 before)" in site.ask(ada, "why", str(het)).stdout, "the job's urgency to change")
    site.cluster.run("root", ["scancel", str(other)])
    site.cluster.run("root", ["scancel", "-u", busy])
    site.until(lambda: "RUNNING" in site.ask(ada, "why", f"{array}_0").stdout, "an element to run")
    assert "--manage=off (none before)" in site.ask(ada, "why", f"{array}_0").stdout
