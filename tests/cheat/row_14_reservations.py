"""The reservation that holds the place of a user's moved job, which the user's other jobs try to enter."""

import tempfile
from contextlib import closing
from pathlib import Path

from slurmplug.sandbox import CommandFailed, Sandbox
from tests.cheat.harness import Outcome, Row, Stage
from tests.live.live_site import LiveSite, script

HOLDS = "#!/bin/sh\n#SBATCH --gres=gpu:{gpus} --nodelist={node}\nsleep 600\n"
ONE_GPU = "#!/bin/sh\n#SBATCH --gres=gpu:1\nsleep 600\n"
PATIENCE = 120.0


def play(attempt: str, stage: Stage) -> Outcome:
    """Of a full cluster one GPU gets free, as a job is resized: who starts there, the user's next job or another's?"""
    assert stage.cluster is not None
    stage.cluster.clear()
    with tempfile.TemporaryDirectory() as folder:
        site = LiveSite(stage.cluster, Path(folder))
        with closing(site.ledger):
            return _play(attempt, site, stage.cluster)


def _play(attempt: str, site: LiveSite, cluster: Sandbox) -> Outcome:
    user, other, third = cluster.researchers[:3]
    job = site.trains(script("moved", gpus=2))
    node = cluster.job(job)["NodeList"]
    free = {"n1": 4, "n2": 4, "n3": 4, "n4": 4, node: 2}
    for name, gpus in free.items():
        cluster.wait_job(cluster.sbatch(third, HOLDS.format(gpus=gpus, node=name)), "RUNNING", PATIENCE)
    first = cluster.sbatch(other, ONE_GPU)
    own = [cluster.sbatch(user, ONE_GPU, "--nice=1")]

    def over() -> bool:
        reservation = f"slurmplug-{job}"
        if attempt == "submit":
            own.extend(_entered(cluster, user, f"--reservation={reservation}"))
        elif attempt == "modify":
            update = ["scontrol", "update", f"JobId={own[0]}", f"ReservationName={reservation}"]
            cluster.run(user, update, check=False)
        return str(site.operations(job)[-1]["step"]) == "ended"

    site.wants(job, kind="resize", gpus=1)
    site.until(over, PATIENCE)
    jobs = [first, *own]
    cluster.wait(lambda: any(_runs(cluster, each) for each in jobs), PATIENCE, "one of the jobs to start")
    return Outcome(1.0, 0.5) if any(_runs(cluster, each) for each in own) else Outcome(0.5, 1.0)


def _runs(cluster: Sandbox, job: int) -> bool:
    return cluster.job(job)["JobState"] == "RUNNING"


def _entered(cluster: Sandbox, user: str, option: str) -> list[int]:
    try:
        return [cluster.sbatch(user, ONE_GPU, option)]
    except CommandFailed:
        return []


ROWS = (
    Row(
        "14-live",
        "the reservation of a moved job",
        "1 / place in the queue",
        ("submit", "modify"),
        play,
        gain=1.0,
        harm=1.0,
        live=True,
    ),
)
