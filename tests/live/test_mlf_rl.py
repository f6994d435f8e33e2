"""MLF-RL on a real Slurm: the order and sizes of the model that comes with slurmplug act where it knows the state, and
MLF-H's where it does not; the nodes that a model chooses act where jobs are pinned to them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.mlfs import network
from policies.mlfs.mlfs import MLFH
from policies.mlfs.rl import MLFRL
from policies.model import Model
from policies.plan import Plan
from slurmplug.cycle.record import CycleRecord
from slurmplug.sandbox import ClusterSpec, Node, Sandbox
from tests.learnt_models import mlf_rl
from tests.live.daemon_process import DaemonProcess, daemon_beside
from tests.live.live_site import LiveSite, script
from tests.schedulers import begun

LIKE_TRAINING = ClusterSpec(nodes=(Node(cpus=32, memory=120_000),) * 2)
"""nodes of four GPUs with as many CPUs and as much memory as in simulations"""
SETTINGS = """
[operations]
placement = "exclude"
[guardrails]
first_seen = 0
minimum_run = 0
requeue_cooldown = 0
requeue_cost = 0
size_interval = 5
"""
ONLY_PLANS_TO_PREEMPT = """
[mode]
default = "act"
preempt = "observe"
"""
"""So that of jobs that wait for a running one's GPUs none starts before their order has been looked at."""
EACH = "#SBATCH -c {cpus} --mem={memory} --time={minutes}\n#PLUG --deadline=4h --urgency=5 --type={kind}\n"
ALONE = "#!/bin/sh\n#SBATCH --gres=gpu:{gpus} -c {cpus} --mem={memory} --nodelist={node}\nsleep 900\n"
WAITS = "#!/bin/sh\n#SBATCH --gres=gpu:{gpus}\n" + EACH + "sleep 900\n"
TAKES = WAITS.replace("#SBATCH", "#SBATCH --nodelist=n2", 1)
PATIENCE = 180.0
THREE = ClusterSpec(nodes=(Node(cpus=128, memory=120_000),) * 3)
"""with so many CPUs that the load of the machine that the test runs on overloads none"""
BUSY_NETWORK = """import slurmplug_report.gpu_load
if not begun:
    slurmplug_report.gpu_load.LoadMeter.measure = lambda self: {"network": 0.95, "sent": 1e9}
"""
"""What a job that is alone on a fast machine cannot bring about: its first node's network is overloaded."""


@pytest.fixture
def daemon(special_cluster: Callable[[ClusterSpec], Sandbox]) -> Iterator[DaemonProcess]:
    with daemon_beside(special_cluster(LIKE_TRAINING)) as one:
        yield one


def sized(text: str, gpus: int, **values: Any) -> str:
    """With the CPUs and the memory of so many GPUs."""
    return text.format(gpus=gpus, cpus=5 * gpus, memory=14_000 * gpus, **values)


def holds(cluster: Sandbox, node: str, gpus: int) -> int:
    """A job that slurmplug leaves alone."""
    job = cluster.sbatch(cluster.researchers[2], sized(ALONE, gpus, node=node))
    cluster.wait_job(job, "RUNNING", PATIENCE)
    return job


def elastic(cluster: Sandbox) -> int:
    """Two hundred seconds of training that requests four GPUs and can have one to four."""
    lines = sized(EACH, 4, kind="lstm", minutes=60)
    text = script("first", gpus=4, lines=lines.rstrip()).replace("--gpus=1..8", "--gpus=1..4 --max-iterations=2000")
    return cluster.sbatch(cluster.researchers[0], text)


def running_on(cluster: Sandbox, job: int) -> int:
    """GPUs of a job that runs, else 0."""
    shown = cluster.job(job)
    return int(shown["TRES"].partition("gres/gpu=")[2].partition(",")[0]) if shown["JobState"] == "RUNNING" else 0


def asked(daemon: DaemonProcess, *arguments: str) -> str:
    """What `slurmplug` answers the operator."""
    done = daemon.command(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def until_first(daemon: DaemonProcess, one: int, other: int) -> None:
    """Until Slurm has a waiting job before another, by its own priority, when cycles have seen both."""
    daemon.pass_cycles(3)
    job = daemon.cluster.job
    daemon.cluster.wait(lambda: int(job(one)["Priority"]) > int(job(other)["Priority"]), PATIENCE, f"{one} first")


def test_the_models_sizes_and_order_act_where_it_knows_the_state_and_mlf_hs_where_it_does_not(
    daemon: DaemonProcess,
) -> None:
    cluster, (ada, ben, cyd) = daemon.cluster, daemon.cluster.researchers[:3]
    cluster.wait_job(cluster.sbatch(ben, sized(TAKES, 4, kind="lstm", minutes=60)), "RUNNING", PATIENCE)
    beside = holds(cluster, "n1", 2)
    daemon.start(SETTINGS + ONLY_PLANS_TO_PREEMPT, policy="mlf-rl")

    first = elastic(cluster)
    cluster.wait(lambda: running_on(cluster, first) == 2, PATIENCE, "the job on what is free")
    cluster.run("root", ["scancel", str(beside)])
    cluster.wait(lambda: running_on(cluster, first) == 4, PATIENCE, "the job on more")
    began = daemon.query("SELECT policy, min(cycle) FROM steps JOIN cycles ON cycles.id = cycle GROUP BY operation")
    assert [row["policy"] for row in began] == ["mlf-rl", "mlf-rl"]

    shorter = cluster.sbatch(ada, sized(WAITS, 4, kind="vgg", minutes=60))
    preferred = cluster.sbatch(ben, sized(WAITS, 4, kind="svm", minutes=61))
    until_first(daemon, preferred, shorter)
    status, why = asked(daemon, "status"), asked(daemon, "why", str(shorter))
    assert "policy      mlf-rl (" in status
    assert "error " not in status
    assert f"Ahead of it: job {preferred} of {ben}" in why
    assert "ahead most by learnt" in why

    for _ in range(3):  # of which no training had any, of a user whose deadlines count less with every one of them
        cluster.sbatch(cyd, sized(WAITS, 4, kind="gan", minutes=120), "--array=1-1000")
    until_first(daemon, shorter, preferred)
    told = "policy mlf-rl is not followed: the state is unlike those it was trained on"
    status, why = asked(daemon, "status"), asked(daemon, "why", str(preferred))
    assert f"error       {told}" in status
    assert "mlf-h decided" in status
    assert f"In the last cycle the {told}" in why
    assert f"Ahead of it: job {shorter} of {ada}" in why
    last = daemon.query("SELECT policy FROM cycles WHERE finished IS NOT NULL ORDER BY id DESC LIMIT 2")
    assert [row["policy"] for row in last] == ["mlf-h", "mlf-h"]


def that_prefers_empty_nodes() -> Model:
    """A model that knows every state, and for all jobs prefers the nodes of which most GPUs are free."""
    arrays = {name: np.zeros_like(array) for name, array in network.initial(0).items()}
    arrays["node.weight"][2, 0], arrays["node.bias"][0] = 8.0, -7.2  # 0.8 with all free, 0 with up to 0.9
    arrays["second.bias"][0] = arrays["query.weight"][0, 0] = 1.0
    arrays["key.weight"][0, 0] = 3.0
    summary = network.JOB_FEATURES - network.KINDS + network.NODE_FEATURES
    return mlf_rl(arrays, 1e3 * np.random.default_rng(0).standard_normal((200, summary)))


def moved_to(plan: Plan) -> list[tuple[str, ...]]:
    return [action.nodes for action in plan.actions if action.kind == "migrate"]


def test_a_job_is_moved_to_the_node_that_the_model_prefers(
    special_cluster: Callable[[ClusterSpec], Sandbox], tmp_path: Path
) -> None:
    cluster = special_cluster(THREE)
    site = LiveSite(cluster, tmp_path, operations={"placement": "pin"})
    rigid = script("leaves", gpus=1).replace("--gpus=1..8 ", "")
    job = site.trains(rigid.replace("for i in", f"{BUSY_NETWORK}for i in", 1))
    fuller, empty = sorted({"n1", "n2", "n3"} - {cluster.job(job)["NodeList"]})
    holds(cluster, fuller, 3)
    site.scheduler = begun(site.port, MLFRL(model=that_prefers_empty_nodes()), site.ledger, site.config)
    records: list[CycleRecord | None] = []

    def begins() -> bool:
        records.append(site.scheduler.run())
        return bool(site.operations(job))

    cluster.wait(begins, PATIENCE, "its move")
    record = records[-1]
    assert record is not None
    assert (record.policy, record.error) == ("mlf-rl", "")
    assert moved_to(MLFH().decide(record.snapshot, record.forecasts, {})) == [(fuller,)]
    assert moved_to(record.plan) == [(empty,)]
    assert site.until_over(job) == "done"
    assert cluster.job(job)["NodeList"] == empty
    site.ledger.close()
