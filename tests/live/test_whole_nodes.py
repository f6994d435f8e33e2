"""A replay of how jobs waited on a real Slurm that gave them whole nodes, of which they requested a part."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from slurmplug.commands import main
from slurmplug.sandbox import ClusterSpec, Node, Partition, Sandbox

SCRIPT = "#!/bin/sh\n#SBATCH --time=5 --mem=1 --output=/dev/null -p {} {}\nsleep {}\n"
SACCT = (
    "sacct", "-a", "-X", "-D", "--parsable2",
    "--format=JobID,User,Account,Partition,QOS,Submit,Eligible,Start,ElapsedRaw,Timelimit,AllocTRES,ReqTRES,NCPUS,State",
)  # fmt: skip
PARTS = (("parts", "", 6), ("parts", "", 14))
WAITING = (
    ("whole", "", 10), ("whole", "-n3", 4), ("whole", "", 5), ("parts", "", 10), ("whole", "", 4), ("parts", "", 4),
)  # fmt: skip
LINEAR = {"SelectType": "select/linear", "SelectTypeParameters": "CR_Memory"}


@pytest.mark.parametrize(
    ("exclusive", "settings", "options"),
    [("EXCLUSIVE", {}, ""), ("NO", {}, "--exclusive"), ("NO", LINEAR, "")],
    ids=["partition", "option", "linear"],
)
def test_a_replay_waits_as_jobs_waited_for_whole_nodes(
    special_cluster: Callable[[ClusterSpec], Sandbox],
    tmp_path: Path,
    exclusive: str,
    settings: Mapping[str, str],
    options: str,
) -> None:
    """Jobs of parts run side by side on the first node; whoever gets whole nodes waits for one that is empty."""
    spec = ClusterSpec(
        nodes=(Node(gpus=0, cpus=16), Node(gpus=0, cpus=8)),
        partitions=(Partition("parts"), Partition("whole", options={"OverSubscribe": exclusive})),
        weights={"Age": 1000},
        scheduler=("bf_resolution=1", "bf_window_linear=1"),
        settings=settings,
    )
    cluster = special_cluster(spec)
    user = cluster.researchers[0]
    time.sleep(2)  # sacct lists what ended in the second from which on it is asked
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    submitted = [cluster.sbatch(user, SCRIPT.format(*each)) for each in PARTS]
    for job in submitted:
        cluster.wait_job(job, "RUNNING")
    time.sleep(2)  # sacct's times are whole seconds
    for partition, more, seconds in WAITING:
        given = f"{more} {options}" if partition == "whole" else more
        submitted.append(cluster.sbatch(user, SCRIPT.format(partition, given, seconds)))
    for job in submitted:
        cluster.wait_job(job, "COMPLETED", 180)
    log = tmp_path / "sacct.txt"
    log.write_text(cluster.run("root", [*SACCT, f"--starttime={since}"]).stdout)
    conf = f"--slurm-conf={cluster.layout.slurm_conf}"
    result = CliRunner().invoke(main, ["replay", f"--sacct={log}?cpu_jobs=on", conf, "--samples=1", "--json"])
    assert result.exit_code == 0, result.output
    made = json.loads(result.output)
    print(made["waits"])
    assert made["waits"]["jobs"] == len(submitted)
    assert abs(np.log(made["waits"]["replayed_mean"] / made["waits"]["true_mean"])) < np.log(1.5)
    assert made["waits"]["start_rank"] > 0.9
    assert made["waits"]["wait_rank"] > 0.8
    assert not any("hare" in each or "elect" in each for each in made["not_followed"])
