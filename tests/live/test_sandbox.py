"""The sandbox is a real Slurm: isolated, with true identities, and it leaves nothing behind."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from slurmplug.sandbox import (
    ClusterSpec,
    CommandFailed,
    Node,
    NotInstalled,
    Partition,
    Sandbox,
    SandboxError,
    StartFailed,
    accounts,
    reachable,
)

CLI = [sys.executable, "-c", "from slurmplug.commands.sandbox import sandbox; sandbox()"]
SLEEP = "#!/bin/sh\nsleep 300\n"


def running(pids: Iterable[int]) -> list[int]:
    """Those of the processes that have not ended; a zombie has."""
    found = []
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except FileNotFoundError:
            continue
        if "\nState:\tZ" not in status:
            found.append(pid)
    return found


def noted(folder: Path) -> list[int]:
    state = json.loads((folder / "sandbox.json").read_text())
    return [process["pid"] for process in state["processes"].values()]


def test_a_job_of_a_researcher_runs_on_its_gpus(cluster: Sandbox) -> None:
    researcher = cluster.researchers[0]
    job = cluster.sbatch(researcher, "#!/bin/sh\nid -un\necho $CUDA_VISIBLE_DEVICES\n", "--gres=gpu:2")
    cluster.wait_job(job, "COMPLETED")
    output = cluster.home(researcher) / f"slurm-{job}.out"
    assert output.read_text().split() == [researcher, "0,1"]


def test_a_step_runs_on_two_nodes(cluster: Sandbox) -> None:
    researcher = cluster.researchers[1]
    script = "#!/bin/sh\nsrun --label printenv SLURMD_NODENAME\n"
    job = cluster.sbatch(researcher, script, "--nodes=2", "--ntasks=2", "--gres=gpu:1")
    cluster.wait_job(job, "COMPLETED")
    lines = (cluster.home(researcher) / f"slurm-{job}.out").read_text().splitlines()
    assert sorted(lines) == ["0: n1", "1: n2"]


def test_the_operator_may_set_the_site_factor_but_not_the_admin_comment(cluster: Sandbox) -> None:
    job = cluster.sbatch(cluster.researchers[0], SLEEP, "--begin=now+1hour")
    before = int(cluster.job(job)["Priority"])
    cluster.run(cluster.operator, ["scontrol", "update", f"JobId={job}", "SiteFactor=5000"])
    assert int(cluster.job(job)["Priority"]) == before + 5000
    refused = cluster.run(cluster.operator, ["scontrol", "update", f"JobId={job}", "AdminComment=mine"], check=False)
    assert refused.returncode != 0
    assert "AdminComment" not in cluster.job(job)


def test_a_researcher_neither_sees_nor_alters_the_jobs_of_others(cluster: Sandbox) -> None:
    owner, other = cluster.researchers[:2]
    job = cluster.sbatch(owner, SLEEP, "--begin=now+1hour")
    shown = {user: cluster.run(user, ["squeue", "-h", "-o", "%A"]).stdout.split() for user in (owner, other)}
    assert shown == {owner: [str(job)], other: []}
    assert cluster.run(cluster.operator, ["squeue", "-h", "-o", "%A"]).stdout.split() == [str(job)]
    before = cluster.job(job)["Priority"]
    for user, argv in (
        (other, ["scontrol", "hold", str(job)]),
        (other, ["scancel", str(job)]),
        (owner, ["scontrol", "update", f"JobId={job}", "SiteFactor=5000"]),
    ):
        refused = cluster.run(user, argv, check=False)
        assert re.search(r"denied|not permitted|Invalid user id", refused.stderr), (argv, refused.stderr)
    after = cluster.job(job)
    assert (after["JobState"], after["Priority"]) == ("PENDING", before)


def test_nobody_but_the_operator_writes_requests_and_nobody_lists_reports(cluster: Sandbox) -> None:
    researcher, other = cluster.researchers[:2]
    report = cluster.spool / "reports" / "1.jsonl"
    cluster.run(researcher, ["touch", str(report)])
    assert report.group() == cluster.operator
    for user, argv in (
        (other, ["rm", "-f", str(report)]),
        (researcher, ["ls", str(report.parent)]),
        (researcher, ["touch", str(cluster.spool / "requests" / "1")]),
    ):
        with pytest.raises(CommandFailed, match=r"denied|not permitted"):
            cluster.run(user, argv)
    cluster.run(cluster.operator, ["touch", str(cluster.spool / "requests" / "1")])


def test_a_restarted_slurmctld_knows_its_jobs(cluster: Sandbox) -> None:
    runs = cluster.sbatch(cluster.researchers[0], SLEEP, "--gres=gpu:4")
    cluster.wait_job(runs, "RUNNING")
    waits = cluster.sbatch(cluster.researchers[1], SLEEP, "--nodes=4", "--gres=gpu:4", "--job-name=the-last-one")
    state = cluster.folder / "state" / "job_state"
    cluster.wait(lambda: b"the-last-one" in state.read_bytes(), what="slurmctld to save its state")
    cluster.kill("slurmctld")
    with pytest.raises(SandboxError, match="slurmctld is not running"):
        cluster.stop("slurmctld")
    cluster.start("slurmctld")
    assert cluster.job(runs)["JobState"] == "RUNNING"
    assert cluster.job(waits)["JobState"] == "PENDING"


def test_an_ended_job_is_accounted_to_its_user(cluster: Sandbox) -> None:
    researcher = cluster.researchers[1]
    job = cluster.sbatch(researcher, "#!/bin/sh\nexit 3\n", "--gres=gpu:1")
    cluster.wait_job(job, "FAILED")

    def accounted() -> list[str]:
        argv = ["sacct", "-X", "-n", "-P", "-j", str(job), "-o", "User,Account,State,ExitCode,AllocTRES"]
        found = cluster.run(researcher, argv).stdout.strip().split("|")
        return found if found[2:3] == ["FAILED"] else []

    user, account, _, exit_code, resources = cluster.wait(accounted)
    assert (user, account, exit_code) == (researcher, "language", "3:0")
    assert "gres/gpu=1" in resources.split(",")


def test_a_clean_queue_has_no_jobs_holds_reservations_or_drained_nodes(cluster: Sandbox) -> None:
    running_job = cluster.sbatch(cluster.researchers[0], SLEEP, "--gres=gpu:4")
    held = cluster.sbatch(cluster.researchers[1], SLEEP, "--hold")
    cluster.wait_job(running_job, "RUNNING")
    reserve = "create reservation ReservationName=r1 Nodes=n2 StartTime=now Duration=60 Users=root".split()
    cluster.run(cluster.operator, ["scontrol", *reserve])
    cluster.run("root", ["scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=test"])
    cluster.kill("n4")
    cluster.clear()
    assert {cluster.job(job)["JobState"] for job in (running_job, held)} == {"CANCELLED"}
    assert "No reservations" in cluster.run("root", ["scontrol", "show", "reservation"]).stdout
    assert cluster.run("root", ["sinfo", "-h", "-o", "%D %T"]).stdout.split() == ["4", "idle"]
    assert all(cluster.daemons.alive(name) for name in cluster.daemons.names)


def test_a_client_sees_none_of_the_callers_formats(cluster: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "nonsense")
    assert "JOBID" in cluster.run(cluster.operator, ["squeue"]).stdout


def test_gpu_types_partitions_features_and_submit_plugins_are_as_asked(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path
) -> None:
    lua = tmp_path / "job_submit.lua"
    lua.write_text(
        "function slurm_job_submit(job, partitions, uid)\n"
        "  if job.name == 'bad' then slurm.log_user('no such name, please') return slurm.ERROR end\n"
        "  return slurm.SUCCESS\n"
        "end\n"
        "function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end\n"
    )
    cluster = special_cluster(
        ClusterSpec(
            nodes=(Node(gpu_type="a100", features=("fast",)), Node(gpus=2, gpu_type="v100"), Node(gpus=0, cpus=2)),
            partitions=(Partition("train", ("n1", "n2"), {"MaxTime": "60"}), Partition("all")),
            scheduler=("bf_interval=7",),
            job_submit=lua,
            settings={"PriorityMaxAge": "1-0"},
        )
    )
    researcher = cluster.researchers[2]
    with pytest.raises(CommandFailed, match="no such name, please"):
        cluster.sbatch(researcher, SLEEP, "--job-name=bad")
    jobs = {
        node: cluster.sbatch(researcher, SLEEP, "--partition=all", *args)
        for node, args in {"n1": ["-C", "fast"], "n2": ["--gres=gpu:v100:2"], "n3": ["-w", "n3", "-c2"]}.items()
    }
    placed = {cluster.wait_job(job, "RUNNING")["NodeList"] for job in jobs.values()}
    assert placed == set(jobs)
    assert cluster.job(cluster.sbatch(researcher, SLEEP, "--time=5"))["Partition"] == "train"
    config = cluster.run("root", ["scontrol", "show", "config"]).stdout
    assert "bf_interval=7" in config
    assert "bf_interval=1" not in config
    assert "PriorityMaxAge          = 1-00:00:00" in config


def test_two_clusters_run_side_by_side(cluster: Sandbox) -> None:
    mine = cluster.sbatch(cluster.researchers[0], SLEEP)
    with Sandbox(ClusterSpec(nodes=(Node(gpus=1),))) as other:
        assert other.name != cluster.name
        assert other.run("root", ["squeue", "-h"]).stdout == ""
        theirs = other.sbatch(other.researchers[0], "#!/bin/sh\necho $SLURM_CLUSTER_NAME\n", "--gres=gpu:1")
        other.wait_job(theirs, "COMPLETED")
        output = other.home(other.researchers[0]) / f"slurm-{theirs}.out"
        assert output.read_text().split() == [other.name]
    assert cluster.wait_job(mine, "RUNNING")["JobState"] == "RUNNING"


def test_down_from_another_process_ends_every_daemon_and_every_job(tmp_path: Path) -> None:
    wished = tmp_path / "sandbox"  # below a folder that only root can enter
    shown = subprocess.run([*CLI, "up", str(wished), "--nodes=1"], check=True, capture_output=True, text=True).stdout
    sandbox = Sandbox.attach(wished)
    folder = sandbox.folder
    assert wished.is_symlink()
    assert str(folder) in shown
    # One process hides from its parent and its environment, as a job may.
    script = "#!/bin/sh\nenv -i setsid sleep 300 &\necho $! $$ >pids\nwait\n"
    job = sandbox.sbatch(sandbox.researchers[0], script)
    pids = sandbox.home(sandbox.researchers[0]) / "pids"
    sandbox.wait(lambda: pids.exists() and pids.read_text().endswith("\n"), what=f"job {job} to write its processes")
    everything = [*map(int, pids.read_text().split()), *noted(folder)]
    assert running(everything) == everything
    subprocess.run([*CLI, "down", str(wished)], check=True)
    assert running(everything) == []
    assert not folder.exists()
    assert not wished.is_symlink()


def test_a_failed_start_leaves_logs_and_no_process(tmp_path: Path) -> None:
    sandbox = Sandbox(ClusterSpec(settings={"SelectType": "select/nonsense"}), tmp_path / "sandbox")
    with pytest.raises(StartFailed, match="slurmctld ended while it started") as caught:
        sandbox.up()
    assert str(sandbox.logs) in str(caught.value)
    assert "select/nonsense" in (sandbox.logs / "slurmctld.log").read_text()
    assert noted(sandbox.folder)
    assert running(noted(sandbox.folder)) == []
    sandbox.down()
    assert not sandbox.folder.exists()


def test_an_interrupted_start_leaves_no_process(tmp_path: Path) -> None:
    wished = tmp_path / "sandbox"
    start = subprocess.Popen([*CLI, "up", str(wished)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    limit = time.monotonic() + 30
    while not (wished / "db" / "socket").exists():
        assert time.monotonic() < limit
        assert start.poll() is None
        time.sleep(0.01)
    start.send_signal(signal.SIGINT)
    start.communicate(timeout=30)
    assert start.returncode != 0
    assert len(noted(wished)) >= 2
    assert running(noted(wished)) == []
    Sandbox.attach(wished).down()


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SandboxError, match="in use"):
        Sandbox(folder=tmp_path).up()
    with pytest.raises(SandboxError, match="no sandbox in"):
        Sandbox.attach(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_what_only_root_can_enter_is_not_reachable_for_others(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "python").write_text("")
    assert reachable("root", private / "python")
    assert not reachable(Sandbox.operator, private / "python")
    assert reachable(Sandbox.operator, Path("/usr/bin/env"))


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "SYSTEM_PATH", "/nonexistent")
    with pytest.raises(NotInstalled, match=r"apt-get install .*slurmctld.*mariadb-server munge"):
        Sandbox().up()
