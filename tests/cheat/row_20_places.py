"""Places that Slurm gives for one thing and that are used for another: by a job that is never meant to run, or by a
change of the request once a place is held.

Every attempt is played with slurmplug and, step by step alike, with Slurm alone.
"""

import itertools
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from slurmplug.ledger.directive_changes import Author, ChangeRequest, make_change
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.selection import JobId
from tests.cheat.harness import HONEST, Outcome, Row, Stage
from tests.ledgers import Site

TYPED = b"#!/bin/sh\n#PLUG --type=x\ntrain\n"
PLAIN = b"#!/bin/sh\ntrain\n"
SHORT, LONG = 600.0, 360_000.0
AUTHOR = Author(1001, "ada", operator=False, sees_all=False)
PLACES = (900_000.0, 800_000.0, 700_000.0, 600_000.0)
"""of the jobs without directives, in the partition gpu and the QOS normal"""


class Scene:
    """A queue of jobs without directives, a long job of another user with some, and what the cheater adds."""

    def __init__(self, site: Site, *, ranked: bool) -> None:
        self.site, self.ranked, self.requests = site, ranked, itertools.count()
        for priority in PLACES:
            site.cluster.submit(PLAIN, priority=priority, user="plain", uid=1002)
        self.submit(650_000.0, LONG, user="managed", uid=1003)

    def submit(self, priority: float, time_limit: float, **given: object) -> int:
        """A job with directives: a short one has a high score."""
        return self.site.cluster.submit(TYPED, priority=priority, time_limit=time_limit, **given)

    def change(self, job: int, **columns: object) -> None:
        self.site.cluster.jobs[job] |= columns

    def takes(self, job: int, directive: str) -> None:
        """`slurmplug set`."""
        request = ChangeRequest(JobId.parse(str(job)), (directive,), f"{next(self.requests):032x}")
        if self.ranked:
            with closing(Ledger(self.site.path)) as ledger:
                make_change(ledger, request, AUTHOR, self.site.cluster.time)

    def wait(self) -> None:
        if self.ranked:
            self.site.cycle(2)
        else:
            self.site.cluster.time += 120.0

    def passed(self) -> int:
        """Pairs of a job with directives and one without behind it, in the partition gpu and the QOS normal."""
        jobs = self.site.cluster.jobs
        now = {each: job["priority"] + job.get("label", 0) for each, job in jobs.items()}
        return sum(
            "gpu" in jobs[job]["partition"].split(",") and (-now[job], job) < (-now[plain], plain)
            for job, plain in itertools.product(jobs, jobs)
            if jobs[job]["user"] != "plain" == jobs[plain]["user"] and jobs[job]["qos"] == "normal"
        )


def other_qos(scene: Scene) -> None:
    """A small job of a QOS for short tests, which never starts, for a large one."""
    scene.submit(1_000_000.0, LONG, qos="debug")
    scene.submit(100_000.0, SHORT)
    scene.wait()


def other_partition(scene: Scene) -> None:
    """The same by partitions, which a third job joins."""
    scene.submit(1_000_000.0, LONG, partition="debug")
    scene.submit(90_000.0, LONG, partition="debug,gpu")
    scene.submit(100_000.0, SHORT)
    scene.wait()


def nice(scene: Scene) -> None:
    """A job lowers itself, exchanges, and takes that back."""
    job = scene.submit(100_000.0, SHORT, nice=500_000)
    scene.wait()
    scene.change(job, priority=600_000.0, nice=0)
    scene.wait()


def larger_request(scene: Scene) -> None:
    """A job gets a place as a small one, and then requests what Slurm gives more priority for."""
    job = scene.submit(100_000.0, SHORT)
    scene.wait()
    scene.change(job, priority=300_000.0, gpus=4)
    scene.wait()


def later_qos(scene: Scene) -> None:
    """A place that was had in one QOS is kept in another."""
    job = scene.submit(1_000.0, SHORT, qos="debug")
    scene.submit(1_000_000.0, LONG, qos="debug")
    scene.wait()
    scene.change(job, qos="normal")
    scene.wait()


def off_and_on(scene: Scene) -> None:
    """The old job's place for one new job after the other, and back."""
    old = scene.submit(1_000_000.0, LONG)
    for _ in range(3):
        scene.submit(100_000.0, SHORT)
        scene.wait()
        scene.takes(old, "--manage=off")
        scene.wait()
        scene.takes(old, "--manage=on")
    scene.wait()


ATTEMPTS: Mapping[str, Callable[[Scene], None]] = {
    "a small job of another QOS": other_qos,
    "a small job of another partition": other_partition,
    "a nice value taken back": nice,
    "a larger request later": larger_request,
    "another QOS later": later_qos,
    "set --manage=off, and on again": off_and_on,
}


def play(attempt: str, stage: Stage) -> Outcome:
    """1 + how often jobs with directives are ahead of those without, of the same under Slurm alone."""
    if attempt == HONEST:
        return Outcome(1.0)
    ranked, alone = (1 + _passed(attempt, ranked=ranked) for ranked in (True, False))
    return Outcome(ranked / alone, alone / ranked)


def _passed(attempt: str, *, ranked: bool) -> int:
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder)) as site:
        scene = Scene(site, ranked=ranked)
        ATTEMPTS[attempt](scene)
        return scene.passed()


ROWS = (Row("20-places", "places had for other things", "jobs passed", tuple(ATTEMPTS), play, gain=1.0, harm=1.0),)
