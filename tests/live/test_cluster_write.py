"""What is written to a real Slurm, as an Operator and nothing more."""

import signal
import threading
import time
from pathlib import Path

import pytest

from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.sandbox import Sandbox
from tests.live.operated import calls, command, look, operated, read

SLEEP = "#!/bin/sh\nsleep 600\n"
FILL = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\nsleep 600\n"
CATCH = (
    "#!/bin/sh\ntrap 'touch caught-$SLURM_JOB_ID; exit 0' USR1\ntouch ready-$SLURM_JOB_ID\n"
    "while :; do sleep 0.1; done\n"
)
CATCH_IN_STEP = (
    "#!/bin/sh\ntrap '' USR1\n"
    'srun sh -c \'trap "touch caught-$SLURM_JOB_ID; exit 0" USR1; touch ready-$SLURM_JOB_ID; '
    "while :; do sleep 0.1; done'\n"
)


@pytest.fixture
def full(cluster: Sandbox) -> Sandbox:
    """Every GPU is taken."""
    cluster.wait_job(cluster.sbatch(cluster.researchers[2], FILL), "RUNNING")
    return cluster


def site_factors(cluster: Sandbox) -> dict[int, int]:
    """Of the pending jobs, by job id."""
    lines = cluster.run("root", ["sprio", "-h", "-o", "%i %S"]).stdout.split()
    return dict(zip(map(int, lines[::2]), map(int, lines[1::2]), strict=True))


def statuses(port: SlurmCluster, *commands: object) -> list[str]:
    return [outcome.status for outcome in port.apply(commands)]  # type: ignore[arg-type]


# --- updates --------------------------------------------------------------------------------------------------------


def test_two_hundred_updates_go_through_one_scontrol_and_each_result_is_matched(
    full: Sandbox, port: SlurmCluster, tmp_path: Path
) -> None:
    user = full.researchers[0]
    array = full.sbatch(user, SLEEP, "--array=0-19", "--gres=gpu:4")
    done = full.sbatch(user, "#!/bin/sh\n", "-n1")
    full.wait_job(done, "COMPLETED")
    full.run("root", ["scontrol", "update", f"JobId={array}_[0-18]", "SiteFactor=1"])  # a job of each
    jobs = [job for job, row in read(port).items() if row["array_id"] == array]
    assert len(jobs) == 20
    commands, expected = [], []
    for at in range(200):
        kind = at % 5
        job = {3: 999_000 + at, 4: done}.get(kind, jobs[at % 20])
        commands.append(command(str(at), "update", job, SiteFactor=str(1_000 + at)))
        expected.append("refused" if kind in (3, 4) else "done")
    before = len(calls(tmp_path, "scontrol"))
    outcomes = port.apply(commands)
    assert len(calls(tmp_path, "scontrol")) == before + 1
    assert [outcome.command for outcome in outcomes] == [str(at) for at in range(200)]
    assert [outcome.status for outcome in outcomes] == expected
    assert "Invalid job id" in outcomes[3].message
    assert "already" in outcomes[4].message
    last = {c.job.job_id: int(c.fields["SiteFactor"]) for c, e in zip(commands, expected, strict=True) if e == "done"}
    factors = site_factors(full)
    assert {job: factors[job] for job in last} == last


def test_elements_that_wait_together_get_a_label_without_those_that_have_their_own(
    full: Sandbox, port: SlurmCluster
) -> None:
    array = full.sbatch(full.researchers[0], SLEEP, "--array=0-999:3", "--gres=gpu:4")
    full.run(full.operator, ["scontrol", "update", f"JobId={array}_6", "SiteFactor=77"])
    rows = {job: row for job, row in read(port).items() if row["array_id"] == array}
    (apart,) = set(rows) - {array}
    assert rows[array]["elements"] == 333
    assert statuses(port, command("a", "update", array, SiteFactor="500")) == ["done"]
    full.wait(lambda: array in site_factors(full), what="sprio to list the array")
    assert site_factors(full)[array] == 500
    assert site_factors(full)[apart] == 77
    assert {job for job, row in read(port).items() if row["array_id"] == array} == {array, apart}


def test_an_array_of_which_elements_started_since_it_was_read_is_still_updated(
    cluster: Sandbox, port: SlurmCluster
) -> None:
    user = cluster.researchers[0]
    array = cluster.sbatch(user, "#!/bin/sh\n", "--array=0-3", "--gres=gpu:4", "--hold")
    look(port)
    cluster.run("root", ["scontrol", "release", f"{array}_0"])
    cluster.wait_job(f"{array}_0", "COMPLETED")
    (outcome,) = port.apply([command("a", "update", array, SiteFactor="9")])
    assert outcome.status == "done"
    assert "already" in outcome.message


def test_an_array_that_ended_since_it_was_read_is_refused(cluster: Sandbox, port: SlurmCluster) -> None:
    array = cluster.sbatch(cluster.researchers[0], SLEEP, "--array=0-7", "--hold")
    look(port)
    cluster.run("root", ["scancel", str(array)])
    (outcome,) = port.apply([command("a", "update", array, SiteFactor="9")])
    assert outcome.status == "refused"


def test_a_label_does_not_release_a_held_job(cluster: Sandbox, port: SlurmCluster) -> None:
    job = cluster.sbatch(cluster.researchers[0], SLEEP, "--hold")
    look(port)
    assert statuses(port, command("a", "update", job, SiteFactor="9")) == ["done"]
    assert (read(port)[job]["state"], read(port)[job]["priority"]) == ("PENDING", 0)


def test_a_part_of_a_heterogeneous_job_is_updated(full: Sandbox, port: SlurmCluster) -> None:
    script = "#!/bin/sh\n#SBATCH --gres=gpu:4\n#SBATCH hetjob\n#SBATCH --gres=gpu:4\nsleep 600\n"
    leader = full.sbatch(full.researchers[0], script)
    (other,) = [job for job, row in read(port).items() if row["het_id"] == leader and job != leader]
    outcomes = statuses(
        port, command("a", "update", leader, SiteFactor="5"), command("b", "update", other, SiteFactor="6")
    )
    assert outcomes == ["done", "done"]


def test_what_an_operator_may_not_do_is_refused(cluster: Sandbox, port: SlurmCluster) -> None:
    job = cluster.sbatch(cluster.researchers[0], SLEEP, "--gres=gpu:1")
    cluster.wait_job(job, "RUNNING")
    look(port)
    outcomes = port.apply(
        [
            command("a", "update", job, Gres="gpu:2"),
            command("b", "update", job, AdminComment="x"),
            command("c", "update", job, SiteFactor="99999999999"),
        ]
    )
    assert [outcome.status for outcome in outcomes] == ["refused"] * 3


def test_a_requeued_job_waits_again(cluster: Sandbox, port: SlurmCluster) -> None:
    job = cluster.sbatch(cluster.researchers[0], SLEEP, "--requeue")
    cluster.wait_job(job, "RUNNING")
    look(port)
    assert statuses(port, command("a", "requeue", job), command("b", "requeue", 999_999)) == ["done", "refused"]
    cluster.wait(lambda: read(port)[job]["state"] == "PENDING", what="the job to wait again")
    assert read(port)[job]["restarts"] == 1


# --- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "to"), [(CATCH, "batch"), (CATCH_IN_STEP, "steps"), (CATCH_IN_STEP, "full"), (CATCH, "full")]
)
def test_a_signal_reaches_where_it_was_declared_to_go(
    cluster: Sandbox, port: SlurmCluster, script: str, to: str
) -> None:
    user = cluster.researchers[0]
    job = cluster.sbatch(user, script)
    home = cluster.home(user)
    cluster.wait((home / f"ready-{job}").exists, what="the trap to be set")
    look(port)
    assert statuses(port, command("a", "signal", job, signal="USR1", to=to)) == ["done"]
    cluster.wait((home / f"caught-{job}").exists, what="the signal to be caught")


def test_a_job_that_never_was_cannot_be_cancelled(port: SlurmCluster) -> None:
    (outcome,) = port.apply([command("a", "cancel", 999_999)])
    assert outcome.status == "refused"
    assert "does not list the job" in outcome.message


def test_a_signal_to_a_job_that_ended_or_never_was_is_refused(cluster: Sandbox, port: SlurmCluster) -> None:
    done = cluster.sbatch(cluster.researchers[0], "#!/bin/sh\n")
    cluster.wait_job(done, "COMPLETED")
    look(port)
    fields = {"signal": "USR1", "to": "batch"}
    outcomes = statuses(port, command("a", "signal", done, **fields), command("b", "signal", 999_999, **fields))
    assert outcomes == ["refused", "refused"]


def test_cancelling_one_element_leaves_the_others(cluster: Sandbox, port: SlurmCluster) -> None:
    array = cluster.sbatch(cluster.researchers[0], SLEEP, "--array=0-2")
    for task in range(3):
        cluster.wait_job(f"{array}_{task}", "RUNNING")
    rows = {row["array_task"]: job for job, row in read(port).items() if row["array_id"] == array}
    assert rows[2] == array  # the last one has the array's own id
    assert statuses(port, command("a", "cancel", array)) == ["done"]
    cluster.wait(lambda: read(port)[array]["state"] == "CANCELLED", what="the element to be cancelled")
    assert [read(port)[rows[task]]["state"] for task in (0, 1)] == ["RUNNING", "RUNNING"]
    others = [command(str(task), "cancel", rows[task]) for task in (0, 1)]
    assert statuses(port, *others) == ["done", "done"]
    for task in (0, 1):
        cluster.wait_job(rows[task], "CANCELLED")


# --- the spool ------------------------------------------------------------------------------------------------------


def test_requests_go_to_the_spool_and_are_taken_back(cluster: Sandbox, port: SlurmCluster) -> None:
    request = {"what": "stop", "restart": "0"}
    job = cluster.sbatch(cluster.researchers[0], SLEEP)
    look(port)
    asked = cluster.spool / "requests" / f"{job}.0.stop"
    assert statuses(port, command("a", "ask", job, **request)) == ["done"]
    assert asked.exists()
    assert statuses(port, command("b", "withdraw", job, **request)) == ["done"]
    assert not asked.exists()


@pytest.mark.parametrize(
    "fields", [{}, {"what": "stop"}, {"what": "../x", "restart": "0"}, {"what": "stop", "restart": "-1"}]
)
def test_a_request_that_is_not_valid_is_refused(cluster: Sandbox, port: SlurmCluster, fields: dict[str, str]) -> None:
    job = cluster.sbatch(cluster.researchers[0], SLEEP)
    look(port)
    (outcome,) = port.apply([command("a", "ask", job, **fields)])
    assert (outcome.status, outcome.message) == ("refused", "not a valid request")


def test_commands_of_every_kind_are_carried_out_in_order(full: Sandbox, port: SlurmCluster) -> None:
    job = full.sbatch(full.researchers[0], SLEEP, "--gres=gpu:4")
    look(port)
    commands = [
        command("1", "update", job, SiteFactor="5"),
        command("2", "ask", job, what="stop", restart="0"),
        command("3", "update", job, SiteFactor="6"),
        command("4", "cancel", job),
        command("5", "update", job, SiteFactor="7"),
    ]
    outcomes = port.apply(commands)
    assert [outcome.command for outcome in outcomes] == ["1", "2", "3", "4", "5"]
    assert [outcome.status for outcome in outcomes] == ["done", "done", "done", "done", "refused"]


# --- a Slurm that does not answer -----------------------------------------------------------------------------------


def test_what_came_of_writes_to_a_slurmctld_that_is_down_is_unknown(cluster: Sandbox, tmp_path: Path) -> None:
    job = cluster.sbatch(cluster.researchers[0], SLEEP, "--hold")
    port = operated(cluster, tmp_path, timeout=3)
    look(port)
    cluster.stop("slurmctld")
    try:
        outcomes = port.apply(
            [command("a", "update", job, SiteFactor="5"), command("b", "requeue", job), command("c", "cancel", job)]
        )
    finally:
        cluster.start("slurmctld")
    assert [outcome.status for outcome in outcomes] == ["unknown"] * 3
    assert read(port)[job]["state"] == "PENDING"


# --- time -----------------------------------------------------------------------------------------------------------


def test_waiting_ends_at_its_time_or_when_woken(port: SlurmCluster) -> None:
    began = time.monotonic()
    assert port.wait(port.now() + 0.2)
    assert 0.15 < time.monotonic() - began < 10
    waker = threading.Timer(0.2, port.wake)
    waker.start()
    assert port.wait(port.now() + 60)
    assert time.monotonic() - began < 30
    waker.join()


def test_a_signal_handler_wakes(port: SlurmCluster) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: port.wake())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        began = time.monotonic()
        assert port.wait(port.now() + 60)
        assert time.monotonic() - began < 30
    finally:
        signal.signal(signal.SIGALRM, before)
