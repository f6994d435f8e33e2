"""When Slurm and slurmplug said that real jobs would start, and when they did: `python -m tests.bench.live_starts`.

The jobs are the rigid ones of `tests.bench.live`, with time limits as users request them, and every other one without
directives, on a sandbox of 16 GPUs. Slurm alone orders them: the daemon only observes. It knows how two other draws of
such jobs went: one that did not wait, from which it learns run times, and one that did, from which it learns how its
forecasts of starts come true. The daemon forecasts the queue in seconds for minutes (`tests.bench.quick_daemon`), and
so does backfill (bf_interval of a second, bf_resolution of a second for a minute).

Each seed is a run of several minutes. `--keep` has a folder for what was seen, which is not run again.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from slurmplug.config.schema import Config
from slurmplug.learning import training
from slurmplug.ledger.ledger import Ledger
from slurmplug.processes.one_shot import OneShotProcess
from slurmplug.reports.estimate import estimate
from slurmplug.reports.job_request import JobRequest
from slurmplug.sandbox import ClusterSpec, Sandbox
from slurmplug.sim.engine.job import SimJob, Workload
from tests.bench import quick_daemon
from tests.bench.live import written
from tests.bench.live_jobs import rigid
from tests.bench.live_runs import Design, history
from tests.bench.start_records import JobRecord, Told, as_json, figures, summary, table
from tests.live import real_jobs
from tests.live.daemon_process import DaemonProcess, daemon_beside

PAGE = Path(__file__).parents[2] / "docs" / "predictors.md"
JOBS = 150
LOOK = 0.5
"""seconds from one squeue --start to the next"""
BUSY = 999
"""the seed of the jobs that had to wait, in the history; those of `live_runs.history` are drawn with 0"""
OBSERVE = '[mode]\ndefault = "observe"\n'
MODEL = Config().predictors.runtime
TIMES = {"SLURM_TIME_FORMAT": "%s"}
ACCURACY = (0.1, 1.0)
"""the share of its time limit that a job runs, drawn evenly (about so in logs: Mu'alem and Feitelson 2001), before the
limit is rounded up to Slurm's minutes"""


def jobs(seed: int, count: int = JOBS) -> Workload:
    """Rigid jobs with time limits as users request them; every other one has no directives."""
    rng, drawn = np.random.default_rng([seed, 1]), rigid(seed, count)
    return replace(
        drawn,
        jobs=tuple(
            replace(
                job,
                managed=number % 2 == 0,
                time_limit=60.0 * np.ceil(seconds(job) / rng.uniform(*ACCURACY) / 60.0),
            )
            for number, job in enumerate(drawn.jobs)
        ),
    )


def seconds(job: SimJob) -> float:
    """Its run time."""
    return job.iterations / job.speed.at(job.gpus, 1)


def observed(workload: Workload, ledger: Path) -> list[JobRecord]:
    """The jobs under Slurm alone, beside a daemon that observes. ledger: the daemon's, before and after."""
    spec = ClusterSpec(scheduler=("bf_resolution=1",))
    with Sandbox(spec) as cluster, daemon_beside(cluster) as daemon:
        daemon.program = [sys.executable, "-c", quick_daemon.PROGRAM, "daemon", "--config"]
        daemon.environment = {"PYTHONPATH": str(PAGE.parents[1])}
        if ledger.exists():
            shutil.copy(ledger, daemon.ledger_path)
            shutil.chown(daemon.ledger_path, cluster.operator)
        daemon.start(OBSERVE)
        watch = Watch(cluster, daemon)
        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(watch.run)
            try:
                real_jobs.run(cluster, workload, script=watch.script)
            finally:
                watch.over.set()
            watching.result()
        daemon.pass_cycles()
        accounted = real_jobs.accounted(cluster, ",".join(str(number + 1) for number in range(len(workload.jobs))))
        daemon.signal(signal.SIGTERM)
        shutil.copy(daemon.ledger_path, ledger)
    return [watch.record(number + 1, job, accounted[number + 1][1:3]) for number, job in enumerate(workload.jobs)]


def train(path: Path) -> None:
    """Train the predictors on all jobs of a ledger, as its daemon would."""
    with closing(Ledger(path)) as ledger:
        child = OneShotProcess("training", quick_daemon.train, path, MODEL, training.saved_speeds(ledger))
        while (learnt := child.result()) is None:
            time.sleep(LOOK)
        training.save(ledger, learnt, time.time())
        child.kill()


class Watch:
    """What is told of the jobs of a cluster on which nothing else runs, so that their ids count from 1."""

    def __init__(self, cluster: Sandbox, daemon: DaemonProcess) -> None:
        self.over = threading.Event()
        self._cluster, self._daemon = cluster, daemon
        self._slurm: dict[int, list[Told]] = {}
        self._queue: dict[int, tuple[Told, float]] = {}
        self._estimates: list[Told | None] = []

    def run(self) -> None:
        """Look again and again, until it is over."""
        while not self.over.wait(LOOK):
            for job, start in self._squeue().items():
                self._slurm.setdefault(job, []).append(Told(time.time(), start))
            for row in self._daemon.query(_FORESEEN, self._cluster.name):
                told = Told(row["at"], row["start"], row["start_low"], row["start_high"])
                self._queue.setdefault(row["job_id"], (told, time.time()))

    def _squeue(self) -> dict[int, float]:
        lines = self._cluster.run("root", ["squeue", "--start", "-h", "-o", "%i %S"], env=TIMES).stdout.splitlines()
        rows = (line.split() for line in lines)
        return {int(job): float(start) for job, start in rows if start != "N/A"}

    def script(self, job: SimJob) -> str:
        """That of the job which is submitted now, once its start was estimated."""
        script = real_jobs.training(job)
        number = len(self._estimates)
        user = self._cluster.researchers[number % len(self._cluster.researchers)]
        self._estimates.append(self._estimated(job, script, user))
        return script

    def _estimated(self, job: SimJob, script: str, user: str) -> Told | None:
        lines = tuple(line for line in script.splitlines() if line.startswith("#PLUG"))
        request = JobRequest(
            user=user, nodes="n[1-4]", partition="gpu", account=ACCOUNTS[user], qos="normal", name=job.name,
            gpus=job.gpus, memory=1.0, time_limit=job.time_limit, script=lines, parts=1,
        )  # fmt: skip
        now = time.time()
        with closing(Ledger(self._daemon.ledger_path, readonly=True)) as ledger:
            found = estimate(ledger, request, now)
        start = found["start"]
        if start["median"] is None:
            return None
        ends = (start["low"], start["high"]) if found["outcomes"] else (None, None)
        return Told(now, start["median"], *ends)

    def record(self, number: int, job: SimJob, times: tuple[float, float]) -> JobRecord:
        """What was told of a job. number: its id; times: when it was submitted and started."""
        queue, seen = self._queue.get(number, (None, None))
        return JobRecord(
            *times,
            job.managed,
            job.time_limit / seconds(job),
            self._slurm.get(number, []),
            queue,
            seen,
            self._estimates[number - 1],
        )


ACCOUNTS = dict(zip(Sandbox.researchers, ("vision", "language", "vision"), strict=True))
_FORESEEN = """
SELECT job_id, at, foreseen_starts.start AS start, start_low, start_high
FROM foreseen_starts JOIN jobs ON jobs.id = job WHERE cluster = ?
"""


class Kept:
    """What was seen before, in a folder: the records of each seed, and the ledger with the history."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def records(self, seed: int) -> list[JobRecord]:
        """The records of a seed, whose jobs run if there are none."""
        path = self._folder / f"{seed}.json"
        if not path.exists():
            ledger = self._folder / f"{seed}.db"
            shutil.copy(self._history(), ledger)
            path.write_text(json.dumps(observed(jobs(seed), ledger)))
        return [JobRecord.of(row) for row in json.loads(path.read_text())]

    def _history(self) -> Path:
        path = self._folder / "history.db"
        if not path.exists():
            began = self._folder / "began.db"
            history(Design(jobs, real_jobs.training, {}, {}, {}), began)
            observed(jobs(BUSY), began)
            train(began)
            began.rename(path)
        return path


def command(asked: argparse.Namespace) -> str:
    """By which the page names the table."""
    return f"python -m tests.bench.live_starts --seeds {asked.seeds} --first-seed {asked.first_seed}"


def options() -> argparse.ArgumentParser:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for what was seen, which is not run again")
    parser.add_argument("--json", action="store_true", help="print the figures of each seed instead of the table")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is asked for, print the table, and write it where the page names the command."""
    asked = options().parse_args(argv)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        keep = asked.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        kept = Kept(keep)
        runs = [figures(kept.records(asked.first_seed + number)) for number in range(asked.seeds)]
    if asked.json:
        print(as_json(runs, asked.first_seed))
        return
    made = table(runs)
    print(f"{made}\n\n{summary(runs)}")
    page = PAGE.read_text()
    if (changed := written(page, command(asked), made)) != page:
        PAGE.write_text(changed)


if __name__ == "__main__":
    main(sys.argv[1:])
