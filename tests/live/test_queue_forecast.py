"""The daemon's forecast of the queue on a real Slurm: what users are told of it, and how it came."""

import json
from collections.abc import Iterator
from datetime import datetime

import pytest

from slurmplug.sandbox import Sandbox
from tests.live.daemon_process import DaemonProcess, daemon_beside
from tests.live.login_node import LoginNode

LIMIT = 600.0
UNTIL_TOLD = """#!/bin/sh
#SBATCH -N4 --gres=gpu:4 --time=10 --output=/dev/null
#PLUG --deadline=2h
until [ -e {} ]; do sleep 0.2; done
"""


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def time_of(cluster: Sandbox, job: int, name: str) -> float:
    return datetime.fromisoformat(cluster.job(job)[name]).timestamp()


def test_jobs_start_after_those_that_run_as_users_are_told_and_what_came_is_kept(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    """Each job takes the whole cluster, for at most ten minutes."""
    ada, bob = cluster.researchers[:2]
    for name in ("first", "second"):
        (cluster.home(ada) / name).unlink(missing_ok=True)
    running = cluster.sbatch(ada, UNTIL_TOLD.format("first"))
    cluster.wait_job(running, "RUNNING")
    second = cluster.sbatch(ada, UNTIL_TOLD.format("second"))
    third = cluster.sbatch(ada, UNTIL_TOLD.format("never"))
    login = LoginNode(cluster)
    observe = '[mode]\ndefault = "observe"\n'
    daemon.start(login.listen + observe, policy="fifo")  # which needs no run times
    cluster.wait(lambda: bool(daemon.query("SELECT at FROM queue_forecast")), 120, "the forecast of the queue")

    def ask(user: str, *arguments: str) -> str:
        return login.ask(user, *arguments).stdout

    queue = {job["jobidraw"]: job for job in json.loads(ask(ada, "queue", "--json"))["jobs"]}
    began = time_of(cluster, running, "StartTime")
    assert queue[running]["starttime"] == began
    assert began < queue[running]["endtime"] <= began + LIMIT
    assert queue[running]["endtime"] <= queue[second]["starttime"] <= began + LIMIT
    assert queue[second]["starttime"] < queue[second]["endtime"]
    assert queue[second]["starttime"] < queue[third]["starttime"] < queue[third]["endtime"]
    assert [queue[job]["chance"] for job in (running, second, third)] == ["can be met"] * 3
    assert queue[second]["startlow"] is None, "no such forecast has come true yet"
    shown = datetime.fromtimestamp(int(queue[second]["starttime"])).isoformat()
    assert f"it starts {shown} and ends " in ask(ada, "why", str(second))
    start = ask(ada, "queue", "--start", "-n", "-j", str(second)).split()
    assert (start[0], start[5]) == (str(second), shown)
    assert json.loads(ask(bob, "queue", "--json"))["jobs"] == [], "Slurm shows him no job of hers"
    assert f"slurmplug knows no job {second}" not in ask(ada, "why", str(second))

    def forecasts() -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = json.loads(daemon.command("status", "--json").stdout)["forecasts"]
        return found

    assert forecasts()["start"]["came"] == 0
    (cluster.home(ada) / "first").touch()
    cluster.wait_job(second, "RUNNING", 120)
    cluster.wait(lambda: forecasts()["start"]["came"] == 1, 120, "the start to be compared with its forecast")
    error = abs(time_of(cluster, second, "StartTime") - queue[second]["starttime"])
    assert forecasts()["start"]["error"] == pytest.approx(error)
    (cluster.home(ada) / "second").touch()
    cluster.wait(lambda: forecasts()["end"]["came"] == 1, 120, "the end to be compared with its forecast")
    assert "came true in 30 days: mean error" in daemon.command("status").stdout
