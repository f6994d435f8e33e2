"""The daemons of one sandbox: started, watched and ended by name, and noted in a state file for other processes."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from slurmplug.sandbox import processes
from slurmplug.sandbox.errors import SandboxError, StartFailed
from slurmplug.sandbox.layout import Layout
from slurmplug.sandbox.processes import Daemon, Process

_LISTEN = b"0A"  # state of a socket in /proc/net/tcp, see proc(5)
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
        child = processes.spawn(daemon.account, daemon.argv, daemon.env, self._log(name))
        self._children[name] = child
        process = processes.identify(child.pid)
        if process is None:
            raise self._failure(name, "ended at once")
        self._noted[name] = process
        self._save()

    def await_ready(self, *names: str, timeout: float = 30.0) -> None:
        """Wait until daemons answer at their socket. Raises StartFailed when one ends or is late."""
        limit = time.monotonic() + timeout
        for name in names:
            while not _listens(self._daemon(name).listens):
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
        left = processes.kill(self._noted.values())
        # What was just being started may not have been seen: look again until there is nothing.
        while not left and (others := processes.of_cluster(self._layout.slurm_conf)):
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
        for name, child in list(self._children.items()):
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.1 if not self.alive(name) else 0)
                del self._children[name]

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


def _listens(where: str | int) -> bool:
    if isinstance(where, str):
        return Path(where).is_socket()
    wanted = b":%04X" % where
    return any(
        fields[1].endswith(wanted) and fields[3] == _LISTEN
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(table).exists()
        for fields in map(bytes.split, Path(table).read_bytes().splitlines()[1:])
    )
