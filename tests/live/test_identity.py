"""Which job is which on a real Slurm: what keeps its submit time, and what a controller that lost its state begins."""

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurmplug.cluster.port import Command
from slurmplug.sandbox import ClusterSpec, Sandbox
from slurmplug.spool.report_files import CLOCK_DIFFERENCE
from tests.live.daemon_process import DaemonProcess, daemon_beside, training
from tests.live.live_site import LiveSite
from tests.live.operated import command, look, operated

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
    """All jobs end, slurmctld does, StateSaveLocation is emptied, and slurmctld begins anew, with the first job id.

    The next jobs start so long after these that no difference of clocks explains it.
    """
    for user in cluster.researchers:
        cluster.run("root", ["scancel", f"--user={user}"])
    cluster.wait(lambda: not cluster.run("root", ["squeue", "-h"]).stdout, what="the processes of all jobs to end")
    time.sleep(CLOCK_DIFFERENCE)
    cluster.stop("slurmctld")
    for path in (cluster.folder / "state").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    cluster.start("slurmctld")
    cluster.wait(lambda: set(cluster.run("root", ["sinfo", "-h", "-o", "%T"]).stdout.split()) == {"idle"}, what="nodes")


def rows_of(daemon: DaemonProcess, job: int) -> list[dict[str, Any]]:
    return daemon.query("SELECT * FROM jobs WHERE job_id = ? ORDER BY first_submit", job)


def stop_daemon_and_lose_state(daemon: DaemonProcess) -> None:
    daemon.signal(signal.SIGTERM)
    lose_state(daemon.cluster)


def test_after_a_loss_of_state_a_job_of_the_same_id_and_user_inherits_nothing(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    """Without directives it is left alone whatever it reports; with others it has its own."""
    user = cluster.researchers[0]
    lose_state(cluster)
    old = [cluster.sbatch(user, training(TARGET, obey=False, gpus=1)) for _ in range(2)]
    daemon.start(f'{STOPS}[mode]\ndefault = "observe"')
    cluster.wait(lambda: len(daemon.query("SELECT DISTINCT job FROM decisions")) == 2, what="both to be at the target")
    stop_daemon_and_lose_state(daemon)
    plain = cluster.sbatch(user, training(obey=False, gpus=1))
    other = cluster.sbatch(user, training(TARGET.replace("0.5", "0.9"), gpus=1))
    assert [plain, other] == old
    cluster.wait_job(plain, "RUNNING")
    daemon.start(STOPS)
    cluster.wait_job(other, "COMPLETED", 60)
    daemon.pass_cycles(4)
    assert cluster.job(plain)["JobState"] == "RUNNING"
    first, second = rows_of(daemon, plain)
    assert (first["state"], first["listed"]) == ("UNKNOWN", 0)
    assert json.loads(second["directives"])["target"] is None
    assert json.loads(rows_of(daemon, other)[1]["directives"])["target"]["value"] == 0.9
    operations = daemon.query("SELECT jobs.id, result FROM operations JOIN jobs ON jobs.id = job")
    assert operations == [{"id": rows_of(daemon, other)[1]["id"], "result": "stopped"}]
    reported = "SELECT max(iteration) AS last, min(time) AS first FROM progress WHERE job = ?"
    assert daemon.query(reported, second["id"])[0]["first"] > first["submit"] + 1


def test_a_request_to_an_earlier_job_of_the_same_id_stops_nothing(cluster: Sandbox, daemon: DaemonProcess) -> None:
    """The daemon is down when the new job begins, and ends with its first cycle what nobody waits for."""
    user = cluster.researchers[0]
    lose_state(cluster)
    old = cluster.sbatch(user, training(TARGET, obey=False, gpus=1))
    daemon.start(STOPS.replace("grace = 1", "grace = 600"))
    request = cluster.spool / "requests" / f"{old}.0.stop"
    cluster.wait(request.exists, what="the request")
    stop_daemon_and_lose_state(daemon)
    assert request.exists()
    assert cluster.sbatch(user, training(gpus=1)) == old
    cluster.wait_job(old, "RUNNING")
    cluster.wait(lambda: len(list((cluster.spool / "reports").glob(f"{old}.0*.jsonl"))) == 2, what="its report")
    daemon.start(STOPS)
    daemon.pass_cycles(3)
    assert cluster.job(old)["JobState"] == "RUNNING"
    assert not request.exists()


def test_a_fresh_ledger_takes_nothing_of_an_earlier_job_for_a_jobs_own(cluster: Sandbox, daemon: DaemonProcess) -> None:
    """The target is met in what was reported before, by a job with the same id, directives and user."""
    user = cluster.researchers[0]
    lose_state(cluster)
    old = cluster.sbatch(user, training(TARGET, gpus=1))
    cluster.wait_job(old, "RUNNING")
    reports = cluster.spool / "reports"
    cluster.wait(
        lambda: sum(each.read_text().count("accuracy") for each in reports.glob(f"{old}.0*.jsonl")) > 4, what="reports"
    )
    lose_state(cluster)
    time.sleep(5)
    slow = training(TARGET, gpus=1, seconds=600)
    assert cluster.sbatch(user, slow) == old
    cluster.wait_job(old, "RUNNING")
    daemon.start(STOPS)
    daemon.pass_cycles(4)
    assert cluster.job(old)["JobState"] == "RUNNING"
    assert daemon.query("SELECT * FROM progress") == []
    assert {row["rule"] for row in daemon.query("SELECT rule FROM faults WHERE job_id = ?", old)} == {"another job"}


COLUMNS = "State:|,SubmitTime:|,RestartCnt:|"


def facts(cluster: Sandbox, job: int) -> tuple[str, int, int]:
    """A job's state, submit time and restart count."""
    shown = cluster.run("root", ["squeue", "-h", "-t", "all", "-j", str(job), "-O", COLUMNS],
                        env={"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}).stdout  # fmt: skip
    state, submit, restarts = shown.strip().split("|")[:3]
    return state, int(submit), int(restarts)


class Watched:
    """A job and what is said of it: each look is one of the scheduler's cycles, and finds the same job."""

    def __init__(self, site: LiveSite, script: str, *options: str) -> None:
        self.site, self.cluster = site, site.cluster
        self.job = self.cluster.sbatch(self.cluster.researchers[0], script, *options)
        self.site.scheduler.run()
        time.sleep(1.1)  # submit times are whole seconds

    def root(self, *argv: str) -> tuple[str, int, int]:
        """The facts once the command's requeue, if it is one, is over."""
        self.cluster.run("root", argv)
        self.looks()
        self.site.until(lambda: facts(self.cluster, self.job)[0] not in ("COMPLETING", "CONFIGURING"))
        self.looks()
        time.sleep(1.1)
        return facts(self.cluster, self.job)

    def looks(self) -> None:
        """One cycle; the ledger has one job, with its directives, and believes that it is that."""
        self.site.scheduler.run()
        [row] = self.site.query("SELECT * FROM jobs WHERE job_id = ?", self.job)
        assert (row["in_doubt"], json.loads(row["directives"])["urgency"]) == (0, 7)
        assert row["first_submit"] <= facts(self.cluster, self.job)[1]


URGENT = "#!/bin/sh\n#PLUG --urgency=7\n{}\n"


@pytest.fixture
def site(cluster: Sandbox, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    site = LiveSite(cluster, Path(tempfile.mkdtemp(dir=folder)))
    yield site
    site.ledger.close()


def test_only_a_requeue_moves_the_submit_time_and_each_is_the_same_job(cluster: Sandbox, site: LiveSite) -> None:
    job = Watched(site, URGENT.format("sleep 600"), "--requeue", "--hold")
    name, (_, submit, restarts) = str(job.job), facts(cluster, job.job)
    for update in ("StartTime=now+1hour", "Name=other", "TimeLimit=10", "Comment=x", "Nice=5", "StartTime=now"):
        assert job.root("scontrol", "update", f"JobId={name}", update)[1:] == (submit, 0)
    assert job.root("scontrol", "release", name)[1:] == (submit, 0)
    cluster.wait_job(job.job, "RUNNING", 60)
    for argv in (("suspend", name), ("resume", name), ("update", f"JobId={name}", "Name=third")):
        assert job.root("scontrol", *argv)[1:] == (submit, 0)
    for verb in ("requeue", "requeuehold"):
        state, later, restarts = job.root("scontrol", verb, name)
        assert (state, restarts, later > submit) == ("PENDING", restarts, True)
        submit = later
        assert job.root("scontrol", "release", name)[1:] == (submit, restarts)
        cluster.wait(lambda: cluster.run("root", ["scontrol", "update", f"JobId={name}", "StartTime=now"]))
        cluster.wait_job(job.job, "RUNNING", 60)
        job.looks()
    node = cluster.job(job.job)["NodeList"]
    _, later, restarts = job.root("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=tried")
    assert (restarts, later > submit) == (3, True)
    cluster.run("root", ["scontrol", "update", f"NodeName={node}", "State=RESUME"], check=False)
    cluster.run("root", ["scancel", name])
    cluster.wait_job(job.job, "CANCELLED")
    job.site.scheduler.run()
    assert job.root("scontrol", "requeue", name)[2] == 4
    cluster.restart("slurmctld")
    job.looks()


def test_an_element_that_is_requeued_is_the_same_job(cluster: Sandbox, site: LiveSite) -> None:
    user = cluster.researchers[0]
    array = cluster.sbatch(user, URGENT.format("sleep 600"), "--array=0-2%1", "--requeue")
    cluster.wait_job(f"{array}_0", "RUNNING")
    site.scheduler.run()
    time.sleep(1.1)
    cluster.run("root", ["scontrol", "requeue", f"{array}_0"])
    site.until(lambda: site.query("SELECT 1 FROM jobs WHERE restarts = 1 AND state = 'PENDING'"))
    rows = site.query("SELECT * FROM jobs WHERE array_id = ?", array)
    assert len(rows) == len({row["job_id"] for row in rows})
    told = {(row["in_doubt"], json.loads(row["directives"])["urgency"], len(row["script_digest"])) for row in rows}
    assert told == {(0, 7, 64)}


def test_a_job_that_was_requeued_before_it_was_seen_is_one_job_from_then_on(cluster: Sandbox, site: LiveSite) -> None:
    """Its first reading is while it completes: the restart count is raised, the submit time has not moved yet."""
    slow_end = "trap 'sleep 3; exit 0' TERM\nwhile :; do sleep 0.1; done"
    job = cluster.sbatch(cluster.researchers[0], URGENT.format(slow_end), "--requeue")
    cluster.wait_job(job, "RUNNING")
    time.sleep(2)
    cluster.run("root", ["scontrol", "requeue", str(job)])
    assert facts(cluster, job)[::2] == ("COMPLETING", 1)
    site.scheduler.run()
    site.until(lambda: facts(cluster, job)[0] == "PENDING")
    site.scheduler.run()
    [row] = site.query("SELECT * FROM jobs WHERE job_id = ?", job)
    assert (row["restarts"], row["state"], row["in_doubt"]) == (1, "PENDING", 0)
    assert row["submit"] > row["first_submit"]


CHANGES: Sequence[tuple[str, dict[str, str]]] = (
    ("requeue", {}),
    ("cancel", {}),
    ("signal", {"signal": "USR1", "to": "batch"}),
    ("ask", {"what": "stop", "restart": "0"}),
    ("hold", {}),
    ("release", {}),
    ("update", {"Gres": "gpu:2"}),
)


def test_nothing_is_done_to_a_job_that_is_not_the_one_that_was_read(cluster: Sandbox, folder: Path) -> None:
    """Neither to another one with its id, nor to the same one once it was requeued, nor while Slurm does not answer."""
    port, user = operated(cluster, Path(tempfile.mkdtemp(dir=folder)), timeout=10), cluster.researchers[0]
    commands: list[Command] = []

    def messages() -> set[tuple[str, str]]:
        commands[:] = [command(f"{job}-{verb}", verb, job, **fields) for verb, fields in CHANGES]
        return {(outcome.status, outcome.message.partition(":")[2].strip()) for outcome in port.apply(commands)}

    lose_state(cluster)
    job = cluster.sbatch(user, "#!/bin/sh\nsleep 600\n", "--requeue", "--gres=gpu:1")
    assert messages() == {("refused", "Slurm does not list the job")}  # as nothing was read yet
    cluster.wait_job(job, "RUNNING")
    look(port)
    lose_state(cluster)
    assert cluster.sbatch(user, "#!/bin/sh\nsleep 600\n", "--requeue", "--gres=gpu:1") == job
    cluster.wait_job(job, "RUNNING")
    meanwhile = {("refused", "it is another job now, or was requeued meanwhile")}
    assert messages() == meanwhile
    look(port)
    cluster.run("root", ["scontrol", "requeue", str(job)])
    assert messages() == meanwhile
    cluster.wait_job(job, "PENDING")
    assert messages() == meanwhile
    cluster.stop("slurmctld")
    outcomes = {(outcome.status, outcome.message.partition(",")[0]) for outcome in port.apply(commands)}
    assert outcomes == {("unknown", "not sent")}
    cluster.start("slurmctld")
    assert facts(cluster, job)[::2] == ("PENDING", 1)
    assert not list((cluster.spool / "requests").iterdir())
    factor = command("factor", "update", job, SiteFactor="7")
    assert [outcome.status for outcome in port.apply([factor])] == ["done"]
    look(port)
    assert [outcome.status for outcome in port.apply([factor, command("c", "cancel", job)])] == ["done", "done"]
    cluster.wait_job(job, "CANCELLED")
