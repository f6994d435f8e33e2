"""Dependents that are thrown away, long ones that are never run, and a job in pieces, all in one --ml-job."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.cheat.harness import HONEST, Outcome, Row, Stage
from tests.ledgers import Site

HOUR = 3600.0
HOURS = 10.0
ALONE = b"#!/bin/sh\n#PLUG --max-iterations=100\ntrain\n"
JOINED = b"#!/bin/sh\n#PLUG --max-iterations=100 --ml-job=net\ntrain\n"
SERVER = JOINED.replace(b"--ml-job", b"--role=ps --ml-job")


class Dependents(NamedTuple):
    """So many jobs of these GPUs and hours that depend on the job; `chained`: each on the one before it."""

    number: int
    gpus: int
    hours: float
    chained: bool = False
    served: bool = False
    """the job says that it is their parameter server"""


ATTEMPTS: Mapping[str, Dependents] = {
    "1 of a minute": Dependents(1, 0, 1 / 60),
    "5 of a minute": Dependents(5, 0, 1 / 60),
    "50 of a minute": Dependents(50, 1, 1 / 60),
    "a chain of 20": Dependents(20, 1, 1 / 60, chained=True),
    "5 of 64 GPUs and a minute": Dependents(5, 64, 1 / 60),
    "1 as large": Dependents(1, 4, HOURS),
    "5 of 64 GPUs as long": Dependents(5, 64, HOURS),
    "a chain of 9 as long": Dependents(9, 4, HOURS, chained=True),
    "a worker of a minute": Dependents(1, 0, 1 / 60, served=True),
}


def play(attempt: str, stage: Stage) -> Outcome:
    """The score of a job of ten hours on 4 GPUs, alone or with dependents."""
    return Outcome(score(ATTEMPTS.get(attempt), HOURS))


def score(below: Dependents | None, hours: float) -> float:
    """The score of a job with a time limit of so many hours, and so many dependents of its ML job."""
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder)) as site:
        cluster = site.cluster
        joined = SERVER if below and below.served else JOINED
        job = cluster.submit(joined if below else ALONE, gpus=4, time_limit=hours * HOUR)
        parent = job
        for _ in range(below.number if below else 0):
            assert below is not None
            child = cluster.submit(
                JOINED,
                gpus=below.gpus,
                time_limit=below.hours * HOUR,
                dependency=f"afterok:{parent}(unfulfilled)",
                reason="Dependency",
            )
            parent = child if below.chained else job
        record = site.cycle()
        return float(record.plan.score[[key.job_id for key in record.snapshot.jobs.keys].index(job)])


def play_pieces(attempt: str, stage: Stage) -> Outcome:
    """The score of the first of several pieces that really are as short, with and without a common --ml-job."""
    pieces = 10 if attempt == HONEST else int(attempt.partition(" ")[0])
    first = HOURS / pieces
    below = None if attempt == HONEST else Dependents(pieces - 1, 4, first, chained=True)
    return Outcome(score(below, first) / score(None, first))


MEASURE = "score"
ROWS = (
    Row("16", "dependents in the same --ml-job", MEASURE, tuple(ATTEMPTS), play),
    Row("16-pieces", "pieces joined by --ml-job", MEASURE, ("2 pieces", "10 pieces", "40 pieces"), play_pieces),
)
