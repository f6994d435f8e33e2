"""What must hold after everything has failed, from Slurm, the ledger and the jobs' own notes."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from slurmplug.ledger.ledger import Ledger
from slurmplug.operations.values import GOES_FIRST

if TYPE_CHECKING:
    from tests.live.chaos.run import Chaos

CALM = """
from dataclasses import dataclass

import numpy as np
from policies.plan import Action, Plan, Reason


@dataclass(frozen=True)
class Settings:
    pass


class Churn:
    name = "churn"
    needs = frozenset()

    def __init__(self, settings=None):
        self.settings = settings or Settings()

    def decide(self, snapshot, forecasts, memory):
        jobs = snapshot.jobs
        waiting = [Action("release", key, Reason("admitted")) for key, awaits in zip(jobs.keys, jobs.awaits) if awaits]
        return Plan(np.full(len(jobs), np.nan), actions=tuple(waiting))
"""
"""A policy that lets everybody in and nothing else."""
QUIET = 180.0
"""Seconds in which all operations have to end, and all jobs."""


def after(chaos: "Chaos") -> tuple[list[str], str]:
    """The violations, and counts for the last line. Ends the daemon."""
    calm = chaos.folder / "churn.py"
    chaos.end()
    calm.write_text(CALM)
    chaos.start()
    violations = list(_left_open(chaos))
    chaos.end()
    ledger = Ledger(chaos.ledger, readonly=True)
    try:
        violations += [*_of_slurm(chaos), *_of_runs(chaos), *_of_ledger(chaos, ledger)]
        values = {
            "jobs": len(chaos.crowd.jobs),
            "restarts": ledger.query("SELECT coalesce(sum(restarts), 0) AS n FROM jobs")[0]["n"],
            "cycles": ledger.query("SELECT count(*) AS n FROM cycles")[0]["n"],
            "operations": ledger.query("SELECT count(*) AS n FROM operations")[0]["n"],
        }
    finally:
        ledger.close()
    return violations, ", ".join(f"{name} {count}" for name, count in values.items())


def _left_open(chaos: "Chaos") -> Iterator[str]:
    """Every operation ends, and every job that is not held by its user."""
    held = {str(job) for job, sort in chaos.crowd.jobs.items() if sort.held}
    limit = time.monotonic() + QUIET
    while time.monotonic() < limit:
        if chaos.died():
            yield f"the daemon ended by itself in the calm; {chaos.folder}/log"
            return
        ledger = Ledger(chaos.ledger, readonly=True)
        try:
            opened = ledger.query("SELECT id, step FROM operations WHERE step NOT IN ('ended', 'watch')")
        finally:
            ledger.close()
        alive = [job for job in chaos.crowd.alive() if job not in held]
        if not opened and not alive:
            return
        time.sleep(1.0)
    yield from (f"operation {row['id']} never ended: {row['step']}" for row in opened)
    yield from (f"job {job} never ended: {_shown(chaos, job)}" for job in alive)


def _shown(chaos: "Chaos", job: str) -> str:
    row = chaos.cluster.job(job)
    return f"{row.get('JobState')} {row.get('Reason')}"


def _of_slurm(chaos: "Chaos") -> Iterator[str]:
    """No reservation or nice value of ours, nobody's hold lifted or changed, no job lost."""
    # Those of ended jobs Slurm does not change; they are taken back when the job is requeued.
    nice = chaos.cluster.run("root", ["squeue", "-h", "-a", "-o", "%A %y"]).stdout.splitlines()
    yield from (f"job and nice value {line} are left" for line in nice if line.endswith(f" {GOES_FIRST['Nice']}"))
    shown = chaos.cluster.run("root", ["scontrol", "-o", "show", "reservation"]).stdout
    yield from (f"{word} is left" for word in shown.split() if word.startswith("ReservationName=slurmplug-"))
    for job, sort in chaos.crowd.jobs.items():
        if sort.held:
            entry = chaos.cluster.job(job)
            if (entry["JobState"], entry["Reason"]) != ("PENDING", "JobHeldUser"):
                yield f"job {job}, held by its user, is {entry['JobState']} {entry['Reason']}"
    ids = ",".join(map(str, chaos.crowd.jobs))
    sacct = ["sacct", "-nPX", "--duplicates", "--allusers", "-o", "JobIDRaw,State,AllocTRES", "-j", ids]
    rows = [line.split("|") for line in chaos.cluster.run("root", sacct).stdout.splitlines()]
    known = {int(row[0]) for row in rows}
    yield from (f"job {job} is lost" for job, sort in chaos.crowd.jobs.items() if job not in known and not sort.held)
    for job, sort in chaos.crowd.jobs.items():
        if sort.managed:
            continue
        for row in rows:
            if int(row[0]) == job and "gres/gpu=" in row[2] and f"gres/gpu={sort.gpus}" not in row[2].split(","):
                yield f"job {job} is not managed and had {row[2]}"


def _of_runs(chaos: "Chaos") -> Iterator[str]:
    """No job ran twice at once, none that we may not touch was restarted, and what was saved was gone on from."""
    for job, lines in chaos.crowd.runs().items():
        sort = chaos.crowd.jobs.get(job)
        runs = [(int(run), list(rows)) for run, rows in groupby(lines, key=lambda line: line[0])]
        numbers = [run for run, _ in runs]
        if numbers != sorted(set(numbers)):
            yield f"job {job} had two runs at once: {numbers}"
        if sort is not None and not sort.managed and len(runs) > 1:
            yield f"job {job} is not managed and ran {len(runs)} times"


def _of_ledger(chaos: "Chaos", ledger: Ledger) -> Iterator[str]:
    """Every action has its reason and its result, every command an outcome, no budget was exceeded, and a job that was
    requeued is one job."""
    from tests.live.chaos.run import LIMITS

    operations = ledger.query("SELECT operations.*, name, user FROM operations JOIN jobs ON jobs.id = job")
    for row in operations:
        if not row["rule"]:
            yield f"operation {row['id']} has no reason"
        if row["step"] == "ended" and not row["result"]:
            yield f"operation {row['id']} has no result"
        if row["name"] in ("plain", "held"):
            yield f"operation {row['id']} is on a job that is not managed"
    several = ledger.query("SELECT job_id, count(*) AS n FROM jobs GROUP BY job_id")
    yield from (f"job {row['job_id']} is {row['n']} jobs in the ledger" for row in several if row["n"] > 1)
    doubted = ledger.query("SELECT job_id FROM jobs WHERE in_doubt = 1")
    yield from (f"job {row['job_id']} is still in doubt" for row in doubted)
    stops = Counter(_cycle(row["id"]) for row in operations if row["kind"] == "stop")
    moves = [row for row in operations if row["kind"] in ("resize", "migrate", "preempt") and _requeues(row)]
    a_cycle = Counter(_cycle(row["id"]) for row in moves)
    requeued = [row for row in moves if row["requeued"] is not None]
    a_user = Counter(row["user"] for row in requeued)
    labelled = ledger.query(
        "SELECT count(*) AS n FROM commands JOIN jobs ON jobs.id = job "
        "WHERE name IN ('plain', 'held') AND fields LIKE '%SiteFactor%'"
    )[0]["n"]
    if labelled:
        yield f"{labelled} labels were written to jobs that are not managed"
    if stops and max(stops.values()) > LIMITS["stops_per_cycle"]:
        yield f"{max(stops.values())} stops began in one cycle"
    if a_cycle and max(a_cycle.values()) > LIMITS["requeues_per_cycle"]:
        yield f"{max(a_cycle.values())} requeues began in one cycle"
    if len(requeued) > LIMITS["requeues_per_hour"]:
        yield f"{len(requeued)} requeues within an hour"
    if a_user and max(a_user.values()) > LIMITS["requeues_per_user"]:
        yield f"{max(a_user.values())} requeues of one user within an hour"


def _cycle(operation: str) -> int:
    return int(operation.split("-", maxsplit=1)[0])


def _requeues(row: dict[str, Any]) -> bool:
    """Whether it is of a running job: only that was asked for a checkpoint."""
    return bool(json.loads(row["noted"])["type"] == "restart")
