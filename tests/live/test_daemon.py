"""The daemon on a real Slurm: what it ranks, what it leaves alone, how it stops and is stopped."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import Selection
from slurmplug.reports import job_view
from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside, site_factors, training

FILL = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\nsleep 600\n"
WAITING = "#!/bin/sh\n#SBATCH --gres=gpu:4\n{}\nsleep 600\n"


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


@pytest.fixture
def full(cluster: Sandbox) -> Sandbox:
    """Every GPU is taken, by a job that carries no directive."""
    cluster.wait_job(cluster.sbatch(cluster.researchers[2], FILL), "RUNNING")
    return cluster


def test_pending_jobs_get_site_factors_in_the_decided_order(full: Sandbox, daemon: DaemonProcess) -> None:
    urgencies = {full.sbatch(full.researchers[0], WAITING.format(f"#PLUG --urgency={u}")): u for u in (2, 9, 5, 7)}
    daemon.start()
    daemon.pass_cycles()
    factors = site_factors(full)
    assert sorted(urgencies, key=factors.__getitem__) == sorted(urgencies, key=urgencies.__getitem__)
    assert len({factors[job] for job in urgencies}) == 4
    audited = daemon.command("audit")
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert audited.stdout.endswith("Every cycle was decided again, with the same plan to the last bit.\n")


IN_NAMESPACE = """
set -e
mount --make-rprivate /
{}
exec "$@"
"""
FULL = "mount -t tmpfs -o size=8k none {folder}/full"
READ_ONLY = """
for one in /tmp /var/tmp; do mount --bind $one $one; mount -o remount,bind,ro $one; done
for one in {folder} {sandbox}; do mount --bind $one $one; mount -o remount,bind,rw $one; done
"""


@pytest.mark.parametrize("mounts", [FULL, READ_ONLY], ids=["full", "read-only"])
def test_directives_are_read_where_no_temporary_file_can_be_written(
    full: Sandbox, daemon: DaemonProcess, mounts: str
) -> None:
    """The directives come after more text than fits, so a script that is cut short has none."""
    folder = daemon.config.parent
    (folder / "full").mkdir(mode=0o777)
    job = full.sbatch(full.researchers[0], WAITING.format("#" * 20_000 + "\n#PLUG --urgency=9"))
    shell = IN_NAMESPACE.format(mounts.format(folder=folder, sandbox=full.folder))
    daemon.wrapper = ["unshare", "--mount", "sh", "-c", shell, "sh"]
    daemon.environment = {"TMPDIR": str(folder / "full")}
    daemon.start()
    daemon.pass_cycles()
    [row] = daemon.query("SELECT directives FROM jobs WHERE job_id = ?", job)
    assert json.loads(row["directives"])["urgency"] == 9
    assert daemon.query("SELECT * FROM cycles WHERE error != ''") == []


def test_a_settled_queue_is_written_once(full: Sandbox, daemon: DaemonProcess) -> None:
    for urgency in (2, 9, 5):
        full.sbatch(full.researchers[0], WAITING.format(f"#PLUG --urgency={urgency}"))
    daemon.start()
    daemon.pass_cycles(4)
    assert daemon.query("SELECT count(*) AS n FROM commands")[0]["n"] <= 3


def test_a_burst_of_submissions_that_are_cancelled_freezes_no_cycle(full: Sandbox, daemon: DaemonProcess) -> None:
    """Slurm lists how they ended: none of them is missing."""
    user = full.researchers[0]
    daemon.start()
    burst = [full.sbatch(user, WAITING.format("#PLUG --urgency=1")) for _ in range(25)]
    daemon.pass_cycles(2)
    full.run("root", ["scancel", *map(str, burst)])
    urgencies = {full.sbatch(user, WAITING.format(f"#PLUG --urgency={u}")): u for u in (2, 9, 5)}
    daemon.pass_cycles(4)
    assert daemon.query("SELECT id, frozen FROM cycles WHERE frozen != ''") == []
    by_urgency = sorted(urgencies, key=urgencies.__getitem__)
    # Slurm may put off updates of jobs until slurmdbd has recorded the burst
    full.wait(lambda: sorted(urgencies, key=site_factors(full).__getitem__) == by_urgency, 60, "the order of urgency")


def test_what_is_not_ours_is_never_touched(full: Sandbox, daemon: DaemonProcess) -> None:
    user, other = full.researchers[:2]
    directive = WAITING.format("#PLUG --urgency=9")
    held_by_user = full.sbatch(user, directive, "--hold")
    held_by_admin = full.sbatch(user, directive)
    full.run(full.operator, ["scontrol", "hold", str(held_by_admin)])
    unmanaged = full.sbatch(user, WAITING.format("# no directive"))
    off = full.sbatch(user, WAITING.format("#PLUG --urgency=9\n#PLUG --manage=off"))
    excluded_user = full.sbatch(other, directive)
    excluded_name = full.sbatch(user, directive, "--job-name=benchmark-7")
    ours = {full.sbatch(user, directive), full.sbatch(user, directive, "--time=5")}  # the shorter goes first
    interactive = subprocess.Popen(
        ["setpriv", f"--reuid={user}", "--clear-groups", "--regid=nogroup",
         "srun", "--gres=gpu:4", "--comment=plug: urgency=9", "sleep", "600"],
        env=full.env(user), cwd=full.home(user), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        full.wait(lambda: len(site_factors(full)) == 7, what="the interactive job to be pending")
        daemon.start(f'[guardrails]\nexclude_users = ["{other}"]\nexclude_names = ["benchmark-*"]')
        daemon.pass_cycles(3)
        factors = site_factors(full)
        touched = {row["job_id"] for row in daemon.query("SELECT job_id FROM commands JOIN jobs ON jobs.id = job")}
    finally:
        interactive.terminate()
        interactive.wait(20)
    assert any(factors[job] for job in ours)
    assert not any(factor for job, factor in factors.items() if job not in ours)
    assert touched
    assert touched <= ours
    with closing(Ledger(daemon.ledger_path, readonly=True)) as ledger:
        live = job_view.jobs(ledger, Selection(live=True))
    spared = {job.key.job_id: job.ranking.protected_by for job in live if job.ranking}
    assert spared[held_by_user] == spared[held_by_admin] == "held"
    assert spared[unmanaged] == spared[off] == "unmanaged"
    assert spared[excluded_user] == spared[excluded_name] == "excluded"
    assert "interactive" in spared.values()
    assert full.job(held_by_user)["Reason"] == "JobHeldUser"
    assert full.job(held_by_admin)["Reason"] == "JobHeldAdmin"


def test_observing_writes_nothing_and_records_what_it_would_have_done(cluster: Sandbox, daemon: DaemonProcess) -> None:
    job = cluster.sbatch(cluster.researchers[0], training("#PLUG --target=accuracy>=0.8 --stop=target"))
    for _ in range(4):
        cluster.sbatch(cluster.researchers[0], WAITING.format("#PLUG --urgency=9"))
    daemon.start('[mode]\ndefault = "observe"')
    cluster.wait(lambda: daemon.query("SELECT * FROM decisions"), what="a decision")
    daemon.pass_cycles()
    decision = daemon.query("SELECT decisions.*, job_id FROM decisions JOIN jobs ON jobs.id = job")[0]
    assert (decision["job_id"], decision["verdict"], decision["veto"]) == (job, "vetoed", "mode")
    assert daemon.query("SELECT * FROM commands") == []
    assert set(site_factors(cluster).values()) == {0}
    assert cluster.job(job)["JobState"] == "RUNNING"


def test_a_job_at_its_target_ends_completed_and_its_dependent_runs(cluster: Sandbox, daemon: DaemonProcess) -> None:
    user = cluster.researchers[0]
    job = cluster.sbatch(user, training("#PLUG --target=accuracy>=0.9 --stop=target --max-iterations=400"))
    dependent = cluster.sbatch(user, "#!/bin/sh\ntrue\n", f"--dependency=afterok:{job}")
    daemon.start()
    cluster.wait_job(dependent, "COMPLETED", 40)
    assert cluster.job(job)["JobState"] == "COMPLETED"
    cluster.wait(lambda: daemon.operation(job)["step"] == "ended", what="the operation to end")
    operation = daemon.operation(job)
    assert (operation["rule"], operation["result"]) == ("target", "stopped")
    assert daemon.query("SELECT stop FROM stops")[0]["stop"] == "target"
    # the operation's end is recorded before the request is withdrawn, as every effect is
    cluster.wait(lambda: not list((cluster.spool / "requests").iterdir()), what="the request to be withdrawn")
    since = cluster.job(job)["StartTime"]  # jobs of earlier tests are still listed
    suggested = daemon.command("suggest", "-a", "-S", since, "--json")
    assert json.loads(suggested.stdout)["groups"] == 1, suggested.stderr


def test_an_array_that_waits_for_its_throttle_beside_idle_gpus_is_suggested_a_higher_one(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start()
    script = "#!/bin/sh\n#SBATCH --gres=gpu:4 --job-name=throttled --array=0-3%1\nsleep 8\n"
    array = cluster.sbatch(cluster.researchers[0], script)
    cluster.wait(lambda: cluster.job(f"{array}_3")["JobState"] == "COMPLETED", 120, what="the last element to end")
    daemon.pass_cycles(2)
    since = min(cluster.job(f"{array}_{task}")["StartTime"] for task in range(4))
    answer = json.loads(daemon.command("suggest", "-a", "-S", since, "--json").stdout)
    [found] = [each for each in answer["suggestions"] if each["what"] == "array throttle"]
    assert (found["kind"], found["gpus"], found["now"], found["better"]) == ("throttled", 4, 1, 4)
    assert found["because"]["more"] == pytest.approx(3.0, abs=0.5)  # four nodes of four GPUs
    assert 10.0 < found["because"]["waited"] < 60.0
    assert 16.0 < found["because"]["sooner"] < 60.0  # four times eight seconds, or once
    assert 0.0 < found["gpu_hours"] <= 3 * 4 * 15.0 / 3_600.0


def test_a_downgrade_that_was_allowed_stops_jobs_only_under_overload(cluster: Sandbox, daemon: DaemonProcess) -> None:
    user = cluster.researchers[0]
    lines = "#PLUG --target=accuracy>=0.8 --allow-downgrade=target --max-iterations=400"
    job = cluster.sbatch(user, training(lines))
    daemon.start()
    cluster.wait(lambda: daemon.query("SELECT * FROM progress WHERE iteration > 12"), what="the target to be passed")
    daemon.pass_cycles(2)
    assert cluster.job(job)["JobState"] == "RUNNING"
    for _ in range(4):
        cluster.sbatch(user, WAITING.format(""))
    cluster.wait_job(job, "COMPLETED", 40)
    assert '"overload": "yes"' in daemon.operation(job)["facts"]


def test_a_job_that_does_not_look_is_signalled_as_it_declared(cluster: Sandbox, daemon: DaemonProcess) -> None:
    script = (
        """#!/bin/bash
#SBATCH --gres=gpu:4
#PLUG --target=accuracy>=0.8 --stop=target --checkpoint=USR1:batch@2s
trap 'exit 0' USR1
"""
        + training(obey=False).split("\n", 2)[2].replace("exec ", "").rstrip()
        + " &\nwait\n"
    )
    job = cluster.sbatch(cluster.researchers[0], script)
    daemon.start()
    cluster.wait_job(job, "COMPLETED", 40)
    steps = daemon.query("SELECT step FROM steps ORDER BY at")
    assert [row["step"] for row in steps][:2] == ["ask", "signal"]


def test_only_after_its_grace_is_a_deaf_job_cancelled(cluster: Sandbox, daemon: DaemonProcess) -> None:
    job = cluster.sbatch(cluster.researchers[0], training("#PLUG --target=accuracy>=0.8 --stop=target", obey=False))
    daemon.start("[stop]\ngrace = 4\ncancel = true")
    cluster.wait_job(job, "CANCELLED", 40)
    at = {row["step"]: row["at"] for row in daemon.query("SELECT step, at FROM steps")}
    assert at["cancel"] - at["ask"] >= 4
    cluster.wait(lambda: daemon.operation(job)["result"] == "cancelled", what="the operation to end")


def test_unless_the_site_cancels_a_deaf_job_runs_on_and_is_not_asked_again(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    job = cluster.sbatch(cluster.researchers[0], training("#PLUG --target=accuracy>=0.8 --stop=target", obey=False))
    daemon.start("[stop]\ngrace = 2")
    cluster.wait(lambda: daemon.operation(job).get("step") == "ended", what="the operation to end")
    assert daemon.operation(job)["outcome"] == "ignored"
    assert cluster.job(job)["JobState"] == "RUNNING"
    assert not list((cluster.spool / "requests").iterdir())
    daemon.pass_cycles(3)
    assert daemon.query("SELECT count(*) AS n FROM operations")[0]["n"] == 1
    why = daemon.command("why", str(job)).stdout
    assert "finished: ignored: the job did not stop within its grace period" in why
    assert "Not done: it ran on after it was requested to stop, so it is not asked again." in why


def test_pausing_takes_requests_back_and_resuming_goes_on(cluster: Sandbox, daemon: DaemonProcess) -> None:
    job = cluster.sbatch(cluster.researchers[0], training("#PLUG --target=accuracy>=0.8 --stop=target", obey=False))
    daemon.start()
    cluster.wait(lambda: daemon.operation(job), what="the operation")
    assert daemon.command("pause", "maintenance").returncode == 0
    cluster.wait(lambda: daemon.operation(job)["result"] == "withdrawn", what="the request to be withdrawn")
    assert not list((cluster.spool / "requests").iterdir())
    assert daemon.command("resume").returncode == 0
    cluster.wait(lambda: list((cluster.spool / "requests").iterdir()), what="a new request")


def test_reset_gives_every_site_factor_back(full: Sandbox, daemon: DaemonProcess) -> None:
    jobs = [full.sbatch(full.researchers[0], WAITING.format(f"#PLUG --urgency={u}")) for u in (2, 9, 5)]
    daemon.start()
    daemon.pass_cycles()
    assert any(site_factors(full).values())
    answer = daemon.command("reset")
    assert answer.returncode == 0, answer.stderr
    daemon.pass_cycles()
    assert set(site_factors(full).values()) == {0}
    assert set(site_factors(full)) == set(jobs)


def test_one_job_is_given_back_for_good(full: Sandbox, daemon: DaemonProcess) -> None:
    first, second, _ = (full.sbatch(full.researchers[0], WAITING.format(f"#PLUG --urgency={u}")) for u in (2, 5, 9))
    daemon.start()
    daemon.pass_cycles()
    answer = daemon.command("reset", "--job", str(first))
    assert answer.returncode == 0, answer.stderr
    daemon.pass_cycles(3)
    factors = site_factors(full)
    assert factors[first] == 0
    assert factors[second] != 0


def test_sighup_reads_the_configuration_again_and_a_wrong_one_changes_nothing(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    daemon.start('[mode]\ndefault = "observe"')
    assert daemon.process is not None
    daemon.config.write_text("interval = no")
    daemon.process.send_signal(signal.SIGHUP)
    cluster.wait(lambda: "stays" in daemon.log.read_text(), what="the refusal")
    daemon.configure('[mode]\ndefault = "act"')
    daemon.process.send_signal(signal.SIGHUP)
    cluster.wait(
        lambda: '"act"' in daemon.query("SELECT modes FROM cycles ORDER BY id DESC LIMIT 1")[0]["modes"],
        what="act mode",
    )


def test_sigterm_ends_the_daemon_after_its_cycle_and_leaves_jobs_running(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    job = cluster.sbatch(cluster.researchers[0], training("#PLUG --max-iterations=400"))
    cluster.wait_job(job, "RUNNING")
    daemon.start()
    assert daemon.signal(signal.SIGTERM) == 0
    assert daemon.query("SELECT * FROM cycles WHERE finished IS NULL") == []
    assert cluster.job(job)["JobState"] == "RUNNING"


def test_a_spool_that_hangs_stops_neither_ranking_nor_sigterm(full: Sandbox, daemon: DaemonProcess) -> None:
    """Its process is stopped, which is as if it slept in the kernel."""
    daemon.start()
    assert daemon.process is not None
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children").read_text().split()
    spool = next(int(pid) for pid in children if b"processes" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(spool, signal.SIGSTOP)
    urgencies = {full.sbatch(full.researchers[0], WAITING.format(f"#PLUG --urgency={u}")): u for u in (2, 9, 5)}
    wanted = sorted(urgencies, key=urgencies.__getitem__)
    full.wait(lambda: sorted(urgencies, key=site_factors(full).__getitem__) == wanted, what="ranks without progress")
    assert "spool" in daemon.command("status").stdout
    assert daemon.signal(signal.SIGTERM) == 0
    assert "progress is not known" in daemon.log.read_text()


def test_a_second_daemon_is_refused(daemon: DaemonProcess) -> None:
    daemon.start()
    second = daemon.command("daemon", "--config", str(daemon.config))
    assert second.returncode == 1
    assert "another daemon" in second.stderr


def test_a_second_daemon_with_a_ledger_of_its_own_is_refused(cluster: Sandbox, daemon: DaemonProcess) -> None:
    daemon.start()
    with daemon_beside(cluster) as other:
        other.configure()
        second = other.command("daemon", "--config", str(other.config))
    assert second.returncode == 1
    assert "another daemon" in second.stderr


def test_a_killed_daemon_goes_on_with_what_it_knew(cluster: Sandbox, daemon: DaemonProcess) -> None:
    job = cluster.sbatch(cluster.researchers[0], training("#PLUG --max-iterations=400 --target=accuracy>=0.99"))
    daemon.start()
    cluster.wait(lambda: daemon.query("SELECT * FROM progress WHERE iteration > 5"), what="progress")
    daemon.signal(signal.SIGKILL)
    before = daemon.query("SELECT iteration, quantities FROM progress ORDER BY iteration")
    daemon.start()
    daemon.pass_cycles()
    after = daemon.query("SELECT iteration, quantities FROM progress ORDER BY iteration")
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert daemon.query("SELECT count(*) AS n FROM jobs WHERE job_id = ?", job)[0]["n"] == 1


def test_without_slurmctld_the_daemon_waits_and_does_nothing(cluster: Sandbox, daemon: DaemonProcess) -> None:
    job = cluster.sbatch(cluster.researchers[0], training("#PLUG --max-iterations=400"))
    cluster.wait_job(job, "RUNNING")
    daemon.start()
    cluster.stop("slurmctld")  # a killed one may forget jobs that it has not saved yet, and reuse their ids
    cluster.wait(lambda: daemon.query("SELECT * FROM cycles WHERE error != ''"), 60, what="a failed cycle")
    cluster.start("slurmctld")
    cluster.wait(
        lambda: daemon.query("SELECT error FROM cycles ORDER BY id DESC LIMIT 1")[0]["error"] == "", 60, what="recovery"
    )
    assert daemon.query("SELECT ended FROM jobs WHERE job_id = ?", job)[0]["ended"] == 0


def test_a_requeued_job_keeps_its_key_and_its_history(cluster: Sandbox, daemon: DaemonProcess) -> None:
    job = cluster.sbatch(cluster.researchers[0], training("#PLUG --max-iterations=400"), "--requeue")
    daemon.start()
    cluster.wait(lambda: daemon.query("SELECT * FROM progress WHERE iteration > 5"), what="progress")
    cluster.run(cluster.operator, ["scontrol", "requeue", str(job)])
    cluster.wait(
        lambda: daemon.query("SELECT * FROM jobs WHERE restarts = 1 AND state = 'PENDING'"), what="the requeue"
    )
    kept = daemon.query("SELECT * FROM jobs WHERE job_id = ?", job)
    assert len(kept) == 1
    assert kept[0]["attained_before"] > 0
