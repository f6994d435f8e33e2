"""Which job is which on a real Slurm: what keeps its submit time, and what a controller that lost its state begins."""

import shutil
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slurmplug.sandbox import ClusterSpec, Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside, training

STOPS = "[stop]\ngrace = 1\ncancel = true\n[guardrails]\nfirst_seen = 0\nminimum_run = 0\n"
TARGET = "#PLUG --target=accuracy>=0.5 --stop=target"


@pytest.fixture
def cluster(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    """A cluster of this module's own, as its controller loses its state; ids begin at 1 again."""
    return special_cluster(ClusterSpec(settings={"FirstJobId": "1"}))


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def lose_state(cluster: Sandbox) -> None:
    """All jobs end, slurmctld does, StateSaveLocation is emptied, and slurmctld begins anew, with the first job id."""
    for user in cluster.researchers:
        cluster.run("root", ["scancel", f"--user={user}"])
    cluster.wait(lambda: not cluster.run("root", ["squeue", "-h"]).stdout, what="the processes of all jobs to end")
    cluster.stop("slurmctld")
    for path in (cluster.folder / "state").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.start("slurmctld")
    cluster.wait(lambda: set(cluster.run("root", ["sinfo", "-h", "-o", "%T"]).stdout.split()) == {"idle"}, what="nodes")


def rows_of(daemon: DaemonProcess, job: int) -> list[dict[str, Any]]:
    return daemon.query("SELECT * FROM jobs WHERE job_id = ? ORDER BY first_submit", job)


def test_after_a_loss_of_state_a_job_of_the_same_id_and_user_inherits_nothing(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    """Without directives it is left alone whatever it reports; with others it has its own."""
    user = cluster.researchers[0]
    lose_state(cluster)
    old = [cluster.sbatch(user, training(TARGET, obey=False, gpus=1, seconds=0.5)) for _ in range(2)]
    daemon.start(STOPS.replace("grace = 1", "grace = 600"))
    cluster.wait(lambda: all(rows_of(daemon, job) for job in old), what="both jobs in the ledger")
    daemon.signal(signal.SIGTERM)
    lose_state(cluster)
    plain = cluster.sbatch(user, training(obey=False, gpus=1))
    other = cluster.sbatch(user, training("#PLUG --target=accuracy>=0.9 --stop=target", gpus=1, iterations=4000))
    assert [plain, other] == old
    cluster.wait_job(plain, "RUNNING")
    daemon.start(STOPS)
    cluster.wait_job(other, "COMPLETED", 60)
    daemon.pass_cycles(4)
    assert cluster.job(plain)["JobState"] == "RUNNING"
    first, second = rows_of(daemon, plain)
    assert (first["state"], first["listed"]) == ("UNKNOWN", 0)
    assert '"target": null' in second["directives"]
    operations = daemon.query("SELECT job_id, first_submit FROM operations JOIN jobs ON jobs.id = job")
    assert plain not in {row["job_id"] for row in operations if row["first_submit"] == second["first_submit"]}
    assert '"value": 0.9' in rows_of(daemon, other)[1]["directives"]
