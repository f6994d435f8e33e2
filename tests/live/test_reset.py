"""reset where the ledger is lost: what a real Slurm and the spool show is reset."""

from collections.abc import Iterator

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside, site_factors

SLEEP = "#!/bin/sh\nsleep 600\n"


@pytest.fixture
def lost(cluster: Sandbox) -> Iterator[DaemonProcess]:
    """Configured, without a daemon or a ledger."""
    with daemon_beside(cluster) as one:
        one.configure()
        yield one


def test_without_a_ledger_what_slurm_shows_is_reset_and_the_rest_is_reported(
    cluster: Sandbox, lost: DaemonProcess
) -> None:
    root, user = "root", cluster.researchers[0]
    running = cluster.sbatch(user, SLEEP, "--nodes=4", "--exclusive")
    cluster.wait_job(running, "RUNNING", 60)
    waits, below, array, later, admitted, held = (
        cluster.sbatch(user, SLEEP, *options) for options in ([], [], ["--array=0-2"], ["--begin=now+1hour"], [], [])
    )
    for job, factor in ((waits, 62), (below, -31), (array, 5), (later, 7)):
        cluster.run(root, ["scontrol", "update", f"JobId={job}", f"SiteFactor={factor}"])
    for job in (admitted, held):
        cluster.run(root, ["scontrol", "hold", str(job)])
    (cluster.spool / "waiting").write_text(f"{admitted}\n{running}\n")
    request = cluster.spool / "requests" / f"{running}.0.checkpoint"
    request.touch()
    reserve = ["Nodes=n4", "StartTime=now", "Duration=60", f"Users={user}", "Flags=IGNORE_JOBS,FLEX"]
    for name in (f"slurmplug-{waits}", "lesson"):
        cluster.run(root, ["scontrol", "create", "reservation", f"ReservationName={name}", *reserve])
        reserve[0] = "Nodes=n3"
    cluster.run(root, ["scontrol", "update", f"JobId={waits}", f"ReservationName=slurmplug-{waits}"])
    cluster.wait(
        lambda: site_factors(cluster) == {waits: 62, below: -31, array: 5}, 60, "sprio, which reports no other"
    )

    answer = lost.command("reset")

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"there is no ledger {lost.ledger_path}" in answer.stdout
    counts = "priorities 6, requests to jobs 1, shapes and constraints 0, reservations 1, holds for admission 1"
    assert counts in answer.stdout
    assert f"held by an operator, or by slurmplug: {held}\n" in answer.stdout
    assert "not known without a ledger: SiteFactors of running jobs" in answer.stdout
    cluster.run(root, ["scontrol", "update", f"JobId={later}", "StartTime=now"])
    expected = dict.fromkeys((waits, below, array, later, admitted), 0)
    cluster.wait(lambda: site_factors(cluster) == expected, 60, "every SiteFactor to be 0")
    assert not request.exists()
    listed = cluster.run(root, ["scontrol", "-o", "show", "reservation"]).stdout
    assert ("ReservationName=lesson" in listed, "slurmplug-" in listed) == (True, False)
    assert cluster.job(admitted)["Reason"] != "JobHeldAdmin"
    assert cluster.job(held)["Reason"] == "JobHeldAdmin"
    assert cluster.job(running)["JobState"] == "RUNNING"
    assert not lost.ledger_path.exists()
