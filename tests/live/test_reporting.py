"""Jobs of real users report into a real spool, and are asked there: read and asked by the daemon's account."""

import os
import pwd
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import joblib
import pytest

from slurmplug.sandbox import Sandbox
from slurmplug.spool.report_files import NewReports, ReportReader
from slurmplug.spool.report_lines import fold
from slurmplug.spool.requests import RequestKind, Requests
from slurmplug.spool.values import Points, RunId, SpoolFault
from tests.live.daemon_process import SLURMPLUG
from tests.live.live_site import fresh_site, start_again

TEMPLATES = Path(__file__).parents[2] / "sbatch_templates"
USER, OTHER = "games", "news"
NAMES = ("elastic", "scikit_learn", "unchanged", pytest.param("pytorch_ddp", marks=pytest.mark.rl))
HEAD = 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
"""whose name is a host's in a cluster, and not in a sandbox"""


@contextmanager
def account(name: str) -> Iterator[None]:
    """Act as an account that is not root, with its own group only."""
    entry = pwd.getpwnam(name)
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(entry.pw_gid)
    os.seteuid(entry.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def read(cluster: Sandbox, run: RunId) -> NewReports:
    with account(cluster.operator):
        return ReportReader(cluster.spool).read({run: pwd.getpwnam(USER).pw_uid})


def points(cluster: Sandbox, run: RunId) -> Points:
    found, doubts = fold(Points(), read(cluster, run).lines.get(run, b""), now=time.time())
    assert doubts == {}
    return found


def ask(cluster: Sandbox, run: RunId, kind: RequestKind) -> None:
    with account(cluster.operator):
        Requests(cluster.spool).issue(run, kind)


def submit(cluster: Sandbox, name: str) -> int:
    """Submit a ready script from its own folder, with this Python first in PATH."""
    for path in TEMPLATES.glob(f"{name}.*"):
        (cluster.home(USER) / path.name).write_text(path.read_text().replace(HEAD, "head=localhost"))
    search_path = f"{sysconfig.get_path('scripts')}:{cluster.env(USER)['PATH']}"
    done = cluster.run(
        USER, ["sbatch", "--parsable", f"{name}.sbatch"], env={"PATH": search_path, "OMP_NUM_THREADS": "1"}
    )
    return int(done.stdout)


def script(code: str, before: str = "") -> str:
    return f"#!/bin/sh\n{before}\n{sys.executable} - <<'EOF'\n{code}\nEOF\n"


LOGGED = """#!/bin/sh
#SBATCH --requeue --open-mode=append
#PLUG --max-iterations=900 --checkpoint=USR1:steps@30
srun {run} run --csv metrics.csv --pattern 'saved epoch (?P<checkpoint>[0-9]+)' -- {python} -u -c '
import os, signal, time
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
saved = int(open("saved").read()) if os.path.exists("saved") else 0
print("training from epoch", saved + 1)
with open("metrics.csv", "a") as log:
    if not saved:
        print("epoch,loss", file=log, flush=True)
    for epoch in range(saved + 1, 901):
        time.sleep(0.2)
        print(f"{{epoch}},{{1 / epoch}}", file=log, flush=True)
        if asked:
            asked.clear()
            with open("saved", "w") as file:
                file.write(str(epoch))
            print("saved epoch", epoch)
'
"""
"""A program that knows nothing of slurmplug: it logs in a CSV file, and saves between epochs after a signal."""


@pytest.mark.parametrize("name", NAMES)
def test_a_ready_script_runs_as_it_is_and_the_daemon_reads_its_progress(name: str, cluster: Sandbox) -> None:
    run = RunId(submit(cluster, name), 0)
    cluster.wait(lambda: len(points(cluster, run)) >= 3, 120, "three iterations")
    ask(cluster, run, "stop")
    cluster.wait_job(run.job_id, "COMPLETED", 60)
    reported = points(cluster, run)
    assert reported.iterations.tolist() == list(range(len(reported)))
    assert set(reported.quantities) in ({"loss", "accuracy"}, {"loss", "r2"})
    assert reported.quantities["loss"][-1] < reported.quantities["loss"][0]


def test_the_elastic_script_saves_when_asked_and_goes_on_after_a_requeue(cluster: Sandbox) -> None:
    first = RunId(submit(cluster, "elastic"), 0)
    second = RunId(first.job_id, 1)
    cluster.wait(lambda: len(points(cluster, first)) >= 3, 60, "three iterations")
    ask(cluster, first, "checkpoint")
    cluster.wait(lambda: points(cluster, first).checkpoint >= 0, 30, "a checkpoint")
    seen = len(points(cluster, first))  # that may be one of its own accord, with the one asked for still to come
    cluster.wait(lambda: len(points(cluster, first)) >= seen + 2, 30, "two iterations more")
    assert cluster.job(first.job_id)["JobState"] == "RUNNING"
    cluster.run(cluster.operator, ["scontrol", "requeue", str(first.job_id)])
    cluster.wait_job(first.job_id, "PENDING", 60)
    _, saved = joblib.load(cluster.home(USER) / f"checkpoint-{first.job_id}.joblib")
    assert saved >= points(cluster, first).checkpoint  # one that it was killed right after may not be reported
    start_again(cluster, first.job_id, cluster.operator)
    cluster.wait(lambda: len(points(cluster, second)) >= 1, 60, "the second run's first iteration")
    ask(cluster, second, "stop")
    cluster.wait_job(first.job_id, "COMPLETED", 60)
    assert points(cluster, second).iterations[0] == saved + 1


def test_a_user_who_takes_another_jobs_file_name_blocks_nothing(cluster: Sandbox) -> None:
    code = "from slurmplug import report\nreport(iteration=1, loss=0.5)"
    run = RunId(cluster.sbatch(USER, script(code, before="umask 077"), "--hold"), 0)
    name = cluster.spool / "reports" / f"{run.job_id}.0.jsonl"
    with account(OTHER):
        name.write_text('{"iteration": 1, "loss": 0}\n')
        name.chmod(0o666)
    cluster.run(USER, ["scontrol", "release", str(run.job_id)])
    cluster.wait_job(run.job_id, "COMPLETED")
    new = read(cluster, run)
    assert new.faults == (SpoolFault(run.job_id, "owner", f"uid {pwd.getpwnam(OTHER).pw_uid}", 1),)
    assert b'"loss":0.5' in new.lines[run]


def test_users_can_neither_list_nor_read_nor_remove_reports_nor_make_requests(cluster: Sandbox) -> None:
    code = "from slurmplug import report\nreport(iteration=1, loss=0.5)"
    run = RunId(cluster.sbatch(USER, script(code)), 0)
    cluster.wait_job(run.job_id, "COMPLETED")
    [name] = (cluster.spool / "reports").glob(f"{run.job_id}.0*.jsonl")
    assert name.name != f"{run.job_id}.0.jsonl"
    with account(OTHER):
        for attempt in (
            lambda: os.listdir(cluster.spool / "reports"),
            name.read_bytes,
            name.unlink,
            lambda: Requests(cluster.spool).issue(run, "stop"),
        ):
            with pytest.raises(PermissionError):
                attempt()


def test_elements_of_an_array_and_steps_report_as_their_own_job(cluster: Sandbox) -> None:
    code = "import os\nfrom slurmplug import report\nreport(iteration=1, loss=os.environ['SLURM_ARRAY_TASK_ID'])"
    first = cluster.sbatch(
        USER, script(code).replace(sys.executable, f"srun -n2 {sys.executable}"), "--array=3,4", "-n2"
    )

    def ended() -> list[str]:
        listed = cluster.run("root", ["squeue", "-h", "-r", "-o", "%i", "-j", str(first)], check=False)
        return [] if listed.stdout.strip() else ["ended"]

    cluster.wait(ended, 60, "the array to end")
    rows = [points(cluster, RunId(job, 0)) for job in (first, first + 1)]
    assert sorted(each.quantities["loss"].tolist() for each in rows) == [[3], [4]]


def test_a_program_that_logs_in_a_csv_file_is_moved_by_its_own_checkpoints(cluster: Sandbox, tmp_path: Path) -> None:
    with fresh_site(cluster, tmp_path) as site:
        user = cluster.researchers[0]
        folder = cluster.home(user) / cluster.run(user, ["mktemp", "-d", "logged-XXXXXX"]).stdout.strip()
        job = site.trains(LOGGED.format(run=SLURMPLUG, python=sys.executable), f"--chdir={folder}")
        node = cluster.job(job)["NodeList"]
        site.wants(job, kind="migrate")
        assert site.until_over(job) == "done"
        assert cluster.job(job)["NodeList"] != node
        saved = int((folder / "saved").read_text())
        [output] = folder.glob("slurm-*.out")
        assert f"training from epoch {saved + 1}\n" in output.read_text()
        cluster.run(user, ["scancel", str(job)])
