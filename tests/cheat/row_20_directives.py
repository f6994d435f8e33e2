"""Directives that a job has only in order to go first: any at all, the highest urgency, deadlines, mistaken ones."""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from policies.mlfs.mlfs import MLFS
from slurmplug.cluster import parse
from slurmplug.sandbox import Sandbox
from slurmplug.sim.engine.job import SimJob, Speed, Workload
from slurmplug.sim.experiment.simulation import Simulation, SimulationSettings
from tests.cheat.harness import HONEST, Outcome, Row, Stage
from tests.ledgers import Site
from tests.live.daemon_process import daemon_beside

HOUR = 3600.0
CHEATER = "cheater"
PLAIN, MANAGED = ("plain 1", "plain 2"), ("managed 1", "managed 2")
"""bystanders, without directives and with a type alone"""
JOBS, ARRIVE = 100, 6 * HOUR
INTERVAL = 300.0


def play_any(attempt: str, stage: Stage) -> Outcome:
    """The cheater's jobs without directives, or with some."""
    return _queue(stage.seed, "" if attempt == HONEST else attempt)


def play_more(attempt: str, stage: Stage) -> Outcome:
    """The cheater's jobs with a type alone, or with urgency and deadlines beside it."""
    return _queue(stage.seed, "a type" if attempt == HONEST else attempt)


def play_plain(attempt: str, stage: Stage) -> Outcome:
    """1 / mean JCT of the users without directives: where nobody has any, or all others have."""
    return Outcome(1.0, _queue(stage.seed, "" if attempt == HONEST else attempt, PLAIN, alone=attempt == HONEST).own)


def _claims(job: SimJob, attempt: str) -> SimJob:
    if not attempt:
        return job
    takes = job.iterations / job.speed.at(job.gpus, 1)
    claimed: dict[str, Any] = {"managed": True}
    if "urgency" in attempt:
        claimed["urgency"] = 10.0
    if "1 minute" in attempt:
        claimed["deadline"] = job.submit + 60.0
    if "as it can" in attempt:
        claimed["deadline"] = job.submit + 1.05 * takes
    if "of twice" in attempt:
        claimed["deadline"] = job.submit + 2 * takes
    return replace(job, **claimed)


@cache
def _queue(seed: int, attempt: str, of: tuple[str, ...] = (CHEATER,), *, alone: bool = False) -> Outcome:
    """1 / mean seconds from submission to end: of the jobs of some users, and of all others, on a busy Slurm.

    alone: nobody has directives.
    """
    jobs = [_claims(job, attempt) if job.user == CHEATER else job for job in _jobs(seed)]
    jobs = [replace(job, managed=False) for job in jobs] if alone else jobs
    settings = SimulationSettings("4x4", INTERVAL, seed, launcher="slurm")
    finished = Simulation(Workload("cheat", tuple(jobs)), MLFS(), settings).run().finished
    took = {own: [j.ended - j.submitted for j in finished if (j.job.user in of) == own] for own in (True, False)}
    return Outcome(1 / float(np.mean(took[True])), 1 / float(np.mean(took[False])))


def _jobs(seed: int) -> list[SimJob]:
    rng = np.random.default_rng(seed)
    users = [*PLAIN, *MANAGED, CHEATER]
    jobs = []
    for number, submit in enumerate(np.sort(rng.uniform(0.0, ARRIVE, JOBS)).tolist()):
        seconds = float(np.clip(1800 * np.exp(rng.standard_normal()), 120.0, 6 * HOUR))
        user = users[number % len(users)]
        jobs.append(
            SimJob(
                name=f"job-{number}",
                submit=submit,
                gpus=int(rng.choice((1, 2, 4))),
                iterations=1,
                speed=Speed(np.array([1]), np.array([1]), np.array([1 / seconds])),
                user=user,
                time_limit=float(np.ceil(seconds * rng.uniform(1.2, 4.0) / 600) * 600),
                managed=user in MANAGED,
                restart=0.0,
            )
        )
    return jobs


MISTAKES: Mapping[str, bytes] = {
    "an unknown word": b"#PLUG --urgncy=10",
    "a wrong value": b"#PLUG --urgency=very",
    "a wrong deadline": b"#PLUG --deadline=yesterday",
    "no value": b"#PLUG --type",
    "a stop without a target": b"#PLUG --stop=target",
}


def play_mistakes(attempt: str, stage: Stage) -> Outcome:
    """1 / its place in the queue of a job that came last, and 1 / the mean place of the others."""
    line = MISTAKES.get(attempt, b"# none")
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder)) as site:
        others = [site.cluster.submit(b"#!/bin/sh\ntrain\n", time_limit=HOUR, user="eve") for _ in range(4)]
        others += [site.cluster.submit(b"#!/bin/sh\n#PLUG --type=x\ntrain\n", time_limit=HOUR) for _ in range(2)]
        job = site.cluster.submit(b"#!/bin/sh\n" + line + b"\ntrain\n", time_limit=HOUR / 6, user="eve")
        site.cycle(3)
        jobs = site.cluster.jobs
        order = sorted(jobs, key=lambda each: (-jobs[each]["priority"] - jobs[each].get("label", 0), each))
    places = {each: place for place, each in enumerate(order, 1)}
    return Outcome(1 / places[job], 1 / float(np.mean([places[each] for each in others])))


LIVE = "#!/bin/sh\n#SBATCH --gres=gpu:4 --time={}\n{}\nsleep 600\n"
LINES: Mapping[str, str] = {
    HONEST: "",
    "a type": "#PLUG --type=x",
    "urgency 10, a deadline of 1 minute": "#PLUG --urgency=10 --deadline=1m",
    "urgency 10, a deadline as it can": "#PLUG --urgency=10 --deadline=31m",
    "a mistake": "#PLUG --urgncy=10",
}


def play_live(attempt: str, stage: Stage) -> Outcome:
    """The place in Slurm's queue of a user's last job, of its place under slurmplug; so of those without directives.

    Fairshare moves all the time, so each is compared with the queue of the same moment without SiteFactors.
    """
    cluster = stage.cluster
    assert cluster is not None
    cluster.clear()
    cheater, plain, managed = cluster.researchers[:3]
    cluster.wait_job(cluster.sbatch(cluster.operator, "#!/bin/sh\n#SBATCH -N4 --gres=gpu:4\nsleep 600\n"), "RUNNING")
    others = [cluster.sbatch(user, LIVE.format(60, "")) for user in (cheater, plain, plain)]
    for _ in range(2):
        cluster.sbatch(managed, LIVE.format(60, "#PLUG --type=y"))
    job = cluster.sbatch(cheater, LIVE.format(30, LINES[attempt]))
    with daemon_beside(cluster) as daemon:
        daemon.start()
        daemon.pass_cycles(4)
        without, under = _orders(cluster)
    moved = {each: (without.index(each) + 1) / (under.index(each) + 1) for each in under}
    return Outcome(moved[job], float(np.mean([moved[each] for each in others])))


def _orders(cluster: Sandbox) -> tuple[list[int], list[int]]:
    """The pending jobs by their priority without their SiteFactor, and by their whole priority."""
    lines = cluster.run("root", ["squeue", "-h", "-t", "PD", "-o", "%A %Q"]).stdout.splitlines()
    priority = {int(job): int(whole) for job, whole in map(str.split, lines)}
    shown = cluster.run("root", ["sprio", "--noheader", f"--format={parse.SPRIO_FORMAT}"]).stdout
    site_factor = parse.site_factors(shown)
    return (
        sorted(priority, key=lambda job: (site_factor.get(job, 0) - priority[job], job)),
        sorted(priority, key=lambda job: (-priority[job], job)),
    )


TIME, PLACE = "1 / mean JCT", "1 / place in the queue"
MORE = (
    "urgency 10",
    "urgency 10, a deadline of 1 minute",
    "a deadline as it can",
    "urgency 10, a deadline as it can",
    "urgency 10, a deadline of twice its run time",
)
ROWS = (
    Row("20", "a directive, in place of none", TIME, ("a type", *MORE), play_any, gain=1.35, harm=1.1),
    Row("20-plain", "directives of all others", "1 / mean JCT", ("a type", MORE[3]), play_plain, harm=1.0),
    Row("20-urgency", "urgency and deadlines, beside a type", TIME, MORE, play_more, gain=1.15, harm=1.1),
    Row("20-mistakes", "mistaken directives only", PLACE, tuple(MISTAKES), play_mistakes, gain=1.0, harm=1.0),
    Row("20-live", "directives of a last job", PLACE, tuple(LINES)[1:], play_live, gain=6.0, harm=1.0, live=True),
)
