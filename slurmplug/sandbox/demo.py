"""The demo: a throwaway cluster, real training jobs that request more GPUs than there are, and the daemon that acts."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from slurmplug.config.schema import LEDGER_VARIABLE
from slurmplug.errors import LedgerError, SandboxError
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.metric_queries import last_finished
from slurmplug.ledger.selection import JobId
from slurmplug.sandbox import ClusterSpec, Sandbox, processes, reachable
from slurmplug.sandbox.demo_jobs import JOBS, DemoJob
from slurmplug.sandbox.errors import WaitTimeout
from slurmplug.sandbox.processes import Process
from slurmplug.sandbox.view import EventPrinter, QueueState, gpu_count, job_title, make_view

SPEC = ClusterSpec()
"""four nodes of four GPUs"""
INTERVAL = 2.0
"""seconds from one cycle to the next"""
ITERATION = 1.0
"""seconds that an iteration takes at least"""
POLL_INTERVAL = 1.0
"""seconds from one reading of the ledger to the next"""
JOBS_TIMEOUT = 210.0
"""seconds that the jobs may take"""
START_TIMEOUT, STOP_TIMEOUT = 120.0, 30.0
"""seconds that the daemon may take until its first cycle has passed, and to end"""
COLUMNS = "jobid%6,user%6,jobname%13,gpus,state,elapsed,waited,iterations,maxiterations,target%15,value,stop,saved%6"

_PROGRAM = Path(sysconfig.get_path("scripts")) / "slurmplug"


def run(folder: Path) -> None:
    """Run the demo and show its reports; the folder then has acct.json, ledger.db and daemon.log.

    What an earlier demo left there is ended where it still runs, and removed.

    Raises:
        SandboxError: the demo cannot run here, took too long, or a job did not end as it should. The logs are in
            FOLDER/cluster.
    """
    os.umask(0o022)  # jobs of other users read the files
    folder = folder.absolute()
    _remove_earlier(folder)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with _terminate_as_interrupt():
        console.print("starting munged, MariaDB, slurmdbd, slurmctld and four slurmd")
        gpus = sum(node.gpus for node in SPEC.nodes)
        with Sandbox(SPEC, folder / "cluster") as cluster, make_view(console, gpus) as shown:
            run_jobs(cluster, JOBS, folder, shown)
        _show_reports(folder, console)


def run_jobs(
    cluster: Sandbox, jobs: Sequence[DemoJob], folder: Path, shown: EventPrinter, iteration: float = ITERATION
) -> None:
    """Submit the jobs to a running cluster and run the daemon until all have ended.

    Writes ledger.db and daemon.log into the folder. An iteration takes at least `iteration` seconds.

    Raises:
        SandboxError: users cannot reach this program, the daemon ended, or the jobs took too long.
    """
    _require_reachable(cluster)
    queue = _Submitter(cluster, jobs, iteration)
    with _daemon(cluster, folder) as daemon:
        queue.save_datasets()  # while the daemon starts
        cluster.wait(daemon.passed_a_cycle, START_TIMEOUT, "the daemon's first cycle")
        shown.add_event(f"slurmplug acts on {cluster.name} every {INTERVAL:g} s")
        with closing(Ledger(daemon.path, readonly=True)) as ledger:
            _watch(queue, daemon, ledger, shown)
    with closing(Ledger(daemon.path, readonly=True)) as ledger:
        ledger.backup(folder / "ledger.db")


class _Submitter:
    """Submits the jobs to a cluster, each when it is due."""

    def __init__(self, cluster: Sandbox, jobs: Sequence[DemoJob], iteration: float) -> None:
        self._cluster, self._iteration = cluster, iteration
        self._data = cluster.folder / "data"
        self._due = deque(sorted(jobs, key=lambda job: job.at))
        self._ids: dict[str, int] = {}
        self.size = sum(job.elements or 1 for job in jobs)

    @property
    def ids(self) -> list[JobId]:
        """The ids of the submitted jobs."""
        return [JobId(number) for number in self._ids.values()]

    def save_datasets(self) -> None:
        """Write the data sets of the jobs."""
        from slurmplug.sandbox import datasets  # noqa: PLC0415 scikit-learn takes seconds to load

        self._data.mkdir(exist_ok=True)
        datasets.save_all(self._data)

    def submit(self, seconds: float) -> Iterator[str]:
        """Submit the jobs that are due so many seconds after the start; yields a line for each."""
        while self._due and self._due[0].at <= seconds:
            job = self._due.popleft()
            after = [f"--dependency=afterok:{self._ids[job.after]}"] if job.after else []
            script = job.script(sys.executable, self._data, self._iteration)
            user = self._cluster.researchers[job.user]
            self._ids[job.name] = self._cluster.sbatch(user, script, *job.options(), *after)
            directives = job.directives or "(no directives)"
            yield f"submitted  {self._ids[job.name]} {job.name}: {gpu_count(job.gpus)} {directives}"


def _watch(queue: _Submitter, daemon: "_Daemon", ledger: Ledger, shown: EventPrinter) -> None:
    """Submit jobs and show the queue until every job has ended. Raises WaitTimeout after JOBS_TIMEOUT."""
    began = time.monotonic()
    while True:
        elapsed = time.monotonic() - began
        for line in queue.submit(elapsed):
            shown.add_event(line)
        state = QueueState.of(ledger, queue.ids)
        shown.show(state)
        if len(state.ended) == queue.size:
            return
        daemon.require_running()
        if elapsed > JOBS_TIMEOUT:
            left = ", ".join(f"{job_title(job)} ({job.facts.state})" for job in state.live)
            raise WaitTimeout(f"after {JOBS_TIMEOUT:g} s these jobs have not ended: {left}; daemon.log may say why")
        time.sleep(POLL_INTERVAL)


def _require_reachable(cluster: Sandbox) -> None:
    for account in (cluster.operator, *cluster.researchers):
        for path in (Path(sys.executable), _PROGRAM):
            if not reachable(account, path):
                raise SandboxError(f"{account} cannot read {path}; `make demo` installs slurmplug where every user can")
        tried = cluster.run(account, [sys.executable, "-c", "import slurmplug"], check=False)
        if tried.returncode != 0:
            error = tried.stderr.strip().splitlines()[-1:]
            raise SandboxError(f"{account} cannot import slurmplug: {error}; `make demo` installs it where all can")


# The daemon -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Daemon:
    """slurmplug's daemon; `path` is its ledger."""

    child: "subprocess.Popen[bytes]"
    path: Path

    def require_running(self) -> None:
        if self.child.poll() is not None:
            raise SandboxError(f"the daemon ended with status {self.child.returncode}; see daemon.log")

    def passed_a_cycle(self) -> bool:
        """Whether its ledger can be read already, and has a cycle that was finished."""
        self.require_running()
        try:
            with closing(Ledger(self.path, readonly=True)) as ledger:
                return last_finished(ledger)[0] > 0
        except LedgerError:
            return False


@contextmanager
def _daemon(cluster: Sandbox, folder: Path) -> Iterator[_Daemon]:
    """Run the daemon as the operator; its process is recorded for `_remove_earlier`."""
    home = cluster.home(cluster.operator)
    config, ledger = home / "slurmplug.toml", home / "ledger.db"
    config.write_text(_configuration(cluster, ledger))
    env = cluster.env(cluster.operator) | {"OMP_NUM_THREADS": "1"}
    argv = [str(_PROGRAM), "daemon", "--config", str(config)]
    child = processes.spawn(cluster.operator, argv, env, folder / "daemon.log")
    process = processes.identify(child.pid)
    try:
        if process is not None:
            _process_file(folder).write_text(json.dumps(asdict(process)))
        yield _Daemon(child, ledger)
    finally:
        if process is not None:
            _end(process)
        child.wait()
        _process_file(folder).unlink(missing_ok=True)


def _configuration(cluster: Sandbox, ledger: Path) -> str:
    settings = {
        "interval": INTERVAL,
        "mode.default": "act",
        "slurm.conf": str(cluster.layout.slurm_conf),
        "spool.path": str(cluster.spool),
        "ledger.path": str(ledger),
    }
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


def _end(process: Process) -> None:
    try:
        processes.send(process, signal.SIGTERM)
        processes.wait_until_ended(process, STOP_TIMEOUT)
    finally:
        processes.kill([process])


def _process_file(folder: Path) -> Path:
    return folder / "daemon.json"


# Before and after -----------------------------------------------------------------------------------------------------


def _remove_earlier(folder: Path) -> None:
    """End what still runs of an earlier demo, and remove its files."""
    folder.mkdir(parents=True, exist_ok=True)
    if _process_file(folder).exists():
        processes.kill([Process(**json.loads(_process_file(folder).read_text()))])
    cluster = folder / "cluster"
    if (cluster / "sandbox.json").exists():
        Sandbox.attach(cluster).down()
    elif cluster.is_symlink():
        cluster.unlink()
    elif cluster.exists():
        shutil.rmtree(cluster)
    for name in (_process_file(folder).name, "daemon.log", "acct.json", "ledger.db"):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does, and are delayed where that is."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _show_reports(folder: Path, console: Console) -> None:
    """Show `slurmplug acct` and one `slurmplug why`, and write the JSON of the former to acct.json.

    Raises:
        SandboxError: a job did not complete, or none was stopped.
    """
    ledger = folder / "ledger.db"
    acct = ["acct", "--allusers", "--starttime=now-1hour"]
    report = _slurmplug(ledger, *acct, "--json")
    (folder / "acct.json").write_text(report)
    jobs = json.loads(report)["jobs"]
    stopped = [job for job in jobs if job["stop"]]
    shown = [[*acct, f"--format={COLUMNS}"]] + [["why", max(stopped, key=_why_order)["jobid"]] for _ in stopped[:1]]
    console.print(f"\n$ export {LEDGER_VARIABLE}={ledger}")
    for argv in shown:
        console.print(f"$ slurmplug {shlex.join(argv)}\n{_slurmplug(ledger, *argv)}")
    console.print(
        f"{len(jobs)} jobs ended, {len(stopped)} of them stopped early; acct.json and ledger.db are in {folder}"
    )
    failed = [f"{job['jobid']} is {job['state']}" for job in jobs if job["state"] != "COMPLETED"]
    if failed or not stopped:
        raise SandboxError(f"not as expected, see daemon.log: {', '.join(failed) or 'no job was stopped'}")


def _why_order(job: Mapping[str, Any]) -> tuple[bool, float]:
    """The order of jobs by how much `why` shows: first the overload, then the GPU iterations that were saved."""
    return job["allowdowngrade"] is not None, (job["saved"] or 0) * job["gpus"]


def _slurmplug(ledger: Path, *argv: str) -> str:
    env = os.environ | {LEDGER_VARIABLE: str(ledger)}
    return subprocess.run([_PROGRAM, *argv], env=env, check=True, capture_output=True, text=True, timeout=60).stdout
