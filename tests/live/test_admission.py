"""Admission on a real Slurm: the submit plugin holds, the daemon decides, and a dead daemon holds nobody hostage."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurmplug.daemon.reset import reset_recorded
from slurmplug.sandbox import ClusterSpec, CommandFailed, Node, Sandbox
from slurmplug.spool.requests import write_waiting
from tests.live.live_site import LiveSite
from tests.live.test_submit_plugin import CHECK, site_script

ROOT = Path(__file__).parents[2]
JOB = "#!/bin/sh\n#SBATCH --gres=gpu:1 --output=/dev/null\n#PLUG --utility=50,0.5,12 --gpus=1..4\nsleep 600\n"


@pytest.fixture
def site(
    folder: Path, tmp_path: Path, special_cluster: Callable[[ClusterSpec], Sandbox]
) -> Iterator[LiveSite]:  # fmt: skip
    plugin = folder / "slurmplug.lua"
    if not plugin.exists():
        plugin.write_text(CHECK.read_text())
        script = site_script(folder, plugin)
        script.write_text(script.read_text().replace("slurmplug.check(", "slurmplug.hold("))
    one = LiveSite(special_cluster(ClusterSpec(nodes=(Node(),), job_submit=folder / "job_submit.lua")), tmp_path)
    yield one
    one.ledger.close()


def reason(site: LiveSite, job: int) -> str:
    return site.cluster.job(job)["Reason"]


def test_a_job_with_a_utility_is_held_let_go_as_decided_and_stays_held_when_its_user_holds_it(site: LiveSite) -> None:
    user = site.cluster.researchers[0]
    job, rejected = site.cluster.sbatch(user, JOB), site.cluster.sbatch(user, JOB)
    plain = site.cluster.sbatch(user, JOB.replace("--utility=50,0.5,12", "--urgency=5"), "--hold")
    assert reason(site, job) == "JobHeldUser"
    site.policy.wanted = {rejected: {"kind": "hold"}, plain: {"kind": "release"}}
    site.until(lambda: {reason(site, each) for each in (job, rejected)} == {"JobHeldAdmin"})
    assert site.cluster.run(user, ["scontrol", "release", str(job)], check=False).returncode != 0
    site.policy.wanted[job] = {"kind": "release", "gpus": 2}
    site.until(lambda: site.cluster.job(job)["JobState"] == "RUNNING")
    assert "gres/gpu=2" in site.cluster.job(job)["TRES"]
    site.cluster.run(user, ["scontrol", "requeuehold", str(job)])
    site.until(lambda: site.cluster.job(job)["JobState"] == "PENDING")
    for restarted in (False, True):
        if restarted:
            site.restart()
        for _ in range(3):
            site.scheduler.run()
        assert site.cluster.job(job)["Priority"] == "0"
    assert (reason(site, rejected), reason(site, plain)) == ("JobHeldAdmin", "JobHeldUser")
    assert {row["job_id"] for row in site.query("SELECT job_id FROM commands JOIN jobs ON jobs.id = job")} == {
        job,
        rejected,
    }


def test_who_sits_before_a_job_with_a_utility_is_not_held(site: LiveSite) -> None:
    asked = ["salloc", "--no-shell", "-n1", "--comment=plug: --utility=50,0.5,12"]
    result = site.cluster.run(site.cluster.researchers[0], asked).stderr  # it returns when the job runs
    assert "Granted job allocation" in result


def test_a_job_that_its_user_holds_is_not_told_from_one_that_waits_so_it_is_refused(site: LiveSite) -> None:
    with pytest.raises(CommandFailed, match="submit it without --hold"):
        site.cluster.sbatch(site.cluster.researchers[0], JOB, "--hold")


def test_without_the_daemon_the_timer_lets_go_who_waited_and_nobody_else(site: LiveSite) -> None:
    user = site.cluster.researchers[0]
    waits, let_go = site.cluster.sbatch(user, JOB), site.cluster.sbatch(user, JOB)
    site.until(lambda: site.scheduler.intake.waiting == {waits, let_go})  # type: ignore[attr-defined]
    write_waiting(site.cluster.spool, {waits, let_go})
    site.cluster.run(site.cluster.operator, ["scontrol", "release", str(let_go)])
    site.cluster.run(user, ["scontrol", "hold", str(let_go)])
    timer = (ROOT / "site_config" / "slurmplug-release").read_text()
    site.cluster.run(site.cluster.operator, ["sh", "-s", "3600"], input=timer)
    assert reason(site, waits) == "JobHeldAdmin"
    site.cluster.run(site.cluster.operator, ["sh", "-s", "0"], input=timer)
    site.cluster.wait_job(waits, "RUNNING", 60)
    assert reason(site, let_go) == "JobHeldUser"


def test_reset_lets_go_who_waits(site: LiveSite) -> None:
    job = site.cluster.sbatch(site.cluster.researchers[0], JOB)
    site.until(lambda: reason(site, job) == "JobHeldAdmin")
    assert list(reset_recorded(site.ledger, site.port).holds) == [job]
    site.cluster.wait_job(job, "RUNNING", 60)
