"""The demo: a throwaway cluster, real training jobs that want more GPUs than there are, and the daemon that acts."""

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
from slurmplug.ledger.selection import JobId
from slurmplug.sandbox import ClusterSpec, Sandbox, processes, reachable
from slurmplug.sandbox.demo_jobs import JOBS, DemoJob
from slurmplug.sandbox.errors import WaitTimeout
from slurmplug.sandbox.processes import Process
from slurmplug.sandbox.view import Lines, Scene, counted, named, view

SPEC = ClusterSpec()
"""four nodes of four GPUs"""
INTERVAL = 2.0
"""seconds from one cycle to the next"""
ITERATION = 1.0
"""seconds that an iteration takes at least"""
LOOK = 1.0
"""seconds from one look at the ledger to the next"""
LIMIT = 210.0
"""seconds that the jobs may take"""
START_LIMIT, STOP_LIMIT = 60.0, 30.0
"""seconds that the daemon may take to make its ledger, and to end"""
COLUMNS = "jobid%6,user%6,jobname%13,gpus,state,elapsed,waited,iterations,maxiterations,target%15,value,stop,saved%6"

_PROGRAM = Path(sysconfig.get_path("scripts")) / "slurmplug"


def run(folder: Path) -> None:
    """Play the demo and show what it did; FOLDER then holds acct.json, ledger.db and daemon.log.

    What an earlier demo left there is removed, and ended where it still runs.

    Raises:
        SandboxError: it cannot run here, took too long, or did not come out as it should. Logs are in FOLDER/cluster.
    """
    os.umask(0o022)  # jobs of other users read what is written here
    folder = folder.absolute()
    _clear(folder)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with _terminated_as_interrupted():
        console.print("starting munged, MariaDB, slurmdbd, slurmctld and four slurmd")
        gpus = sum(node.gpus for node in SPEC.nodes)
        with Sandbox(SPEC, folder / "cluster") as cluster, view(console, gpus) as shown:
            play(cluster, JOBS, folder, shown)
        _report(folder, console)


def play(cluster: Sandbox, jobs: Sequence[DemoJob], folder: Path, shown: Lines, iteration: float = ITERATION) -> None:
    """Submit the jobs to a running cluster, serve them with the daemon until all have ended, and keep its ledger.

    Writes ledger.db and daemon.log into the folder; `iteration` is what one takes at least, in seconds.

    Raises:
        SandboxError: users cannot reach this program, the daemon ended, or the jobs took too long.
    """
    _require_reachable(cluster)
    queue = _Queue(cluster, jobs, iteration)
    with _daemon(cluster, folder) as daemon:
        queue.save_datasets()  # while the daemon starts
        cluster.wait(daemon.has_ledger, START_LIMIT, "the daemon to make its ledger")
        shown.tell(f"slurmplug acts on {cluster.name} every {INTERVAL:g} s")
        with closing(Ledger(daemon.path, readonly=True)) as ledger:
            _watch(queue, daemon, ledger, shown)
    with closing(Ledger(daemon.path, readonly=True)) as ledger:
        ledger.backup(folder / "ledger.db")


class _Queue:
    """The jobs on their way into a cluster's queue."""

    def __init__(self, cluster: Sandbox, jobs: Sequence[DemoJob], iteration: float) -> None:
        self._cluster, self._iteration = cluster, iteration
        self._data = cluster.folder / "data"
        self._due = deque(sorted(jobs, key=lambda job: job.at))
        self._ids: dict[str, int] = {}
        self.size = sum(job.elements or 1 for job in jobs)

    @property
    def ids(self) -> list[JobId]:
        """Of what was submitted."""
        return [JobId(number) for number in self._ids.values()]

    def save_datasets(self) -> None:
        """What the jobs train on."""
        from slurmplug.sandbox import datasets  # noqa: PLC0415 scikit-learn takes seconds to load

        self._data.mkdir(exist_ok=True)
        datasets.save_all(self._data)

    def submit(self, seconds: float) -> Iterator[str]:
        """Submit what is due so many seconds after the beginning; a line each."""
        while self._due and self._due[0].at <= seconds:
            job = self._due.popleft()
            after = [f"--dependency=afterok:{self._ids[job.after]}"] if job.after else []
            script = job.script(sys.executable, self._data, self._iteration)
            user = self._cluster.researchers[job.user]
            self._ids[job.name] = self._cluster.sbatch(user, script, *job.options(), *after)
            yield f"submitted  {self._ids[job.name]} {job.name}: {counted(job.gpus)} {job.asks or '(no directive)'}"


def _watch(queue: _Queue, daemon: "_Daemon", ledger: Ledger, shown: Lines) -> None:
    """Submit and show until every job has ended."""
    began = time.monotonic()
    while True:
        elapsed = time.monotonic() - began
        for line in queue.submit(elapsed):
            shown.tell(line)
        scene = Scene.of(ledger, queue.ids)
        shown.show(scene)
        if len(scene.ended) == queue.size:
            return
        daemon.require_running()
        if elapsed > LIMIT:
            left = ", ".join(f"{named(job)} ({job.record.facts.state})" for job in scene.live)
            raise WaitTimeout(f"after {LIMIT:g} s there are still {left}")
        time.sleep(LOOK)


def _require_reachable(cluster: Sandbox) -> None:
    for account in (cluster.operator, *cluster.researchers):
        for path in (Path(sys.executable), _PROGRAM):
            if not reachable(account, path):
                raise SandboxError(f"{account} cannot read {path}; `make demo` installs slurmplug where every user can")
        tried = cluster.run(account, [sys.executable, "-c", "import slurmplug"], check=False)
        if tried.returncode != 0:
            why = tried.stderr.strip().splitlines()[-1:]
            raise SandboxError(f"{account} cannot import slurmplug: {why}; `make demo` installs it where all can")


# The daemon -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Daemon:
    """slurmplug's daemon; `path` is that of its ledger."""

    child: "subprocess.Popen[bytes]"
    path: Path

    def require_running(self) -> None:
        if self.child.poll() is not None:
            raise SandboxError(f"the daemon ended with status {self.child.returncode}; daemon.log tells why")

    def has_ledger(self) -> bool:
        """Whether its ledger can be read yet."""
        self.require_running()
        try:
            Ledger(self.path, readonly=True).close()
        except LedgerError:
            return False
        return True


@contextmanager
def _daemon(cluster: Sandbox, folder: Path) -> Iterator[_Daemon]:
    """Run the daemon under the operator's account; its process is noted for `_clear`."""
    home = cluster.home(cluster.operator)
    config, ledger = home / "slurmplug.toml", home / "ledger.db"
    config.write_text(_configuration(cluster, ledger))
    env = cluster.env(cluster.operator) | {"OMP_NUM_THREADS": "1"}
    argv = [str(_PROGRAM), "daemon", "--config", str(config)]
    child = processes.spawn(cluster.operator, argv, env, folder / "daemon.log")
    process = processes.identify(child.pid)
    try:
        if process is not None:
            _noted(folder).write_text(json.dumps(asdict(process)))
        yield _Daemon(child, ledger)
    finally:
        if process is not None:
            _end(process)
        child.wait()
        _noted(folder).unlink(missing_ok=True)


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
        processes.ended(process, STOP_LIMIT)
    finally:
        processes.kill([process])


def _noted(folder: Path) -> Path:
    return folder / "daemon.json"


# Before and after -----------------------------------------------------------------------------------------------------


def _clear(folder: Path) -> None:
    """End and remove what an earlier demo left."""
    folder.mkdir(parents=True, exist_ok=True)
    if _noted(folder).exists():
        processes.kill([Process(**json.loads(_noted(folder).read_text()))])
    cluster = folder / "cluster"
    if (cluster / "sandbox.json").exists():
        Sandbox.attach(cluster).down()
    elif cluster.is_symlink():
        cluster.unlink()
    elif cluster.exists():
        shutil.rmtree(cluster)
    for name in (_noted(folder).name, "daemon.log", "acct.json", "ledger.db"):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demo as Ctrl-C does, and are put off where that is."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _report(folder: Path, console: Console) -> None:
    """Show `slurmplug acct` and one `slurmplug why`, and keep the former's JSON.

    Raises:
        SandboxError: a job did not complete, or none was stopped.
    """
    ledger = folder / "ledger.db"
    acct = ["acct", "--allusers", "--starttime=now-1hour"]
    told = _slurmplug(ledger, *acct, "--json")
    (folder / "acct.json").write_text(told)
    jobs = json.loads(told)["jobs"]
    stopped = [job for job in jobs if job["stop"]]
    shown = [[*acct, f"--format={COLUMNS}"]] + [["why", max(stopped, key=_story)["jobid"]] for _ in stopped[:1]]
    console.print(f"\n$ export {LEDGER_VARIABLE}={ledger}")
    for argv in shown:
        console.print(f"$ slurmplug {shlex.join(argv)}\n{_slurmplug(ledger, *argv)}")
    console.print(
        f"{len(jobs)} jobs ended, {len(stopped)} of them stopped early; acct.json and ledger.db lie in {folder}"
    )
    amiss = [f"{job['jobid']} is {job['state']}" for job in jobs if job["state"] != "COMPLETED"]
    if amiss or not stopped:
        raise SandboxError(f"this is not as it should be: {', '.join(amiss) or 'no job was stopped'}")


def _story(job: Mapping[str, Any]) -> tuple[bool, float]:
    """How much `why` has to tell: of the overload, and of the iterations of a GPU that were spared."""
    return job["allowdowngrade"] is not None, (job["saved"] or 0) * job["gpus"]


def _slurmplug(ledger: Path, *argv: str) -> str:
    env = os.environ | {LEDGER_VARIABLE: str(ledger)}
    return subprocess.run([_PROGRAM, *argv], env=env, check=True, capture_output=True, text=True, timeout=60).stdout
