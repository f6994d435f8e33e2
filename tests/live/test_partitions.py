"""A replay of how jobs waited on a real Slurm: for nodes of partitions that share some, or for several nodes."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from slurmplug.commands import main
from slurmplug.sandbox import ClusterSpec, Node, Partition, Sandbox

SPEC = ClusterSpec(
    nodes=(Node(),) * 3,
    partitions=(
        Partition("left", ("n1", "n2")),
        Partition("right", ("n2", "n3")),
        Partition("urgent", ("n3",), {"PriorityTier": "10"}),
    ),
    weights={"Age": 1000},
    scheduler=("bf_job_part_count_reserve=1", "bf_resolution=1", "bf_window_linear=1"),
)
SCRIPT = "#!/bin/sh\n#SBATCH --gres=gpu:4 --time=5 --mem=1 --output=/dev/null --partition={}\nsleep {}\n"
RUNNING = (("left", 6), ("left", 15), ("right", 9))
WAITING = (("urgent", 9), ("right", 5), ("left", 4), ("right", 4), ("urgent", 6), ("left", 5))


@pytest.fixture(scope="module")
def shared_nodes(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    return special_cluster(SPEC)


def test_a_replay_waits_as_jobs_waited_for_the_nodes_of_their_partitions(shared_nodes: Sandbox, tmp_path: Path) -> None:
    """Each job needs a node. Those of urgent pass those of right on n3, which then wait for what left has on n2."""
    cluster, user = shared_nodes, shared_nodes.researchers[0]
    time.sleep(2)  # sacct lists what ended in the second from which on it is asked
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    submitted = [cluster.sbatch(user, SCRIPT.format(*each)) for each in RUNNING]
    for job in submitted:
        cluster.wait_job(job, "RUNNING")
    time.sleep(2)  # sacct's times are whole seconds
    submitted += [cluster.sbatch(user, SCRIPT.format(*each)) for each in WAITING]
    for job in submitted:
        cluster.wait_job(job, "COMPLETED", 180)
    made, without = (replayed(cluster, since, tmp_path, *options) for options in ((), ("--cluster=3x4x9x4000",)))
    print(made["waits"], without["waits"])
    assert made["waits"]["jobs"] == len(submitted)
    assert abs(np.log(made["waits"]["replayed_mean"] / made["waits"]["true_mean"])) < np.log(1.5)
    assert made["waits"]["start_rank"] > 0.9
    assert without["waits"]["start_rank"] < 0.9
    assert not any("artition" in each for each in made["not_followed"])


def test_a_replay_waits_as_jobs_waited_for_several_nodes(shared_nodes: Sandbox, tmp_path: Path) -> None:
    """The second wants two GPUs of each of two nodes, one of which has one left; its four would fit on the other."""
    cluster, user = shared_nodes, shared_nodes.researchers[0]
    time.sleep(2)
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    script = "#!/bin/sh\n#SBATCH -p left --nodes={} --gres=gpu:{} --time=5 --mem=1 --output=/dev/null\nsleep {}\n"
    submitted = [cluster.sbatch(user, script.format(1, 3, 9))]
    cluster.wait_job(submitted[0], "RUNNING")
    time.sleep(2)
    submitted += [cluster.sbatch(user, script.format(2, *each)) for each in ((2, 5), (4, 4))]
    for job in submitted:
        cluster.wait_job(job, "COMPLETED", 120)
    made = replayed(cluster, since, tmp_path)
    print(made["waits"])
    assert made["waits"]["jobs"] == len(submitted)
    assert abs(np.log(made["waits"]["replayed_mean"] / made["waits"]["true_mean"])) < np.log(1.5)
    assert made["waits"]["start_rank"] > 0.9


def replayed(cluster: Sandbox, since: str, folder: Path, *options: str) -> dict[str, Any]:
    """What `slurmplug replay --json` says of the jobs since then."""
    config = folder / "slurmplug.toml"
    config.write_text(f'[slurm]\nconf = "{cluster.layout.slurm_conf}"\n')
    given = (f"--since={since}", f"--slurm-conf={cluster.layout.slurm_conf}", f"--config={config}", "--json")
    result = CliRunner().invoke(main, ["replay", "--samples=1", *given, *options])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found
