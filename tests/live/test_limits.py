"""Limits of QOS on a real Slurm: when jobs that wait for them are told to start, and a replay of how they waited."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from slurmplug.commands import main
from slurmplug.ledger import kept_limits
from slurmplug.ledger.ledger import Ledger
from slurmplug.sandbox import ClusterSpec, Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside
from tests.live.login_node import LoginNode

LIMIT = 600.0
UNTIL_TOLD = """#!/bin/sh
#SBATCH --gres=gpu:1 --time=10 --output=/dev/null --qos=few
until [ -e {} ]; do sleep 0.2; done
"""
ENDED = """#!/bin/sh
#SBATCH --gres=gpu:1 --time=120 --mem=1 --output=/dev/null --qos={}
until [ -e ends-$SLURM_JOB_ID ]; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def with_few(special_cluster: Callable[[ClusterSpec], Sandbox]) -> ClusterSpec:
    """A cluster with two QOS for two users: one in which a user has two GPUs at once, and one of 576 GPU minutes.

    It is one of its own, as a daemon learns run times from jobs that squeue still lists, and those of other tests end
    within seconds. Fairshare counts nothing: what the users had before orders their jobs, and no replay of what they
    submitted since knows it.
    """
    spec = ClusterSpec(weights={"Age": 1000, "JobSize": 100})
    cluster = special_cluster(spec)

    def accounting(*words: str) -> None:
        cluster.run("root", ["sacctmgr", "-i", *words])

    accounting("add", "qos", "few", "set", "MaxTRESPerUser=gres/gpu=2")
    accounting("add", "qos", "minutes", "set", "GrpTRESRunMins=gres/gpu=576")
    for user in cluster.researchers[:2]:
        accounting("modify", "user", user, "set", "qos+=few,minutes")
    return spec


@pytest.fixture
def limited(with_few: ClusterSpec, special_cluster: Callable[[ClusterSpec], Sandbox]) -> Sandbox:
    """That cluster, with an empty queue."""
    return special_cluster(with_few)


@pytest.fixture
def daemon(limited: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(limited) as one:
        yield one


def test_a_job_that_waits_for_a_limit_beside_idle_gpus_starts_when_one_before_it_ends(
    limited: Sandbox, daemon: DaemonProcess
) -> None:
    cluster, (ada, bob) = limited, limited.researchers[:2]
    for name in ("first", "second", "third"):
        (cluster.home(ada) / name).unlink(missing_ok=True)
    first, second = (cluster.sbatch(ada, UNTIL_TOLD.format(name)) for name in ("first", "second"))
    for job in (first, second):
        cluster.wait_job(job, "RUNNING")
    third = cluster.sbatch(ada, UNTIL_TOLD.format("third"))
    cluster.wait(lambda: cluster.job(third)["Reason"] == "QOSMaxGRESPerUser", 60, "the reason of the third job")
    login = LoginNode(cluster)
    observe = '[mode]\ndefault = "observe"\n'
    daemon.start(login.listen + observe, policy="fifo")  # which needs no run times
    cluster.wait(lambda: bool(daemon.query("SELECT at FROM queue_forecast")), 120, "the forecast of the queue")
    with closing(Ledger(daemon.ledger_path, readonly=True)) as ledger:
        limits = kept_limits.last(ledger)
    assert limits is not None
    assert limits.qos["few"].user == {"gres/gpu": 2.0}
    assert limits.default_account[ada] in ("vision", "language")
    queue = {job["jobidraw"]: job for job in json.loads(daemon.command("queue", "--json").stdout)["jobs"]}
    ends = [queue[job]["endtime"] for job in (first, second)]
    assert queue[third]["starttime"] <= min(ends), "the median of the first end is before that of either"
    assert queue[third]["starttime"] > time.time() + 10, "it does not start now, beside fourteen idle GPUs"
    shown = daemon.command("queue", "--start", "-n", "-j", str(third)).stdout.split()
    assert shown[5] == time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(int(queue[third]["starttime"])))
    assert f"it starts {shown[5]}" in daemon.command("why", str(third)).stdout
    assert estimated(cluster, login, ada) > time.time() + 10
    assert estimated(cluster, login, bob) < time.time() + 10
    (cluster.home(ada) / "first").touch()
    cluster.wait_job(third, "RUNNING", 60)
    assert cluster.job(second)["JobState"] == "RUNNING"


def estimated(cluster: Sandbox, login: LoginNode, user: str) -> float:
    """The start of another such job of the user."""
    script = cluster.home(user) / "next.sh"
    script.write_text(UNTIL_TOLD.format("never"))
    script.chmod(0o644)
    shown = login.ask(user, "estimate", "--json", str(script))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    found: dict[str, Any] = json.loads(shown.stdout)
    return float(found["start"]["median"])


def in_turn(cluster: Sandbox, script: str, each: int, at_once: Callable[[Counter[str]], int]) -> list[int]:
    """So many jobs of two users, ended one after the other, in the order in which Slurm started them; their ids.

    Each ends two seconds after Slurm runs as many as may run at once, given those of each user that have not ended: so
    the order of the starts, and that they wait for one another, do not depend on how fast the machine is.
    """
    users = cluster.researchers[:2]
    owner = {cluster.sbatch(user, script): user for _ in range(each) for user in users}
    left = Counter(owner.values())

    def running() -> list[int]:
        lines = cluster.run("root", ["squeue", "-h", "-t", "R", "-o", "%S %A"]).stdout.splitlines()
        found = [int(line.split()[1]) for line in sorted(lines)]
        return found if len(found) == at_once(left) else []

    for _ in owner:
        first, *_ = cluster.wait(running, 120, "as many as may run at once")
        time.sleep(2)
        cluster.run(owner[first], ["touch", f"ends-{first}"])
        cluster.wait_job(first, "COMPLETED", 120)
        left[owner[first]] -= 1
    return list(owner)


AT_ONCE: Mapping[str, Callable[[Counter[str]], int]] = {
    "few": lambda left: sum(min(2, jobs) for jobs in left.values()),
    "minutes": lambda left: min(4, left.total()),
}
"""how many GPUs are in use at once, by the jobs of each user that have not ended"""


@pytest.mark.parametrize("qos", AT_ONCE)
def test_a_replay_with_the_limits_waits_as_the_jobs_waited_and_one_without_does_not(
    limited: Sandbox, tmp_path: Path, qos: str
) -> None:
    """Twelve jobs of two users, of a GPU each, on sixteen: each user's run two at a time; or four in all, by their time
    limits of two hours."""
    time.sleep(2)  # sacct lists what ended in the second from which on it is asked
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    submitted = in_turn(limited, ENDED.format(qos), 6, AT_ONCE[qos])
    dump, listed = limited.folder / "dump.cfg", tmp_path / "qos.txt"
    limited.run("root", ["sacctmgr", "dump", limited.name, f"file={dump}"])
    listed.write_text(limited.run("root", ["sacctmgr", "--parsable2", "show", "qos"]).stdout)
    config = tmp_path / "slurmplug.toml"
    config.write_text(f'[slurm]\nconf = "{limited.layout.slurm_conf}"\n')

    def replayed(*options: str) -> dict[str, Any]:
        conf = limited.layout.slurm_conf
        given = (f"--since={since}", f"--slurm-conf={conf}", f"--config={config}", "--json", *options)
        result = CliRunner().invoke(main, ["replay", *given])
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.output)
        return found

    without, made = replayed(), replayed(f"--sacctmgr={dump}", f"--qos={listed}")
    print(without["waits"], made["waits"])
    assert made["waits"]["jobs"] == len(submitted)
    assert without["waits"]["replayed_mean"] < made["waits"]["true_mean"] / 2
    assert abs(np.log(made["waits"]["replayed_mean"] / made["waits"]["true_mean"])) < np.log(1.5)
    assert made["waits"]["start_rank"] > 0.85
    assert not any("limits of associations" in each for each in made["not_followed"])
