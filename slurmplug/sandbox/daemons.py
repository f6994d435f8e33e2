"""The daemons of one sandbox: started, watched and ended by name, and noted in a state file for other processes."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from slurmplug.errors import SandboxError
from slurmplug.sandbox import processes
from slurmplug.sandbox.errors import StartFailed
from slurmplug.sandbox.layout import Layout
from slurmplug.sandbox.processes import Daemon, Process

_LISTEN, _ACCEPTS = "0A", "00010000"  # the state of a TCP socket and the flags of a Unix one that listen
_POLL = 0.02


class Daemons:
    """By name: munged, mariadbd, slurmdbd, slurmctld, n1, n2, ..."""

    def __init__(self, layout: Layout, cluster: str, table: Mapping[str, Daemon]) -> None:
        self.cluster = cluster
        self._layout = layout
        self._table = dict(table)
        self._noted: dict[str, Process] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._save()

    @classmethod
    def load(cls, layout: Layout) -> "Daemons":
        """Take over the daemons that another process started. Raises SandboxError where no sandbox is."""
        try:
            state = json.loads(layout.state.read_text())
        except FileNotFoundError as error:
            raise SandboxError(f"no sandbox in {layout.folder}: it was stopped already, or lies elsewhere") from error
        found = cls.__new__(cls)
        found.cluster = state["cluster"]
        found._layout = layout
        found._table = {name: Daemon(**fields) for name, fields in state["daemons"].items()}
        found._noted = {name: Process(**fields) for name, fields in state["processes"].items()}
        found._children = {}
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._table)

    def alive(self, name: str) -> bool:
        noted = self._noted.get(name)
        return noted is not None and processes.identify(noted.pid) == noted

    def spawn(self, name: str) -> None:
        """Start a daemon without waiting for it. Raises SandboxError if it runs already or is unknown."""
        daemon = self._daemon(name)
        if self.alive(name):
            raise SandboxError(f"{name} runs already")
        self._reap()
        with _uninterrupted():
            child = processes.spawn(daemon.account, daemon.argv, daemon.env, self._log(name))
            self._children[name] = child
            if process := processes.identify(child.pid):
                self._noted[name] = process
                self._save()

    def await_ready(self, *names: str, timeout: float = 30.0) -> None:
        """Wait until daemons answer. Raises StartFailed when one ends or is late."""
        limit = time.monotonic() + timeout
        for name in names:
            while not _is_ready(self._daemon(name)):
                if not self.alive(name):
                    raise self._failure(name, "ended while it started")
                if time.monotonic() > limit:
                    raise self._failure(name, f"did not answer within {timeout:g} s")
                time.sleep(_POLL)

    def end(self, name: str, signum: int, timeout: float = 20.0) -> None:
        """Signal a daemon and wait until it has ended. Raises SandboxError when it does not run or does not end."""
        self._daemon(name)
        if not self.alive(name):
            raise SandboxError(f"{name} does not run")
        process = self._noted[name]
        processes.send(process, signum)
        if not processes.ended(process, timeout):
            raise SandboxError(
                f"{name} (process {process.pid}) still runs {timeout:g} s after {signal.strsignal(signum)}"
            )
        self._reap()

    def end_all(self) -> None:
        """End every daemon, then every process of every job, by SIGKILL. Raises SandboxError if one survives."""
        with _uninterrupted():
            left = processes.kill(self._noted.values())
            # What was just being started may not have been seen: look again until there is nothing.
            while not left and (others := processes.of_cluster(self._layout.slurm_conf, self._layout.logs)):
                left = processes.kill(others)
            self._reap()
        if left:
            raise SandboxError(f"processes {[process.pid for process in left]} do not end; see them with ps -p")

    def _daemon(self, name: str) -> Daemon:
        try:
            return self._table[name]
        except KeyError:
            raise SandboxError(f"no daemon {name}; there are {', '.join(self._table)}") from None

    def _log(self, name: str) -> Path:
        return self._layout.logs / f"{name}.out"

    def _failure(self, name: str, what: str) -> StartFailed:
        lines = self._log(name).read_text(errors="replace").splitlines()[-8:]
        return StartFailed("\n  ".join([f"{name} {what}; its logs are in {self._layout.logs} and end with:", *lines]))

    def _reap(self) -> None:
        for name in [name for name in self._children if not self.alive(name)]:
            self._children.pop(name).wait()

    def _save(self) -> None:
        state = {
            "cluster": self.cluster,
            "daemons": {name: asdict(daemon) for name, daemon in self._table.items()},
            "processes": {name: asdict(process) for name, process in self._noted.items()},
        }
        fresh = self._layout.state.with_suffix(".new")
        fresh.touch(0o600)
        fresh.write_text(json.dumps(state, indent=1))
        os.replace(fresh, self._layout.state)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put a Ctrl-C off until the end of the block, so that no daemon is started without being noted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, _: pressed.append(signum))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _is_ready(daemon: Daemon) -> bool:
    if not _listens(daemon.listens):
        return False
    try:
        return (
            not daemon.probe
            or subprocess.run(
                daemon.probe, env=dict(daemon.env), capture_output=True, timeout=10, check=False
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def _listens(where: str | int) -> bool:
    """Look into the kernel's tables of sockets, see proc(5): to connect and say nothing would confuse the daemon."""
    if isinstance(where, str):
        sockets = map(str.split, Path("/proc/net/unix").read_text().splitlines()[1:])
        return any(fields[-1] == where and fields[3] == _ACCEPTS for fields in sockets)
    wanted = f":{where:04X}"
    return any(
        fields[1].endswith(wanted) and fields[3] == _LISTEN
        for table in map(Path, ("/proc/net/tcp", "/proc/net/tcp6"))
        if table.exists()
        for fields in map(str.split, table.read_text().splitlines()[1:])
    )
