"""The priorities that the simulator's Slurm gives to jobs, beside those of a real Slurm with the same slurm.conf."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from slurmplug.cluster.limits import Assoc
from slurmplug.sandbox import ClusterSpec, Node, Partition, Sandbox
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.slurm import site_conf, site_limits
from slurmplug.sim.slurm.assoc_priority import factors
from slurmplug.sim.slurm.launcher import priorities
from slurmplug.sim.slurm.queue import NodeResources, Pending

PARTITIONS = (
    Partition("all", options={"PriorityJobFactor": "3"}),
    Partition("few", ("n1", "n2"), {"PriorityJobFactor": "6"}),
)
TRES = "CPU=700,Mem=500,GRES/gpu=3000,node=90"
JOBS = (("all", 1, 1, 100, 10), ("all", 4, 8, 2000, 60), ("few", 2, 4, 1500, 60), ("few", 0, 3, 700, 600))
"""partition, GPUs, CPUs, MiB, minutes"""


@pytest.mark.parametrize(
    "settings",
    [
        {"PriorityWeightTRES": TRES},
        {"PriorityFavorSmall": "YES"},
        {"PriorityWeightTRES": TRES, "PriorityFlags": "SMALL_RELATIVE_TO_TIME,NO_NORMAL_PART,NO_NORMAL_TRES"},
        {"PriorityFavorSmall": "YES", "PriorityFlags": "SMALL_RELATIVE_TO_TIME"},
    ],
)
def test_they_are_those_of_slurm(
    special_cluster: Callable[[ClusterSpec], Sandbox], settings: Mapping[str, str]
) -> None:
    spec = ClusterSpec(
        nodes=(Node(),) * 3,
        partitions=PARTITIONS,
        weights={"JobSize": 2000, "Partition": 1000},
        settings={"AccountingStorageTRES": "gres/gpu", **settings},
    )
    cluster = special_cluster(spec)
    user = cluster.researchers[0]
    cluster.wait_job(cluster.sbatch(user, "#!/bin/sh\n#SBATCH -N3 --exclusive -o /dev/null\nsleep 600\n"), "RUNNING")
    ids = [cluster.sbatch(user, script(*job)) for job in JOBS]

    def of_slurm() -> list[int]:
        shown = cluster.run("root", ["squeue", "-h", "-t", "PD", "-o", "%i %Q"]).stdout.split()
        found = dict(zip(shown[::2], map(int, shown[1::2]), strict=True))
        return [found.get(str(job), 0) for job in ids]

    conf = site_conf.read(cluster.layout.slurm_conf)
    ours = simulated(conf).tolist()
    cluster.wait(lambda: np.allclose(of_slurm(), ours, atol=1), 30, f"{ours} for {of_slurm()}")
    assert len(set(ours)) == len(JOBS)
    assert not any("Priority" in each for each in conf.not_followed)


@pytest.mark.parametrize("flags", ["", "NO_NORMAL_ASSOC"])
def test_those_of_accounts_and_users_are_those_of_slurm(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path, flags: str
) -> None:
    """One user has a priority of its own, one that of the account, and one none."""
    spec = ClusterSpec(weights={"Assoc": 700}, settings={"PriorityFlags": flags} if flags else {})
    cluster = special_cluster(spec)
    users = cluster.researchers
    for words in (("user", users[0], "set", "priority=30"), ("account", "language", "set", "priority=40")):
        cluster.run("root", ["sacctmgr", "-i", "modify", *words])
    held = "#!/bin/sh\n#SBATCH -o /dev/null -t 10 --begin=now+1hour\nsleep 600\n"
    ids = [cluster.sbatch(user, held) for user in users]
    dump = tmp_path / "dump.cfg"
    cluster.run("root", ["sacctmgr", "dump", cluster.name, f"file={dump}"])
    conf = site_limits.with_limits(site_conf.read(cluster.layout.slurm_conf), site_limits.read(dump, None))
    jobs = [Assoc("vision", users[0], ""), Assoc("language", users[1], ""), Assoc("vision", users[2], "")]
    of = factors(conf.settings.assoc_priority, jobs)
    ours = np.maximum(np.floor(conf.settings.weights.assoc * of), 1).tolist()
    assert ours == ([30 * 700, 40 * 700, 1] if flags else [525, 700, 1])

    def of_slurm() -> list[int]:
        shown = cluster.run("root", ["squeue", "-h", "-t", "PD", "-o", "%i %Q"]).stdout.split()
        found = dict(zip(shown[::2], map(int, shown[1::2]), strict=True))
        return [found.get(str(job), 0) for job in ids]

    cluster.wait(lambda: np.allclose(of_slurm(), ours, atol=1), 30, f"{ours} for {of_slurm()}")
    assert not any("Priority" in each for each in conf.not_followed)


def script(partition: str, gpus: int, cpus: int, memory: int, minutes: int) -> str:
    gres = f"--gres=gpu:{gpus} " * bool(gpus)
    return f"#!/bin/sh\n#SBATCH -p {partition} {gres}-c {cpus} --mem={memory} -t {minutes} -o /dev/null\nsleep 600\n"


def simulated(conf: site_conf.SiteConf) -> np.ndarray:
    """The priorities of the jobs, who have just been submitted by one who has used nothing."""
    partition, gpus, cpus, memory, minutes = (np.array(column) for column in zip(*JOBS, strict=True))
    n, nothing = len(JOBS), np.zeros(len(JOBS))
    pending = Pending(
        gpus=gpus,
        nodes=np.ones(n, dtype=np.int64),
        demand=np.column_stack([gpus, cpus, memory]) / np.maximum(gpus, 1)[:, None],
        time_limit=minutes * 60.0,
        eligible=nothing,
        begin=nothing,
        qos=np.full(n, "normal"),
        partition=partition,
        reservation=np.full(n, ""),
        nice=nothing,
        site_factor=nothing,
    )
    nodes = parse(conf.cluster)
    total = np.column_stack([nodes.gpus, nodes.cpus, nodes.memory]).astype(np.float64)
    room = NodeResources(total, total, np.full(len(total), ""), np.ones(len(total), dtype=bool))
    return priorities(pending, room, np.ones(n), 0.0, conf.settings)
