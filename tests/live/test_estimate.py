"""`slurmplug estimate` on a real Slurm: which of several partitions is sooner, and whether jobs get what they are said
to request."""

import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmplug.cluster import tres
from slurmplug.cluster.hostlist import expand
from slurmplug.cluster.sbatch import SbatchClient
from slurmplug.reports.batch_script import request_of
from slurmplug.reports.job_request import JobRequest
from slurmplug.sandbox import Sandbox
from slurmplug.sandbox.spec import ClusterSpec, Node, Partition
from tests.ledgers import run
from tests.live.live_site import fresh_site

PARTITIONS = (
    Partition("busy", ("n1",)),
    Partition("free", ("n2",)),
    Partition("short", ("n2",), {"MaxTime": "1"}),
    Partition("closed", ("n2",), {"AllowAccounts": "nobody"}),
)
SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:4 -t 10 --output=/dev/null\nsleep 600\n"


def test_a_partition_with_room_is_sooner_and_those_that_sbatch_refuses_are_left_out(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"EnforcePartLimits": "ALL"}
    cluster = special_cluster(ClusterSpec(nodes=(Node(), Node()), partitions=PARTITIONS, settings=settings))
    cluster.wait_job(cluster.sbatch(cluster.researchers[0], SCRIPT), "RUNNING")
    script = tmp_path / "next.sh"
    script.write_text(SCRIPT)
    monkeypatch.setenv("SLURM_CONF", str(cluster.layout.slurm_conf))
    with fresh_site(cluster, tmp_path) as site:
        site.scheduler.run()
        result = run("estimate", "--ledger", str(tmp_path / "ledger.db"), "--json", str(script))
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    there = {change["value"]: change for change in found["changes"] if change["change"] == "partition"}
    assert set(there) == {name for name in ("free", "short", "closed") if taken(cluster, script, name)}
    assert "short" not in there, "its time limit is shorter"
    assert there["free"]["start"]["high"] < found["start"]["low"]


def test_of_several_partitions_the_first_to_start_counts_and_not_one_with_a_shorter_time_limit(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"EnforcePartLimits": "NO"}
    cluster = special_cluster(ClusterSpec(nodes=(Node(), Node()), partitions=PARTITIONS[:3], settings=settings))
    cluster.wait_job(cluster.sbatch(cluster.researchers[0], SCRIPT), "RUNNING")
    script = tmp_path / "next.sh"
    script.write_text(SCRIPT)
    monkeypatch.setenv("SLURM_CONF", str(cluster.layout.slurm_conf))

    def estimate(*options: str) -> dict[str, Any]:
        result = run("estimate", "--ledger", str(tmp_path / "ledger.db"), "--json", str(script), *options)
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.output)
        return found

    with fresh_site(cluster, tmp_path) as site:
        site.scheduler.run()
        busy, either, short = estimate(), estimate("-p", "busy,free"), estimate("-p", "short")
    assert [change["value"] for change in busy["changes"] if change["change"] == "partition"] == ["free"]
    assert either["start"]["high"] < busy["start"]["low"]
    assert either["changes"] == []
    assert "longer than that of its partition (00:01:00)" in " ".join(short["assumed"])


@pytest.fixture(scope="module")
def fragmented(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    """Four nodes with one free GPU each, and many free CPUs."""
    partitions = (Partition("gpu"), Partition("whole", options={"OverSubscribe": "EXCLUSIVE"}))
    cluster = special_cluster(ClusterSpec(nodes=(Node(),) * 4, partitions=partitions))
    for number in range(1, 5):
        options = ("--gres=gpu:3", f"--nodelist=n{number}", "-t", "60", "--output=/dev/null")
        cluster.wait_job(cluster.sbatch("root", "#!/bin/sh\nsleep 600\n", *options), "RUNNING")
    return cluster


@pytest.mark.parametrize(
    "options",
    [
        "--gres=gpu:4",
        "--gres=gpu:2 -N2",
        "--gpus-per-node=1 -N4",
        "--gpus=4 -N1",
        "--gpus=4 -N4",
        "--gpus-per-task=2 -n2",
        "--gpus-per-task=1 -n4",
        "--gres=gpu:1 --exclusive",
        "--gres=gpu:1 -p whole",
        "-n1 -p whole",
        "-n1 --exclusive",
        "-n1 -c8",
        "-n8",
    ],
)
def test_a_job_is_promised_a_start_now_if_single_nodes_have_room_for_it(
    fragmented: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    monkeypatch.setenv("SLURM_CONF", str(fragmented.layout.slurm_conf))
    every = ["-t", "10", *shlex.split(options)]
    with fresh_site(fragmented, tmp_path) as site:
        site.scheduler.run()
        result = run("estimate", "--ledger", str(tmp_path / "ledger.db"), "--json", str(script), *every)
    assert result.exit_code == 0, result.output
    start = json.loads(result.output)["start"]["median"]
    job = fragmented.sbatch("root", script.read_text(), "--output=/dev/null", *every)
    try:
        time.sleep(5.0)
        runs = fragmented.job(job)["JobState"] == "RUNNING"
    finally:
        fragmented.run("root", ["scancel", str(job)])
        fragmented.wait_job(job, "CANCELLED")
    assert (start < time.time() + 10.0) == runs


def test_of_a_heterogeneous_job_it_says_that_each_component_is_a_lower_bound(
    fragmented: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH -t 10 --gres=gpu:1\n#SBATCH hetjob\n#SBATCH -t 10 -n2\nsleep 600\n")
    monkeypatch.setenv("SLURM_CONF", str(fragmented.layout.slurm_conf))
    with fresh_site(fragmented, tmp_path) as site:
        site.scheduler.run()
        result = run("estimate", "--ledger", str(tmp_path / "ledger.db"), str(script))
    assert result.exit_code != 0
    assert "estimate its components one by one; it starts no sooner than the last of them" in result.output


def taken(cluster: Sandbox, script: Path, partition: str) -> bool:
    """Whether sbatch takes it there; root may do more in some releases than in others."""
    answer = cluster.run("root", ["sbatch", "--test-only", f"--partition={partition}", str(script)], check=False)
    return answer.returncode == 0


def request(cluster: Sandbox, folder: Path, options: str) -> JobRequest:
    """What a job with these options of sbatch is taken to request."""
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\nsleep 600\n")
    client = SbatchClient(cluster.layout.slurm_conf, cluster.spec.slurm and cluster.spec.slurm / "bin", 30.0)
    tested = client.tested(script, shlex.split(options))
    return request_of(script, b"", tested, client.nodes(tested.partition), user="root", now=time.time())


@pytest.mark.parametrize(
    "options",
    [
        "--gpus=3",
        "--gpus-per-node=2 -N2",
        "--gpus-per-task=1 -n3",
        "--gpus-per-task=1 -N2 --ntasks-per-node=2",
        "--gpus=2 --ntasks-per-gpu=2",
        "-n4 --ntasks-per-gpu=2",
        "--gpus-per-socket=1 --sockets-per-node=1 -N2",
        "--gres=gpu:2 --exclusive",
        "--gres=gpu:1 --mem=0",
        "--gres=gpu:1 --mem-per-gpu=300",
        "--gres=gpu:1 --nodelist=n2",
        "--gres=gpu:1 --exclude=n1",
        "--gres=gpu:1 --array=0",
        "-n3",
    ],
)
def test_a_job_gets_what_it_is_said_to_request(cluster: Sandbox, tmp_path: Path, options: str) -> None:
    found = request(cluster, tmp_path, options)
    job = cluster.sbatch("root", "#!/bin/sh\nsleep 600\n", "--output=/dev/null", *shlex.split(options))
    row = cluster.wait_job(job, "RUNNING")
    given = row.get("AllocTRES") or row["TRES"]  # 22.05 has the one that newer releases call AllocTRES
    assert (found.gpus, found.cpus) == (tres.total_gpus(given) or 0, int(row["NumCPUs"]))
    assert found.memory in (0.0, tres.memory(given)), "0 is what the site gives it"
    assert set(expand(row["NodeList"])) <= set(expand(found.nodes))
    if "node" in options or "exclude" in options:
        assert "n2" in expand(row["NodeList"])


def test_a_job_begins_no_sooner_than_it_may_and_not_on_reserved_nodes(cluster: Sandbox, tmp_path: Path) -> None:
    before = time.time()
    begin = request(cluster, tmp_path, "--begin=now+2hours").begin
    assert begin is not None
    assert before + 7_199.0 <= begin <= time.time() + 7_200.0
    options = ["StartTime=now", "Duration=60", "Users=root", "Nodes=n1", "Flags=ignore_jobs"]
    cluster.run("root", ["scontrol", "create", "reservation", "ReservationName=course", *options])
    try:
        assert set(expand(request(cluster, tmp_path, "--reservation=course").nodes)) == {"n1"}
        assert "n1" not in expand(request(cluster, tmp_path, "").nodes)
    finally:
        cluster.run("root", ["scontrol", "delete", "ReservationName=course"])
