"""Types of GPU, features, MIG instances and shards, as a real Slurm has them and as policies see them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from policies.placement.space import Space
from policies.snapshot import Snapshot
from slurmplug.errors import SandboxError
from slurmplug.intake.intake import Intake
from slurmplug.sandbox import ClusterSpec, Node, Sandbox
from slurmplug.sandbox.errors import CommandFailed
from tests.live.operated import operated, read

SLEEP = "#!/bin/sh\nsleep 600\n"
MIXED, V100, MIG, SHARDED, PARTLY_MIG, UNTYPED = range(6)
NODES = (
    Node(gpus=2, gpu_type="a100", more_gpus={"v100": 2}, features=("fast", "nvlink")),
    Node(gpu_type="v100", features=("slow",)),
    Node(gpus=7, gpu_type="1g.10gb", features=("mig",)),
    Node(gpu_type="a100", shards=16),
    Node(gpus=2, gpu_type="a100", more_gpus={"a100_3g.20gb": 4}),
    Node(),
)
TRACKED = {"AccountingStorageTRES": "gres/gpu,gres/gpu:a100,gres/gpu:v100,gres/shard"}
SPEC = ClusterSpec(nodes=NODES, settings=TRACKED)
ALL_NODES = "n1 n2 n3 n4 n5 n6"


@pytest.fixture
def typed(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    return special_cluster(SPEC)


def snapshot_of(cluster: Sandbox, folder: Path) -> Snapshot:
    return Intake().absorb(operated(cluster, folder).read((), {}), 1)[0]


def row_of(snapshot: Snapshot, job: int) -> int:
    return [key.job_id for key in snapshot.jobs.keys].index(job)


def where(snapshot: Snapshot, row: int) -> str:
    fits = snapshot.fits[snapshot.jobs.placement[row]]
    return " ".join(name for name, each in zip(snapshot.nodes.names, fits, strict=True) if each)


def test_nodes_have_their_whole_gpus_by_type(typed: Sandbox, tmp_path: Path) -> None:
    nodes = snapshot_of(typed, tmp_path).nodes
    assert nodes.gpu_types == ("a100", "v100")
    assert nodes.capacity[:, 0].tolist() == [4, 4, 0, 4, 2, 4]
    assert nodes.of_type.tolist() == [[2, 2], [0, 4], [0, 0], [4, 0], [2, 0], [0, 0]]


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        ("--gres=gpu:a100:2", (2, "a100", "n1 n4 n5")),
        ("--gpus=a100:2", (2, "a100", "n1 n4 n5")),
        ("--gpus-per-node=v100:1 -N2", (2, "v100", "n1 n2")),
        ("--gpus-per-task=v100:1 -n3", (3, "v100", "n1 n2")),
        ("--gres=gpu:1", (1, "", ALL_NODES)),
        ("--gres=gpu:1 -C slow", (1, "v100", "n2")),
        ("--gres=gpu:1 -C [fast|slow]", (1, "", "n1 n2")),
        ("--gpus=a100:1,v100:1 -n2", (2, "", "n1 n2 n4 n5")),
    ],
)
def test_a_job_fits_where_there_are_gpus_of_its_type(
    typed: Sandbox, tmp_path: Path, requested: str, found: tuple[int, str, str]
) -> None:
    job = typed.sbatch(typed.researchers[0], SLEEP, "--hold", *requested.split())
    seen = snapshot_of(typed, tmp_path)
    row = row_of(seen, job)
    assert (seen.jobs.gpus[row], seen.jobs.gpu_type[row], where(seen, row)) == found
    assert not seen.jobs.part_of_gpu[row]


def test_on_a_node_with_two_types_there_is_room_for_as_many_as_slurm_starts(typed: Sandbox, tmp_path: Path) -> None:
    user = typed.researchers[0]
    options = ("--mem=50", "-w", "n1")
    untyped = typed.sbatch(user, SLEEP, "--gres=gpu:1", *options)
    typed.wait_job(untyped, "RUNNING")
    waits = [typed.sbatch(user, SLEEP, f"--gres=gpu:{kind}:1", "--hold", *options) for kind in ("a100", "v100")]
    seen = snapshot_of(typed, tmp_path)
    held = str(seen.jobs.gpu_type[row_of(seen, untyped)])
    assert held in ("a100", "v100")
    room = {kind: Space(seen).room(row_of(seen, job))[MIXED] for kind, job in zip(("a100", "v100"), waits, strict=True)}
    assert room == {kind: 2 - (kind == held) for kind in ("a100", "v100")}
    more = [typed.sbatch(user, SLEEP, f"--gres=gpu:{held}:1", *options) for _ in range(2)]
    typed.wait_job(more[0], "RUNNING")
    after = snapshot_of(typed, tmp_path)
    assert Space(after).room(row_of(after, more[1]))[MIXED] == 0
    assert read(operated(typed, tmp_path))[more[1]]["state"] == "PENDING"


@pytest.mark.parametrize("requested", ["--gres=gpu:1g.10gb:2", "--gres=gpu:1 -w n3", "--gres=gpu:a100_3g.20gb:1"])
def test_mig_instances_are_parts_of_gpus(typed: Sandbox, tmp_path: Path, requested: str) -> None:
    script = SLEEP.replace("sleep", "#PLUG --gpus=1..4 --checkpoint=USR1\nsleep")
    job = typed.sbatch(typed.researchers[0], script, "--mem=50", *requested.split())
    typed.wait_job(job, "RUNNING")
    seen = snapshot_of(typed, tmp_path)
    row = row_of(seen, job)
    assert (seen.jobs.part_of_gpu[row], seen.jobs.managed[row], seen.jobs.state[row]) == (True, True, "running")
    assert (seen.jobs.gpus[row], seen.jobs.gpus_min[row], seen.jobs.gpus_max[row]) == (0, 0, 0)
    assert seen.runs_on[seen.runs_on[:, 0] == row, 2].tolist() == [0]
    assert seen.nodes.used[:, 0].sum() == 0
    assert read(operated(typed, tmp_path))[job]["gpus"] == (2 if ":2" in requested else 1)  # as Slurm counts them


def test_gpus_of_which_shards_are_in_use_are_not_free(typed: Sandbox, tmp_path: Path) -> None:
    user = typed.researchers[0]
    shards = [typed.sbatch(user, SLEEP, "--mem=50", f"--gres=shard:{count}") for count in (3, 2)]
    whole = typed.sbatch(user, SLEEP, "--mem=50", "--gres=gpu:1", "-w", "n4")
    for job in (*shards, whole):
        typed.wait_job(job, "RUNNING")
    seen = snapshot_of(typed, tmp_path)
    rows = [row_of(seen, job) for job in (*shards, whole)]
    assert seen.jobs.part_of_gpu[rows].tolist() == [True, True, False]
    assert seen.jobs.gpus[rows].tolist() == [0, 0, 1]
    assert seen.nodes.used[SHARDED, 0] == 3
    assert [read(operated(typed, tmp_path))[job]["shards"] for job in shards] == [3, 2]


def test_a_feature_counts_while_it_is_active(typed: Sandbox, tmp_path: Path) -> None:
    job = typed.sbatch(typed.researchers[0], SLEEP, "--hold", "--gres=gpu:1", "-C", "nvlink")
    try:
        typed.run("root", ["scontrol", "update", "NodeName=n1", "ActiveFeatures=fast"])
        seen = snapshot_of(typed, tmp_path)
        assert where(seen, row_of(seen, job)) == ""
        with pytest.raises(SandboxError, match="not available"):
            typed.sbatch(typed.researchers[0], SLEEP, "--gres=gpu:1", "-C", "nvlink")
    finally:
        typed.run("root", ["scontrol", "update", "NodeName=n1", "ActiveFeatures=fast,nvlink"])
    seen = snapshot_of(typed, tmp_path)
    assert where(seen, row_of(seen, job)) == "n1"


HOSTILE = [
    "--gres=gpu:a100:1K", "--gres=gpu:a=b:1", "--gres=gpu:a(b):1", "--gres=gpu:a b:1", "--gres=gpu:\n9:1",
    "--gres=gpu:\u00e9:1", "--gres=gpu:-1", "--gres=gpu:a100:+2", "--gres=gpu:18446744073709551614",
    "--gpus=9999999999", "--gpus=a100:1K", "--gpus-per-task=a100:1K", "--gres=shard:99999999999999",
    "--gres=gpu:a100:0", "--gres=gpu:A100:1", "--gres=gpu:\u0663", "--gpus=a100:1,a100:1",
]  # fmt: skip


REFUSED_BY_NEWER = {"--gres=gpu:a=b:1", "--gres=gpu:a100:+2", "--gres=shard:99999999999999"}
"""Slurm 25.11 takes no job with these."""


def test_no_request_of_a_user_stops_the_reading(typed: Sandbox, tmp_path: Path) -> None:
    jobs: dict[str, int] = {}
    for each in HOSTILE:
        try:
            jobs[each] = typed.sbatch(typed.researchers[0], SLEEP, "--hold", "-n1", "--mem=50", each)
        except CommandFailed:
            if each not in REFUSED_BY_NEWER:
                raise
    seen = snapshot_of(typed, tmp_path)
    rows = {each: row_of(seen, job) for each, job in jobs.items()}
    assert np.all(seen.jobs.gpus[list(rows.values())] >= 0)
    assert where(seen, rows["--gres=gpu:A100:1"]) == ""  # types are told apart by case
    assert where(seen, rows["--gres=gpu:a100:1K"]) == "n1 n4 n5"
