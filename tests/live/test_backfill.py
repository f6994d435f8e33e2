"""The reservations of the simulator's Slurm for waiting jobs, beside those of a real Slurm with the same slurm.conf."""

import re
import time
from collections.abc import Callable

import numpy as np
import pytest

from slurmplug.cluster import hostlist
from slurmplug.sandbox import ClusterSpec, Node, Partition, Sandbox
from slurmplug.sim.engine.nodes import parse
from slurmplug.sim.slurm import site_conf
from slurmplug.sim.slurm.backfill import Backfill, Reservation
from slurmplug.sim.slurm.partitions import job_partitions
from slurmplug.sim.slurm.queue import HeldResources, NodeResources, Pending
from slurmplug.sim.slurm.scheduling_pass import SchedulingPass

NODES = 4
RUNNING = (("n1", 3, 60), ("n2", 4, 30), ("n3", 4, 45), ("n4", 2, 120))
"""node, GPUs, minutes"""
WAITING = ((1, 4, 40), (2, 2, 90), (1, 1, 20), (1, 2, 60), (1, 2, 30), (1, 1, 200), (3, 1, 50), (4, 3, 15))
"""nodes, GPUs on each, minutes"""
SCRIPT = "#!/bin/sh\n#SBATCH -N{} --gres=gpu:{} --time={} --mem=1 -o /dev/null {}\nsleep 600\n"


@pytest.mark.parametrize(
    ("scheduler", "states"),
    [
        ((), {"RUNNING", "PENDING"}),
        (("bf_resolution=120", "bf_window=100"), {"RUNNING", "PENDING"}),
        (("bf_job_part_count_reserve=2", "bf_window_linear=1", "bf_resolution=1"), {"RUNNING", "PENDING"}),
        (("bf_job_part_count_reserve=1", "bf_max_job_test=3", "bf_interval=20"), {"RUNNING", "PENDING"}),
        (("bf_max_job_user=2",), {"PENDING"}),
        (("bf_max_job_part=2", "bf_max_job_user_part=3", "bf_max_job_start=1"), {"PENDING"}),
    ],
)
def test_they_are_those_of_slurm(
    special_cluster: Callable[[ClusterSpec], Sandbox], scheduler: tuple[str, ...], states: set[str]
) -> None:
    """The first that waits holds up all others in the order of priority, so that backfill alone decides on these."""
    spec = ClusterSpec(nodes=(Node(),) * NODES, partitions=(Partition("all"),), priority="basic", scheduler=scheduler)
    cluster = special_cluster(spec)
    user = cluster.researchers[0]
    running = [cluster.sbatch(user, SCRIPT.format(1, gpus, minutes, f"-w {node}")) for node, gpus, minutes in RUNNING]
    for job in running:
        cluster.wait_job(job, "RUNNING")
    began = time.time()
    cluster.run("root", ["scontrol", "update", "partition=all", "state=down"])
    waiting = [cluster.sbatch(user, SCRIPT.format(*job, "")) for job in WAITING]
    cluster.run("root", ["scontrol", "update", "partition=all", "state=up"])

    def of_slurm() -> list[tuple[str, float, frozenset[str]]]:
        return [planned(cluster, job, began) for job in waiting]

    conf = site_conf.read(cluster.layout.slurm_conf)
    ours = simulated(conf)
    tolerance = conf.settings.reservations.resolution + 20 if conf.settings.reservations else 0.0

    def alike() -> bool:
        return all(
            state == made and nodes == where and abs(start - at) <= tolerance
            for (state, start, nodes), (made, at, where) in zip(of_slurm(), ours, strict=True)
        )

    cluster.wait(alike, 30, f"{ours} for {of_slurm()}")
    assert {state for state, _, _ in ours} == states
    assert sum(bool(where) for _, _, where in ours) >= 2
    assert not any(name in each for each in conf.not_followed for name in ("bf_resolution", "reserve", "bf_max_job"))


def planned(cluster: Sandbox, job: int, began: float) -> tuple[str, float, frozenset[str]]:
    """A job's state, the seconds from then on until its start, 0 where it is not known or over, and its nodes."""
    shown = cluster.run("root", ["scontrol", "show", "job", str(job)]).stdout
    found = dict(re.findall(r"(\S+?)=(\S+)", shown))
    state, start = found["JobState"], found["StartTime"]
    nodes = found.get("SchedNodeList" if state == "PENDING" else "NodeList", "")
    at = time.mktime(time.strptime(start, "%Y-%m-%dT%H:%M:%S")) - began if start != "Unknown" else 0.0
    names = frozenset(hostlist.expand(nodes)) if nodes != "(null)" else frozenset()
    return state, max(at, 0.0) if state == "PENDING" and names else 0.0, names


def simulated(conf: site_conf.SiteConf) -> list[tuple[str, float, frozenset[str]]]:
    """The same of the simulator's Slurm, of jobs in this order."""
    nodes, gpus, minutes = (np.array(column) for column in zip(*WAITING, strict=True))
    n, nothing = len(WAITING), np.zeros(len(WAITING))
    pending = Pending(
        gpus=gpus * nodes,
        nodes=nodes,
        demand=np.column_stack([np.ones(n), nothing + 0.25, nothing + 0.25]),
        time_limit=minutes * 60.0,
        eligible=nothing,
        begin=nothing,
        qos=np.full(n, "normal"),
        partition=np.full(n, "all"),
        reservation=np.full(n, ""),
        nice=nothing,
        site_factor=nothing,
        user=np.full(n, "user"),
        account=np.full(n, "account"),
    )
    place, used, limits = (np.array(column) for column in zip(*RUNNING, strict=True))
    number = np.array([int(name[1:]) - 1 for name in place.tolist()])
    amount = np.column_stack([used, np.ones(len(used)), np.ones(len(used))]).astype(np.float64)
    of = parse(conf.cluster)
    total = np.column_stack([of.gpus, of.cpus, of.memory]).astype(np.float64)
    free = total.copy()
    np.subtract.at(free, number, amount)
    room = NodeResources(free, total, np.full(NODES, ""), np.ones(NODES, dtype=bool))
    now = time.time()
    held = HeldResources(number, amount, now + limits * 60.0)
    partitions = job_partitions(
        conf.settings.partitions, pending.partition, gpus=pending.gpus, nodes=nodes, demand=pending.demand, total=total
    )
    one = SchedulingPass(pending, held, room, np.arange(NODES), partitions, now=now, settings=conf.settings)
    found = {start.row: ("RUNNING", 0.0, names(start.nodes)) for start in one.in_order(np.arange(n))}
    assert conf.settings.reservations
    tried = conf.settings.bf_limits.tried(pending, one.left, conf.settings.bf_max_job_test)
    for each in Backfill(one, conf.settings.reservations).plan(tried):
        is_planned = isinstance(each, Reservation)
        at = each.time - now if isinstance(each, Reservation) else 0.0
        found[each.row] = ("PENDING" if is_planned else "RUNNING", at, names(each.nodes))
    return [found.get(row, ("PENDING", 0.0, frozenset[str]())) for row in range(n)]


def names(nodes: object) -> frozenset[str]:
    """Of these numbers."""
    return frozenset(f"n{int(node) + 1}" for node in np.asarray(nodes))


def test_a_job_that_spreads_over_nodes_is_not_held_up_by_a_smaller_one_that_needs_one_node(
    special_cluster: Callable[[ClusterSpec], Sandbox],
) -> None:
    """As in the simulator's Slurm: tests/unit/sim/slurm/test_backfill.py has the same jobs."""
    cluster = special_cluster(ClusterSpec(nodes=(Node(),) * NODES, partitions=(Partition("all"),), priority="basic"))
    user = cluster.researchers[0]
    for node in range(1, NODES + 1):
        cluster.wait_job(cluster.sbatch(user, SCRIPT.format(1, 2, 60, f"-w n{node}")), "RUNNING")
    small = cluster.sbatch(user, SCRIPT.format(1, 3, 60, ""))
    spreading = cluster.sbatch(user, "#!/bin/sh\n#SBATCH --gpus=8 --time=10 --mem=1 -o /dev/null\nsleep 600\n")
    cluster.wait_job(spreading, "RUNNING", 60)
    state, _, nodes = planned(cluster, spreading, time.time())
    assert (state, nodes) == ("RUNNING", frozenset(f"n{node}" for node in range(1, NODES + 1)))
    assert planned(cluster, small, time.time())[0] == "PENDING"
