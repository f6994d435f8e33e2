"""The scheduler beside a real Slurm, cycle by cycle: a policy that does what a test says, jobs that really save."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurmplug.config.schema import Config
from slurmplug.errors import ReadFailed
from slurmplug.ledger.ledger import Ledger
from slurmplug.operations.restart import SETTLE_SECONDS
from slurmplug.sandbox import Sandbox
from tests.live.operated import operated
from tests.moving import SETTINGS, DoesWhatItIsTold
from tests.schedulers import begun

TRAIN = """#!/bin/sh
#SBATCH --gres=gpu:{gpus} --requeue --open-mode=append --output={name}.out
#PLUG --gpus=1..8 --checkpoint={how}@{grace}
{trap}{python} -u -c '
import os, sys, time
from slurmplug import checkpoint_requested, report
path = "{name}.checkpoint"
begun = int(open(path).read()) if os.path.exists(path) and {resumes} else 0
print("run", os.environ.get("SLURM_RESTART_COUNT", "0"), "from", begun, "on",
      os.environ["SLURM_JOB_NODELIST"], "with", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
for i in range(begun + 1, 2000):
    time.sleep(0.1)
    report(iteration=i, loss=1 / i)
    if checkpoint_requested() or os.path.exists("{name}.signalled"):
        with open(path, "w") as file:
            file.write(str(i))
        if os.path.exists("{name}.signalled"):
            os.remove("{name}.signalled")
        report(checkpoint=i + {claims})
' &
wait $!; while kill -0 $! 2>/dev/null; do wait $!; done
"""


def script(
    name: str,
    *,
    gpus: int = 2,
    how: str = "file",
    grace: int = 30,
    lines: str = "",
    resumes: bool = True,
    claims: int = 0,
) -> str:
    """A training that saves when it is asked, goes on from there, and tells where it ran in `NAME.out`."""
    trap = f"trap 'touch {name}.signalled' USR1\n" if how != "file" else ""
    head, _, body = TRAIN.partition("#PLUG")
    text = f"{head}{lines}{chr(10) if lines else ''}#PLUG{body}"
    values = {"name": name, "gpus": gpus, "how": how, "grace": grace, "trap": trap, "python": sys.executable}
    return text.format(**values, resumes=resumes, claims=claims)


def start_again(cluster: Sandbox, job: int, user: str = "root", *, check: bool = True) -> None:
    """Lets a job that was requeued, or whose node came back, start before the two minutes that Slurm lets it wait.

    Not within a second of that: slurmd refuses a credential that is no newer than the end of the last run, in whole
    seconds ("Job credential revoked"), and slurmctld ends the job as FAILED with exit code 1.
    """
    time.sleep(SETTLE_SECONDS)
    cluster.run(user, ["scontrol", "update", f"JobId={job}", "StartTime=now"], check=check)


class LiveSite:
    """A ledger and a scheduler; a test runs the cycles."""

    def __init__(self, cluster: Sandbox, folder: Path, **settings: dict[str, Any]) -> None:
        self.cluster, self.folder = cluster, folder
        self.policy = DoesWhatItIsTold()
        merged = {name: {**SETTINGS.get(name, {}), **settings.get(name, {})} for name in {*SETTINGS, *settings}}
        self.config = Config.from_table(merged)
        self.ledger = Ledger(folder / "ledger.db")
        self.begin()

    def begin(self) -> None:
        """A daemon that begins, with a port of its own, which has read the limits just now: it keeps them a minute."""
        self.port = operated(self.cluster, self.folder)
        self.cluster.wait(self._knows_limits, 60, "the limits of QOS and associations")
        self.restart()

    def _knows_limits(self) -> bool:
        """A resize that is wanted before slurmdbd has answered is vetoed for that."""
        try:
            self.port.limits()
        except ReadFailed:
            return False
        return True

    def restart(self) -> None:
        """A daemon that begins with what the ledger has, and with the same port."""
        self.scheduler = begun(self.port, self.policy, self.ledger, self.config)

    def trains(self, text: str, *options: str, user: int = 0) -> int:
        """A job that runs and has reported."""
        job = self.cluster.sbatch(self.cluster.researchers[user], text, *options)
        self.until(lambda: self.query("SELECT 1 FROM progress JOIN jobs ON jobs.id = job WHERE job_id = ?", job))
        return job

    def until_running(self, suffix: str, user: int = 0) -> int:
        """The id of the user's element that ends so, once it has reported."""
        owner = self.cluster.researchers[user]
        found: list[int] = []

        def reported() -> bool:
            listed = self.cluster.run(owner, ["squeue", "-h", "-r", "-t", "R", "-u", owner, "-o", "%A %i"]).stdout
            found[:] = [int(line.split()[0]) for line in listed.splitlines() if line.endswith(suffix)]
            sql = "SELECT 1 FROM progress JOIN jobs ON jobs.id = job WHERE job_id = ?"
            return bool(found and self.query(sql, found[0]))

        self.until(reported)
        return found[0]

    def wants(self, job: int, **action: Any) -> None:
        """The policy wants this of the job, until an operation has begun or it was vetoed."""
        self.policy.wanted[job] = action
        began = len(self.operations(job))
        self.until(lambda: len(self.operations(job)) > began or self.vetoes(job))
        del self.policy.wanted[job]

    def until(self, true: Callable[[], Any], timeout: float = 90.0, what: str = "") -> None:
        """Cycles until it holds."""

        def cycled() -> Any:
            self.scheduler.run()
            return true()

        self.cluster.wait(cycled, timeout, what or repr(self.query("SELECT * FROM operations")))

    def until_step(self, job: int, *steps: str) -> str:
        """Cycles until the job's last operation is at one of these steps; which."""
        self.until(lambda: self.operations(job)[-1]["step"] in steps, what=f"{steps} of {self.operations(job)}")
        return str(self.operations(job)[-1]["step"])

    def until_over(self, job: int) -> str:
        """Cycles until the job's last operation is over; its result."""
        self.until_step(job, "ended", "bound")
        return str(self.operations(job)[-1]["result"])

    def operations(self, job: int) -> list[dict[str, Any]]:
        return self.query(
            "SELECT operations.* FROM operations JOIN jobs ON jobs.id = job WHERE job_id = ? ORDER BY opened", job
        )

    def vetoes(self, job: int) -> list[str]:
        rows = self.query(
            "SELECT veto FROM decisions JOIN jobs ON jobs.id = job WHERE job_id = ? AND verdict = 'vetoed'", job
        )
        return [row["veto"] for row in rows]

    def query(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        return self.ledger.query(sql, *parameters)

    def runs(self, name: str, user: int = 0) -> list[list[str]]:
        """The words of each run's first line: run, N, from, ITERATION, on, NODES, with, GPUS."""
        output = self.cluster.home(self.cluster.researchers[user]) / f"{name}.out"
        lines = output.read_text().splitlines() if output.exists() else []
        return [line.split() for line in lines if line.startswith("run ")]

    def leftovers(self) -> list[str]:
        """The reservations of ours, and the requests."""
        shown = self.cluster.run("root", ["scontrol", "-o", "show", "reservation"]).stdout
        names = [word for word in shown.split() if word.startswith("ReservationName=slurmplug-")]
        return names + [path.name for path in (self.cluster.spool / "requests").iterdir()]


@contextmanager
def fresh_site(cluster: Sandbox, folder: Path, **settings: dict[str, Any]) -> Iterator[LiveSite]:
    """A site where no file of an earlier test's jobs is left."""
    for user in cluster.researchers:
        for path in (*cluster.home(user).glob("*.checkpoint"), *cluster.home(user).glob("*.out")):
            path.unlink()
    site = LiveSite(cluster, folder, **settings)
    yield site
    site.ledger.close()
