"""False progress for some seconds, then a requeue, and a next run on other GPUs."""

import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import Selection
from slurmplug.reports import job_view
from tests.cheat.harness import HONEST, Outcome, Row, Stage
from tests.ledgers import Site
from tests.live.daemon_process import DaemonProcess, daemon_beside

HOURS, LIMIT = 5.0, 10.0
"""What the job takes on 4 GPUs is what a forecast without history expects of its time limit."""
ITERATIONS = 100
SCRIPT = f"""#!/bin/sh
#PLUG --max-iterations={ITERATIONS} --gpus=1..8 --checkpoint=file --stop=target --target=accuracy>=0.9
train
""".encode()


class Attempt(NamedTuple):
    """A first run of so many seconds on 4 GPUs that claims so many iterations, and the GPUs of the second."""

    seconds: float
    claimed: int
    gpus: int
    nearly: bool = False
    """it claims to have nearly reached its target"""

    @property
    def true(self) -> "Attempt":
        """The honest twin's: it runs as long, and claims what it has done."""
        return self._replace(claimed=int(self.seconds / (HOURS * 3600) * ITERATIONS), nearly=False)


ATTEMPTS: Mapping[str, Attempt] = {
    f"{claimed}% in {seconds:g} s, then {gpus} GPUs": Attempt(seconds, claimed, gpus)
    for seconds, claimed, gpus in (
        (6.0, 99, 4),
        (6.0, 99, 1),
        (6.0, 99, 8),
        (6.0, 5, 1),
        (60.0, 50, 1),
        (600.0, 99, 8),
        (3600.0, 99, 4),
        (7200.0, 90, 1),
        (7200.0, 90, 2),
        (12_000.0, 99, 4),
    )
} | {
    "its target nearly reached in 6 s": Attempt(6.0, 20, 4, nearly=True),
    "its target nearly reached in an hour": Attempt(3600.0, 20, 4, nearly=True),
}


def play(attempt: str, stage: Stage) -> Outcome:
    """The score of a job of five hours that waits for its second run, of that of its honest twin in the same place."""
    if attempt == HONEST:
        return Outcome(1.0)
    return Outcome(score(ATTEMPTS[attempt]) / score(ATTEMPTS[attempt].true))


def score(attempt: Attempt) -> float:
    """The score of a job that waits for its second run."""
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder)) as site:
        cluster = site.cluster
        job = cluster.submit(SCRIPT, gpus=4, time_limit=LIMIT * 3600.0)
        cluster.start(job)
        began = cluster.time
        site.cycle(seconds=0.0)
        for iteration in range(1, attempt.claimed + 1):
            cluster.time = began + attempt.seconds * iteration / attempt.claimed
            accuracy = 0.9 * (1 - 0.9**iteration) if attempt.nearly else 0.001 * iteration
            cluster.say(job, iteration=iteration, loss=1 / iteration, accuracy=accuracy)
        cluster.time = began + attempt.seconds
        site.cycle(seconds=0.0)
        cluster.requeue(job)
        cluster.jobs[job]["gpus"] = attempt.gpus
        return float(site.cycle().plan.score[0])


LIVE = """#!/bin/sh
#SBATCH --gres=gpu:4 --time=10:00:00 --requeue --open-mode=append
#PLUG --max-iterations=100 --gpus=1..8 --checkpoint=file
exec {python} -c '
import time
from slurmplug import report
for i in range(1, {claimed} + 1):
    time.sleep(6 / {claimed})
    report(iteration=i, loss=1 / i)
time.sleep(600)
'
"""


def play_live(attempt: str, stage: Stage) -> Outcome:
    """The score that the daemon gives the job after its requeue with one GPU."""
    cluster = stage.cluster
    assert cluster is not None
    cluster.clear()
    claimed = 1 if attempt == HONEST else int(attempt.partition("%")[0])
    submitted = cluster.sbatch(cluster.researchers[0], LIVE.format(python=sys.executable, claimed=claimed))
    with daemon_beside(cluster) as daemon:
        daemon.start()
        cluster.wait(lambda: _reported(daemon) >= claimed, 60, "the last report")
        daemon.pass_cycles()
        cluster.run("root", ["scontrol", "requeue", str(submitted)])
        cluster.wait(lambda: cluster.job(submitted)["JobState"] == "PENDING", what="the requeue")
        cluster.run("root", ["scontrol", "update", f"JobId={submitted}", "Gres=gpu:1"])
        daemon.pass_cycles(3)
        with closing(Ledger(daemon.ledger_path, readonly=True)) as ledger:
            (job,) = job_view.jobs(ledger, Selection(live=True))
        assert job.score
        return Outcome(job.score)


def _reported(daemon: DaemonProcess) -> float:
    return float(daemon.query("SELECT coalesce(max(iteration), 0) AS done FROM progress")[0]["done"])


CLAIM, MEASURE = "false progress, a requeue, another shape", "score"
ROWS = (
    Row("15", CLAIM, MEASURE, tuple(ATTEMPTS), play, gain=2.0),
    Row("15-live", CLAIM, MEASURE, ("99% in 6 s", "50% in 6 s"), play_live, gain=2.0, live=True),
)
