"""What is read of a real Slurm."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slurmplug.cluster.hostlist import expand
from slurmplug.cluster.slurm import SlurmCluster
from slurmplug.cluster.states import LIVE_STATES
from slurmplug.errors import ReadFailed
from slurmplug.sandbox import ClusterSpec, Node, Partition, Sandbox
from tests.live.operated import calls, look, operated, read

SLEEP = "#!/bin/sh\nsleep 600\n"
TYPED = ClusterSpec(
    nodes=(Node(gpu_type="a100", features=("fast",)), Node(gpu_type="v100"), Node()),
    partitions=(Partition("gpu"), Partition("fast", ("n1",))),
)


@pytest.fixture
def typed(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    return special_cluster(TYPED)


def test_an_empty_queue_is_empty(typed: Sandbox, tmp_path: Path) -> None:
    reading = look(operated(typed, tmp_path))
    assert not LIVE_STATES.intersection(reading.jobs.state.tolist())
    assert reading.nodes.name == ("n1", "n2", "n3")


def test_a_slurmctld_that_is_down_is_no_empty_queue(cluster: Sandbox, tmp_path: Path) -> None:
    port = operated(cluster, tmp_path, timeout=3)
    cluster.stop("slurmctld")
    try:
        with pytest.raises(ReadFailed):
            look(port)
    finally:
        cluster.start("slurmctld")
    look(port)


def test_a_readings_time_is_not_before_what_it_shows(port: SlurmCluster, tmp_path: Path) -> None:
    """By it is counted how long a job has been pending; squeue may take its time."""
    squeue = (tmp_path / "squeue").read_text().replace("exec ", "")
    (tmp_path / "squeue").write_text(f"{squeue}date +%s.%N >{tmp_path}/seen\n")
    assert look(port).now >= float((tmp_path / "seen").read_text())


def test_jobs_are_in_the_order_of_their_ids_whatever_their_priorities(port: SlurmCluster, cluster: Sandbox) -> None:
    """Those of one second are alike to a policy that goes by the time of submission."""
    user = cluster.researchers[0]
    jobs = [cluster.sbatch(user, "#!/bin/sh\n#SBATCH --gres=gpu:4 -N4\nsleep 600\n") for _ in range(12)]
    cluster.run("root", ["scontrol", "update", f"jobid={jobs[-1]}", "nice=-100"])
    listed = look(port).jobs.job_id.tolist()
    assert [job for job in listed if job in jobs] == jobs
    assert listed == sorted(listed)


def test_one_look_is_one_squeue_and_one_sinfo(port: SlurmCluster, cluster: Sandbox, tmp_path: Path) -> None:
    for _ in range(5):
        cluster.sbatch(cluster.researchers[0], SLEEP)
    look(port)
    look(port)
    assert (len(calls(tmp_path, "squeue")), len(calls(tmp_path, "sinfo"))) == (2, 2)
    assert calls(tmp_path, "scontrol").count("scontrol show config") == 2
    assert calls(tmp_path, "sprio") == []


def test_the_operator_reads_the_jobs_of_everybody(port: SlurmCluster, cluster: Sandbox) -> None:
    jobs = {cluster.sbatch(user, SLEEP): user for user in cluster.researchers}
    found = read(port)
    assert {job: found[job]["user"] for job in jobs} == jobs


def test_names_and_comments_forge_nothing(port: SlurmCluster, cluster: Sandbox) -> None:
    texts = [
        "a=b|c\n99|99|",
        "\n\n\x1f\x1e\x1d\x1c\x01\x02\x7f",
        "fK3a9QzrT7b0Wm\n1fK3a9Qz2fK3a9Qz",
        "JobID:x,Name:y\r\n\t%i %j %s %n",
        "JobId=1 JobName=x UserId=root(0)\n",
        "\u00e9\u2028\x85(null)",
    ]
    user = cluster.researchers[0]
    before = set(read(port))
    named = {cluster.sbatch(user, SLEEP, "-J", text, "--comment", text): text for text in texts}
    found = read(port)
    assert set(found) - before == set(named)
    assert {job: (found[job]["name"], found[job]["comment"]) for job in named} == {
        job: (text, text) for job, text in named.items()
    }


def test_the_longest_texts_that_slurm_takes_arrive_whole(port: SlurmCluster, cluster: Sandbox) -> None:
    text = "plug: " + "x" * 1_000
    job = cluster.sbatch(cluster.researchers[0], SLEEP, "--comment", text, "-J", text, "--hold")
    found = read(port)[job]
    assert (found["comment"], found["name"]) == (text, text)


@pytest.mark.parametrize(
    "requested",
    [
        (("-N2", "--gres=gpu:1"), 2, ""),
        (("--gres=gpu:a100:3",), 3, "a100"),
        (("-N2", "--gpus-per-node=2"), 4, ""),
        (("-n3", "--gpus-per-task=v100:1"), 3, "v100"),
        (("--gpus=2",), 2, ""),
        (("-N2", "--sockets-per-node=1", "--gpus-per-socket=2"), 4, ""),
        (("-N1",), 0, ""),
    ],
)
@pytest.mark.parametrize("held", [("--hold",), ()], ids=["waiting", "running"])
def test_gpus_are_counted_in_all_however_they_are_requested(
    typed: Sandbox, tmp_path: Path, requested: tuple[tuple[str, ...], int, str], held: tuple[str, ...]
) -> None:
    cluster, (options, gpus, kind) = typed, requested
    job = cluster.sbatch(cluster.researchers[0], SLEEP, *options, *held)
    if not held:
        cluster.wait_job(job, "RUNNING")
    found = read(operated(cluster, tmp_path))[job]
    assert (found["gpus"], found["gpu_type"]) == (gpus, kind)


@pytest.mark.parametrize(
    "hostlist",
    ["n[1-3,7]", "n[01-10]", "n[01-3]", "n[3,1-2]", "n[1-2]-g[0-3]", "tux[1-2][3-4]", "b2,a1,n[099-101]", "n!1,a^b"],
)
def test_a_host_list_has_the_nodes_that_scontrol_lists(cluster: Sandbox, hostlist: str) -> None:
    shown = cluster.run("root", ["scontrol", "show", "hostnames", hostlist]).stdout
    assert expand(hostlist) == shown.split()


def test_what_decides_where_jobs_run_is_read(special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path) -> None:
    cluster = special_cluster(TYPED)
    user = cluster.researchers[0]
    job = cluster.sbatch(user, SLEEP, "-p", "gpu,fast", "-C", "fast", "--hold")
    cluster.run(
        "root", ["scontrol", "create", "reservation", "ReservationName=mine", "Nodes=n2", "StartTime=now",
                 "Duration=10", f"Users={user}", "Flags=IGNORE_JOBS"],
    )  # fmt: skip
    inside = cluster.sbatch(user, SLEEP, "--reservation=mine", "--gres=gpu:1")
    cluster.wait_job(inside, "RUNNING")
    cluster.run("root", ["scontrol", "update", "NodeName=n3", "State=drain", "Reason=fans"])
    port = operated(cluster, tmp_path)
    reading, found = look(port), read(port)
    assert (found[job]["partition"], found[job]["features"]) == ("gpu,fast", "fast")
    assert (found[inside]["reservation"], found[inside]["node_list"]) == ("mine", "n2")
    assert reading.nodes.gpus == ({"a100": 4}, {"v100": 4}, {"": 4})
    assert sum(reading.nodes.gpus_used[1].values()) == 1
    assert reading.nodes.partitions == (frozenset({"gpu", "fast"}), frozenset({"gpu"}), frozenset({"gpu"}))
    assert reading.nodes.features[0] == {"fast"}
    assert "drain" in reading.nodes.state[2]
    (reservation,) = reading.reservations
    assert (reservation.nodes, reservation.users) == (frozenset({"n2"}), frozenset({user}))
    assert reservation.start <= reading.now < reservation.end


def test_an_array_is_one_row_for_what_waits_and_one_for_each_element_that_runs(
    port: SlurmCluster, cluster: Sandbox
) -> None:
    array = cluster.sbatch(cluster.researchers[0], SLEEP, "--array=0-4,7%2", "--gres=gpu:1")
    for task in (0, 1):
        cluster.wait_job(f"{array}_{task}", "RUNNING")
    mine = [row for row in read(port).values() if row["array_id"] == array]
    waiting = [row for row in mine if row["state"] == "PENDING"]
    assert [(row["job_id"], row["elements"], row["array_task"]) for row in waiting] == [(array, 4, -1)]
    running = {row["array_task"]: row for row in mine if row["state"] == "RUNNING"}
    assert set(running) == {0, 1}
    assert all(row["elements"] == 1 and row["job_id"] != array for row in running.values())


def test_only_scripts_that_are_not_known_are_read_and_an_array_has_one(
    port: SlurmCluster, cluster: Sandbox, tmp_path: Path
) -> None:
    user = cluster.researchers[0]
    array = cluster.sbatch(user, SLEEP + "# array\n", "--array=0-3%2")
    elements = [int(cluster.wait_job(f"{array}_{task}", "RUNNING")["JobId"]) for task in (0, 1)]
    known, fresh = cluster.sbatch(user, SLEEP), cluster.sbatch(user, SLEEP + "# fresh\n")
    rows = read(port).items()
    others = {(job, int(row["submit"])) for job, row in rows if job not in (array, *elements, fresh)}
    scripts = port.read(others, {}).scripts
    assert known in {job for job, _ in others}
    assert set(scripts) == {array, *elements, fresh}
    assert scripts[fresh].endswith(b"# fresh\n")
    assert {scripts[job] for job in (array, *elements)} == {scripts[array]}
    assert len([call for call in calls(tmp_path, "scontrol") if "batch_script" in call]) == 2


def test_a_heterogeneous_job_has_the_script_of_its_leader(port: SlurmCluster, cluster: Sandbox) -> None:
    script = "#!/bin/sh\n#PLUG --urgency=7\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\nsleep 600\n"
    leader = cluster.sbatch(cluster.researchers[0], script, "--begin=now+1hour")
    cluster.run("root", ["scontrol", "update", f"JobId={leader + 1}", "Priority=100000"])
    parts = [job for job, row in read(port).items() if row["het_id"] == leader]
    assert parts == [leader, leader + 1]
    scripts = port.read(set(), {}).scripts
    assert [scripts[part] for part in parts] == [script.encode()] * 2


def test_a_job_whose_script_slurmctld_lost_has_an_empty_one(port: SlurmCluster, cluster: Sandbox) -> None:
    job = cluster.sbatch(cluster.researchers[0], SLEEP, "--begin=now+1hour")
    [script] = cluster.logs.parent.glob(f"**/job.{job}/script")
    script.unlink()
    assert port.read(set(), {}).scripts[job] == b""


def test_an_interactive_job_is_no_batch_job_and_has_no_script(port: SlurmCluster, cluster: Sandbox) -> None:
    user = cluster.researchers[0]
    output = cluster.run(user, ["salloc", "--no-shell", "-n1", "--gres=gpu:1"]).stderr
    job = int(output.split("Granted job allocation ")[1].split()[0])
    assert not read(port)[job]["batch"]
    assert job not in port.read(set(), {}).scripts


def test_reports_of_the_jobs_that_run_or_just_ran_are_read(port: SlurmCluster, cluster: Sandbox) -> None:
    user = cluster.researchers[0]
    script = (
        '#!/bin/sh\necho "{\\"iteration\\": 1}" >$SLURMPLUG_SPOOL/reports/$SLURM_JOB_ID.0.jsonl\n'
        "chmod 640 $SLURMPLUG_SPOOL/reports/$SLURM_JOB_ID.0.jsonl\n"
    )
    job = cluster.sbatch(user, script)
    cluster.wait_job(job, "COMPLETED")
    assert look(port).reports == {job: b'{"iteration": 1}\n'}
    assert look(port).reports == {}


def test_a_job_that_slurmctld_forgot_comes_back_as_an_ending(port: SlurmCluster, cluster: Sandbox) -> None:
    job = cluster.sbatch(cluster.researchers[0], "#!/bin/sh\nexit 3\n")
    cluster.wait_job(job, "FAILED")
    client = port._client
    cluster.wait(lambda: client.endings([job]), what="the accounting to know of the ending")
    (ending,) = client.endings([job, 999_999])
    assert (ending.job_id, ending.state, ending.exit_code) == (job, "FAILED", 3)
    assert 0 <= ending.end - ending.start < 30
    assert port.read(set(), {999_999: 0}).endings == ()


def test_an_accounting_that_is_down_does_not_stop_the_reading(cluster: Sandbox, tmp_path: Path) -> None:
    port = operated(cluster, tmp_path)
    cluster.stop("slurmdbd")
    try:
        assert port.read(set(), {999_999: 0}).endings == ()
    finally:
        cluster.start("slurmdbd")


@pytest.mark.parametrize(
    ("tasks", "elements"), [("0-999:3", 334), ("0-1000", 1001), ("1-9:2", 5), ("3,5-700,800", 698)]
)
def test_a_large_array_is_one_row_of_all_its_elements(
    port: SlurmCluster, cluster: Sandbox, tasks: str, elements: int
) -> None:
    array = cluster.sbatch(cluster.researchers[0], SLEEP, f"--array={tasks}", "--hold")
    found = read(port)[array]
    assert (found["elements"], found["array_task"]) == (elements, -1)
    assert np.isnan(found["start"])


def test_another_clients_settings_change_nothing(
    cluster: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "SQUEUE_FORMAT2": "JobID:9",
        "SQUEUE_STATES": "RUNNING",
        "SQUEUE_USERS": "nobody",
        "SINFO_FORMAT": "%n",
        "SLURM_TIME_FORMAT": "relative",
        "SLURM_BITSTR_LEN": "4",
        "TZ": "Asia/Kolkata",
    }.items():
        monkeypatch.setenv(name, value)
    job = cluster.sbatch(cluster.researchers[0], SLEEP, "--hold")
    port = operated(cluster, tmp_path)
    submitted = read(port)[job]["submit"]
    at = subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout
    assert 0 <= int(at) - submitted < 60
