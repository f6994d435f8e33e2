"""`slurmplug estimate` on a real Slurm with several partitions: which of them is sooner, of those that sbatch takes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

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


def taken(cluster: Sandbox, script: Path, partition: str) -> bool:
    """Whether sbatch takes it there; root may do more in some releases than in others."""
    answer = cluster.run("root", ["sbatch", "--test-only", f"--partition={partition}", str(script)], check=False)
    return answer.returncode == 0
