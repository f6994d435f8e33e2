"""Runs of some seconds under the name of a job of ten hours, so that it is forecast to be as short."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from slurmplug.forecasting.forecaster import Forecaster
from slurmplug.learning.training import train
from tests.cheat.harness import Outcome, Row, Stage
from tests.ledgers import Site

HOUR = 3600.0
LIMIT = 10 * HOUR
GPUS = 4
ITERATIONS = 100
REPORTS = 5
"""of a run that reports"""
SCRIPT = "#!/bin/sh\n#PLUG --max-iterations={}\ntrain\n"


class Runs(NamedTuple):
    """So many runs of so many seconds before the job, on these GPUs and with this time limit."""

    number: int
    seconds: float
    gpus: int = GPUS
    limit: float = LIMIT
    fails: bool = False
    """the first run of ten hours was made, and ended with an error"""
    stated: int = 0
    """the runs report, and the job states so few iterations; 0: none reports, and it states a hundred"""


ATTEMPTS: Mapping[str, Runs] = {
    "30 of 5 s": Runs(30, 5.0),
    "100 of 5 s": Runs(100, 5.0),
    "10 of a minute": Runs(10, 60.0),
    "100 of 5 s without GPUs": Runs(100, 5.0, gpus=0),
    "30 of 5 s, limit 1 minute": Runs(30, 5.0, limit=60.0),
    "30 of 5 s, after one of 10 h that failed": Runs(30, 5.0, fails=True),
    "2 of a minute that report, 1 iteration": Runs(2, 60.0, stated=1),
    "10 of a minute that report, 1 iteration": Runs(10, 60.0, stated=1),
    "30 of 5 s that report, 1 iteration": Runs(30, 5.0, stated=1),
}


def play(attempt: str, stage: Stage) -> Outcome:
    """The score of a job of ten hours that waits."""
    return Outcome(score(ATTEMPTS.get(attempt), ran=0.0))


def play_outlived(attempt: str, stage: Stage) -> Outcome:
    """The score of the job when half of its time is over."""
    return Outcome(score(ATTEMPTS.get(attempt), ran=LIMIT / 2))


def score(before: Runs | None, ran: float) -> float:
    """The score of the job after these runs, waiting or after it has run for so many seconds."""
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder)) as site:
        others = [Runs(1, HOUR * (1 + number % 4)) for number in range(60)]
        _run(site, others, user="others", uid=2000)
        if before is not None:
            if before.fails:
                job = _begun(site, Runs(1, LIMIT), user="cheater", uid=2001)
                site.cycle(seconds=LIMIT)
                site.cluster.end(job, "FAILED")
                site.cycle()
            _run(site, [before] * before.number, user="cheater", uid=2001)
        forecaster = site.scheduler.forecaster
        assert isinstance(forecaster, Forecaster)
        forecaster.use(*train(site.ledger, "stack", site.cluster.time))
        stated = before.stated if before is not None and before.stated else ITERATIONS
        job = site.cluster.submit(SCRIPT.format(stated).encode(), user="cheater", uid=2001, gpus=GPUS, time_limit=LIMIT)
        if ran:
            site.cluster.start(job)
            site.cycle(seconds=0.0)
        record = site.cycle(seconds=ran)
        return float(record.plan.score[[key.job_id for key in record.snapshot.jobs.keys].index(job)])


def _run(site: Site, runs: list[Runs], **whose: object) -> None:
    """These runs, all at once; each is listed until it ends."""
    begun = sorted((each.seconds, _begun(site, each, **whose), each.stated) for each in runs)
    site.cycle(seconds=0.0)
    passed = 0.0
    for seconds in sorted({seconds for seconds, *_ in begun}):
        ending = [(job, reports) for length, job, reports in begun if length == seconds]
        reporting = [job for job, reports in ending if reports]
        for step in range(1, REPORTS + 1):
            site.cluster.time += (seconds - passed) / REPORTS
            for job in reporting:
                site.cluster.say(job, iteration=step, loss=1 / step)
        passed = seconds
        if reporting:
            site.cycle(seconds=0.0)
        for job, _ in ending:
            site.cluster.end(job)
        site.cycle(seconds=0.0)


def _begun(site: Site, run: Runs, **whose: object) -> int:
    job = site.cluster.submit(SCRIPT.format(ITERATIONS).encode(), gpus=run.gpus, time_limit=run.limit, **whose)
    site.cluster.start(job)
    return job


ROWS = (
    Row("17", "short runs of the same name", "score", tuple(ATTEMPTS), play, gain=8.0),
    Row("17-outlived", "short runs of the same name", "score after 5 hours", tuple(ATTEMPTS), play_outlived, gain=1.6),
)
