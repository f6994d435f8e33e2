"""The model of waits on a real Slurm: the daemon learns it from jobs that waited there, and `slurmplug estimate` goes
by the method that forecast best the starts that came."""

import json
import random
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pytest

from slurmplug.forecasting.starts.start_outcomes import FEWEST, StartOutcomes
from slurmplug.forecasting.starts.wait_model import WaitModel, Waits
from slurmplug.ledger.ledger import Ledger
from slurmplug.reports import kept_queue
from slurmplug.reports.waits_by_ledger import WaitsByLedger
from slurmplug.sandbox import Sandbox
from slurmplug.sandbox.errors import WaitTimeout
from tests.live.daemon_process import DaemonProcess, daemon_beside
from tests.live.login_node import LoginNode

BATCH, MOST_BATCHES = 40, 20
METHOD_SHOWN = {
    "simulated": "",
    "learnt": ", and by waits of jobs in such queues",
    "average": ", simulated, and by waits of jobs in such queues",
}
SHORT = """#!/bin/sh
#SBATCH --time=1 --output=/dev/null
#PLUG --deadline=2h
sleep $1
"""
UNTIL_TOLD = "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4 --time=10 --output=/dev/null\nuntil [ -e told ]; do sleep 0.2; done\n"
NEXT = "#!/bin/sh\n#SBATCH --gres=gpu:2 --time=1\n#PLUG --deadline=2h\nsleep 1\n"


@pytest.fixture
def daemon(cluster: Sandbox) -> Iterator[DaemonProcess]:
    with daemon_beside(cluster) as one:
        yield one


def submit(cluster: Sandbox, jobs: int, draw: random.Random) -> None:
    """Jobs of each user in turn, of up to all GPUs of a node, most of which have to wait."""
    for number in range(jobs):
        user = cluster.researchers[number % len(cluster.researchers)]
        request = f"--gres=gpu:{draw.choice((1, 2, 4))}"
        cluster.run(user, ["sbatch", request, "short.sh", f"{draw.uniform(0.2, 1.5):.1f}"])


def still_waiting(cluster: Sandbox) -> int:
    return len(cluster.run("root", ["squeue", "-h", "-t", "PD", "-o", "%i"]).stdout.splitlines())


def outcomes(daemon: DaemonProcess) -> StartOutcomes:
    with closing(Ledger(daemon.ledger_path, readonly=True)) as ledger:
        return kept_queue.outcomes(ledger)


def compared(daemon: DaemonProcess) -> int:
    """How many starts that came had been forecast by each method."""
    learnt = outcomes(daemon).learnt
    return 0 if learnt is None else int(np.isfinite(learnt).sum())


def in_ledger(daemon: DaemonProcess) -> tuple[dict[int, tuple[float, float]], Waits, WaitModel | None]:
    """Since when each job could start and when it did, the same with features, and what was learnt of that."""
    with closing(Ledger(daemon.ledger_path, readonly=True)) as ledger:
        snapshot = kept_queue.latest(ledger)
        assert snapshot is not None
        keys, waits = WaitsByLedger(ledger, snapshot).learnt_from()
        times = zip(waits.submit.tolist(), waits.start.tolist(), strict=True)
        return dict(zip((key.job_id for key in keys), times, strict=True)), waits, kept_queue.wait_model(ledger)


def accounted(cluster: Sandbox) -> dict[int, tuple[float, float]]:
    """The same times, as slurmdbd knows them by now."""
    columns = "sacct -nPX --allusers -S now-1hour --name=first,short.sh -o JobIDRaw,Eligible,Start".split()
    lines = cluster.run("root", columns, env={"SLURM_TIME_FORMAT": "%s"}).stdout.splitlines()
    rows = (line.split("|") for line in lines if "Unknown" not in line)
    return {int(job): (float(eligible), float(start)) for job, eligible, start in rows}


def unlike(daemon: DaemonProcess, cluster: Sandbox) -> dict[int, tuple[Any, Any]]:
    """By job of this test, its times in the ledger and those that slurmdbd knows, where they differ."""
    ours, told = in_ledger(daemon)[0], accounted(cluster)
    return {job: (ours.get(job), times) for job, times in told.items() if ours.get(job) != times}


def test_waits_are_learnt_from_jobs_that_waited_and_starts_are_forecast_by_the_best_method(
    cluster: Sandbox, daemon: DaemonProcess
) -> None:
    """The queue is forecast at the daemon's start, when all nodes are taken; the waits are learnt later."""
    draw = random.Random(1)
    for user in cluster.researchers:
        (cluster.home(user) / "short.sh").write_text(SHORT)
    told = cluster.home(cluster.researchers[0]) / "told"
    told.unlink(missing_ok=True)
    running = cluster.sbatch(cluster.researchers[0], UNTIL_TOLD, "--job-name=first")
    cluster.wait_job(running, "RUNNING")
    submit(cluster, 2 * BATCH, draw)
    login = LoginNode(cluster)
    daemon.start(login.listen, policy="fifo")
    cluster.wait(lambda: bool(daemon.query("SELECT at FROM queue_forecast")), 120, "the forecast of the queue")
    told.touch()
    for _ in range(MOST_BATCHES):
        if compared(daemon) >= FEWEST:
            break
        submit(cluster, BATCH, draw)
        cluster.wait(lambda: still_waiting(cluster) < BATCH // 4, 120, "the queue to become short")
    assert compared(daemon) >= FEWEST

    submit(cluster, BATCH, draw)
    user = cluster.researchers[0]
    script = cluster.home(user) / "next.sh"
    script.write_text(NEXT)
    script.chmod(0o644)
    before, earlier = time.time(), outcomes(daemon)
    shown = login.ask(user, "estimate", str(script))
    answer = login.ask(user, "estimate", "--json", str(script))
    assert (shown.returncode, answer.returncode) == (0, 0), shown.stderr + answer.stderr
    best = {earlier.best, outcomes(daemon).best}
    """more than one if it was learnt again meanwhile"""
    found = json.loads(answer.stdout)
    assert found["method"] in best
    assert any(
        f" ago{METHOD_SHOWN[method]}; in brackets 80 % of such forecasts, by " in shown.stdout for method in best
    )
    assert found["outcomes"] >= FEWEST
    assert before <= found["start"]["low"] <= found["start"]["median"] <= found["start"]["high"]
    assert found["start"]["high"] < before + 60.0 * 4 * BATCH, "the time limits of more jobs than wait, one by one"
    assert found["start"]["low"] < found["end"]["low"] <= found["end"]["high"]

    cluster.wait(lambda: not cluster.run("root", ["squeue", "-h"]).stdout, 120, "all jobs to end")
    daemon.pass_cycles()
    with suppress(WaitTimeout):
        cluster.wait(lambda: not unlike(daemon, cluster), 60)
    assert unlike(daemon, cluster) == {}
    (ours, waits, model), own = in_ledger(daemon), accounted(cluster)
    assert model is not None
    mine = np.array([job in own for job in ours])  # squeue still listed those of other tests
    forecast, came = model.waits(waits.features)[mine], (waits.start - waits.submit)[mine]
    longer = came > np.median(came)
    assert forecast[~longer].mean() < forecast[longer].mean()
    starts = json.loads(daemon.command("status", "--json").stdout)["forecasts"]["start"]
    [forecast] = daemon.query("SELECT count(*) AS n FROM foreseen_starts")
    assert starts["came"] == forecast["n"] >= 2 * BATCH
    assert starts["error"] is not None
