"""What a cluster meets that runs for long: job ids that are given out again, a slurmdbd that is away, the end of
summer time, a federation that it becomes a member of."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slurmplug.intake import intake
from slurmplug.sandbox import ClusterSpec, Node, Sandbox, accounts
from tests.live import chosen
from tests.live.daemon_process import DaemonProcess, daemon_beside, site_factors, training
from tests.live.live_site import fresh_site

FIRST, LAST = 1000, 1011
"""the job ids that there are"""
SPEC = ClusterSpec(
    nodes=(Node(),), settings={"FirstJobId": str(FIRST), "MaxJobId": str(LAST), "MinJobAge": "5"},
)  # fmt: skip
SLEEP = "#!/bin/sh\n#SBATCH --gres=gpu:{}\n#PLUG --urgency={}\nsleep 600\n"


@pytest.fixture
def cluster(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    return special_cluster(SPEC)


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def require_ranked(cluster: Sandbox, pair: list[int]) -> None:
    """Wait until the later and more urgent one of two jobs that wait is ahead."""

    def ordered() -> bool:
        factors = site_factors(cluster)
        return factors.keys() >= {*pair} and factors[pair[0]] < factors[pair[1]]

    cluster.wait(ordered, 60, "the order")


def pair_of(cluster: Sandbox, *options: str) -> list[int]:
    """Two jobs that wait, of which the later one is the more urgent."""
    return waiting(cluster, (1, 9), *options)


def waiting(cluster: Sandbox, urgencies: Sequence[int], *options: str) -> list[int]:
    return [cluster.sbatch(cluster.researchers[0], SLEEP.format(4, urgency), *options) for urgency in urgencies]


def test_a_job_id_that_wraps_is_of_a_job_of_its_own(cluster: Sandbox, daemon: DaemonProcess) -> None:
    """Slurm gives an id out again once it has forgotten the job, after a minute at most."""
    user = cluster.researchers[0]
    daemon.start()
    stays = cluster.sbatch(user, SLEEP.format(1, 3))
    first = cluster.sbatch(user, SLEEP.format(4, 7), "--hold")
    daemon.pass_cycles()
    cluster.run("root", ["scancel", str(first)])
    again = 0

    def submitted() -> bool:
        nonlocal again
        answer = cluster.run(user, ["sbatch", "--parsable", "--hold"], input=SLEEP.format(1, 2), check=False)
        again = int(answer.stdout or 0)
        if again not in (0, first):
            cluster.run("root", ["scancel", str(again)])
        return again == first

    cluster.wait(submitted, 200, "the id to be given out again")
    daemon.pass_cycles()
    rows = daemon.query("SELECT state, directives FROM jobs WHERE job_id = ? ORDER BY first_submit", first)
    assert [row["state"] for row in rows] == ["CANCELLED", "PENDING"]
    assert [json.loads(row["directives"])["urgency"] for row in rows] == [7, 2]
    assert len(daemon.query("SELECT 1 FROM jobs WHERE job_id = ?", stays)) == 1
    assert not daemon.query("SELECT error FROM cycles WHERE error != ''")


def test_of_jobs_that_end_while_slurmdbd_is_away_for_long_it_is_not_known_how(
    cluster: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "ENDING_TIMEOUT", 10.0)
    with fresh_site(cluster, tmp_path) as site:
        job = site.trains(training(gpus=1))
        cluster.stop("slurmdbd")
        try:
            cluster.run("root", ["scancel", str(job)])
            listed = ["squeue", "-h", "--states=all", "-j", str(job)]
            cluster.wait(lambda: not cluster.run("root", listed, check=False).stdout, 120, "the job to be forgotten")
            state = "SELECT state FROM jobs WHERE job_id = ?"
            site.until(lambda: site.query(state, job)[0]["state"] == "UNKNOWN")
            site.trains(training(gpus=1), user=1)
            assert not site.query("SELECT 1 FROM cycles WHERE error != ''")
        finally:
            cluster.start("slurmdbd")


@contextmanager
def without_slurmdbd(cluster: Sandbox, how: str) -> Iterator[None]:
    """It has been killed, or hangs."""
    if how == "killed":
        cluster.kill("slurmdbd")
        yield
        cluster.start("slurmdbd")
        return
    pid = json.loads(cluster.layout.state.read_text())["processes"]["slurmdbd"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def recorded(cluster: Sandbox, job_ids: list[int]) -> bool:
    """Whether slurmdbd has them; earlier jobs had these ids too."""
    listed = cluster.run("root", ["sacct", "-nXP", "-D", "-o", "JobID,Submit", "-j", ",".join(map(str, job_ids))])
    return {f"{job}|{cluster.job(job)['SubmitTime']}" for job in job_ids} <= set(listed.stdout.split())


@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_without_slurmdbd_ranks_are_written_on_and_the_advice_names_it(
    cluster: Sandbox, daemon: DaemonProcess, how: str
) -> None:
    cluster.wait_job(cluster.sbatch(cluster.researchers[1], SLEEP.format(4, 1)), "RUNNING")
    pair = pair_of(cluster, "--hold")
    cluster.wait(lambda: recorded(cluster, pair), 60, "slurmdbd to record the jobs")
    daemon.start()
    with without_slurmdbd(cluster, how):
        cluster.run("root", ["scontrol", "release", ",".join(map(str, pair))])
        require_ranked(cluster, pair)
        began = time.monotonic()
        daemon.pass_cycles(10)
        assert time.monotonic() - began < 60
        found = daemon.command("doctor")
        assert found.returncode == 1
        assert "systemctl status slurmdbd" in found.stdout
        assert not daemon.query("SELECT error FROM cycles WHERE error != ''")
        assert not daemon.query("SELECT frozen FROM cycles WHERE frozen != ''")
    cluster.wait(lambda: daemon.command("doctor").returncode == 0, 60, "every check to pass")


def test_jobs_that_slurmdbd_has_not_recorded_are_ranked_as_soon_as_slurm_updates_them(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    """Before 24.11 Slurm updates no job that it is telling a hanging slurmdbd of."""
    cluster.wait_job(cluster.sbatch(cluster.researchers[1], SLEEP.format(4, 1)), "RUNNING")
    daemon.start("[guardrails]\nbreaker_failures = 2\n")
    assert daemon.command("pause").returncode == 0
    before = pair_of(cluster, "--hold")  # Slurm tells slurmdbd of new jobs every few seconds: the next two together
    cluster.wait(lambda: recorded(cluster, before), 60, "slurmdbd to record the jobs")
    with without_slurmdbd(cluster, "hangs"):
        younger = waiting(cluster, (1, 5, 9))  # SiteFactors of two at least turn their order round
        if chosen.release() < (24, 11):
            require_put_off(cluster, daemon, younger[0])
        else:
            assert daemon.command("resume").returncode == 0
            require_ranked(cluster, younger[:2])
            require_ranked(cluster, younger[1:])
            require_ranked(cluster, pair_of(cluster))
            assert not daemon.query("SELECT 1 FROM commands WHERE status = 'put off'")
    require_ranked(cluster, younger[:2])
    require_ranked(cluster, younger[1:])
    assert not daemon.query("SELECT frozen FROM cycles WHERE frozen != ''")


def require_put_off(cluster: Sandbox, daemon: DaemonProcess, job: int) -> None:
    """Jobs that come later are ranked; of those that are put off one is tried, for 5 s, from time to time.

    job: one that Slurm is just telling slurmdbd of.
    """
    noted = ["scontrol", "update", f"jobid={job}", "comment=noted"]
    cluster.wait(lambda: "DB index" in cluster.run("root", noted, check=False).stderr, 60, "a refused update")
    assert daemon.command("resume").returncode == 0
    tried = "SELECT cycle FROM commands WHERE status = 'put off' AND message LIKE '%DB index%'"
    not_tried = "SELECT cycle FROM commands WHERE status = 'put off' AND message LIKE 'not sent%'"
    cluster.wait(lambda: daemon.query(tried), 60, "the daemon to be put off")
    require_ranked(cluster, pair_of(cluster))
    cluster.wait(lambda: daemon.query(not_tried), 60, "one that is not tried")
    first = daemon.query(not_tried)[0]["cycle"]
    assert len(daemon.query(f"{tried} AND cycle = {first}")) == 1


AHEAD = 45
"""seconds until summer time ends"""


def summer_time_that_ends() -> tuple[str, float]:
    """A time zone whose summer time ends soon, as TZ has it (tzset(3)), and when."""
    end = datetime.now(UTC) + timedelta(seconds=AHEAD)
    local = end + timedelta(hours=1)
    day = int(local.replace(year=2001).strftime("%j"))  # J counts no 29 February
    return f"STD0DST,J1/0,J{day}/{local:%H:%M:%S}", end.timestamp()


def chosen_program(name: str) -> str:
    """Its path; /dev/null where that Slurm has none."""
    return shutil.which(name, path=os.pathsep.join([*chosen.PATH, os.environ["PATH"]])) or "/dev/null"


def slurm_in_zone(prefix: Path, zone: str) -> Path:
    """The chosen Slurm, with a controller in another time zone."""
    for name in accounts._OF_SLURM:
        program = prefix / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.symlink_to(chosen_program(program.name))  # a plugin is found by its program
    for client in (each for folder in chosen.PATH for each in Path(folder).iterdir()):
        link = prefix / client.parent.name / client.name
        if not link.exists():
            link.symlink_to(client)
    controller = prefix / "sbin" / "slurmctld"
    controller.unlink()
    controller.write_text(f"#!/bin/sh\nTZ='{zone}' exec {chosen_program('slurmctld')} \"$@\"\n")
    controller.chmod(0o755)
    return prefix


def test_the_end_of_summer_time_on_the_controller_changes_nothing(folder: Path) -> None:
    zone, end = summer_time_that_ends()
    prefix = slurm_in_zone(folder, zone)
    with Sandbox(ClusterSpec(nodes=(Node(),), slurm=prefix)) as cluster, daemon_beside(cluster) as daemon:
        daemon.environment = {"TZ": zone}
        daemon.start()
        user = cluster.researchers[0]
        seconds = int(end - time.time()) + 15
        runs = cluster.sbatch(user, f"#!/bin/sh\n#SBATCH --gres=gpu:4\n#PLUG --urgency=1\nsleep {seconds}\n")
        cluster.wait_job(runs, "RUNNING")
        before = pair_of(cluster)
        require_ranked(cluster, before)
        assert time.time() < end
        cluster.wait(lambda: time.time() > end + 3, 120, "summer time to end")
        after = pair_of(cluster)
        require_ranked(cluster, after)
        cluster.wait_job(runs, "COMPLETED", 60)
        daemon.pass_cycles()
        [row] = daemon.query("SELECT start, end FROM jobs WHERE job_id = ?", runs)
        assert seconds <= row["end"] - row["start"] < seconds + 15
        assert not daemon.query("SELECT error FROM cycles WHERE error != ''")
        assert not daemon.query("SELECT frozen FROM cycles WHERE frozen != ''")
        assert daemon.query("SELECT min(finished - started) AS least FROM cycles")[0]["least"] >= 0


def test_jobs_of_a_member_of_a_federation_are_ranked_and_stopped_by_their_large_ids(
    special_cluster: Callable[[ClusterSpec], Sandbox],
) -> None:
    """The cluster that a job was submitted to is in the high bits of its id."""
    cluster = special_cluster(ClusterSpec(nodes=(Node(),)))
    user = cluster.researchers[0]
    cluster.run("root", ["sacctmgr", "-i", "add", "federation", "fed", f"clusters={cluster.name}"])
    shown = ["scontrol", "show", "federation"]
    cluster.wait(lambda: "fed" in cluster.run("root", shown).stdout, what="the federation")
    with daemon_beside(cluster) as daemon:
        daemon.start()
        job = cluster.sbatch(user, training("#PLUG --target=accuracy>=0.9 --stop=target"))
        assert job > 1 << 26
        cluster.wait_job(job, "RUNNING")
        array = cluster.sbatch(user, SLEEP.format(4, 5), "--array=0-3")
        require_ranked(cluster, pair_of(cluster))
        cluster.wait_job(job, "COMPLETED", 60)
        cluster.wait(lambda: daemon.operation(job).get("result") == "stopped", what="the operation to end")
        assert job in {row["job_id"] for row in daemon.query("SELECT job_id FROM jobs WHERE ended = 1")}
        assert daemon.query("SELECT 1 FROM jobs WHERE array_id = ?", array)
        assert str(job) in daemon.command("acct", "--allusers").stdout
        assert not daemon.query("SELECT error FROM cycles WHERE error != ''")
