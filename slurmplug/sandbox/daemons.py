"""The daemons of one sandbox: started, checked and ended by name, and recorded in a state file for other processes."""

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
from slurmplug.sandbox.processes import DaemonCommand, Process

_LISTEN, _ACCEPTS = "0A", "00010000"  # the state of a TCP socket and the flags of a Unix one that listen
_POLL = 0.02


class Daemons:
    """The daemons by name: munged, mariadbd, slurmdbd, slurmctld, n1, n2, ..."""

    def __init__(self, layout: Layout, cluster: str, commands: Mapping[str, DaemonCommand]) -> None:
        self.cluster = cluster
        self._layout = layout
        self._commands = dict(commands)
        self._processes: dict[str, Process] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._save()

    @classmethod
    def load(cls, layout: Layout) -> "Daemons":
        """The daemons that another process started. Raises SandboxError where there is no sandbox."""
        try:
            state = json.loads(layout.state.read_text())
        except FileNotFoundError as error:
            raise SandboxError(
                f"no sandbox in {layout.folder}: it was stopped already, or is in another folder"
            ) from error
        found = cls.__new__(cls)
        found.cluster = state["cluster"]
        found._layout = layout
        found._commands = {name: DaemonCommand(**fields) for name, fields in state["daemons"].items()}
        found._processes = {name: Process(**fields) for name, fields in state["processes"].items()}
        found._children = {}
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all daemons, running or not."""
        return tuple(self._commands)

    @property
    def path(self) -> str:
        """The PATH in which the daemons, and with them the clients of their Slurm, are found."""
        return self._commands["slurmctld"].env["PATH"]

    def alive(self, name: str) -> bool:
        """Whether a daemon runs."""
        process = self._processes.get(name)
        return process is not None and processes.identify(process.pid) == process

    def spawn(self, name: str) -> None:
        """Start a daemon without waiting for it. Raises SandboxError if it runs already or is unknown."""
        command = self._command(name)
        if self.alive(name):
            raise SandboxError(f"{name} is already running: stop it first")
        self._reap()
        with _uninterrupted():
            child = processes.spawn(command.account, command.argv, command.env, self._log(name))
            self._children[name] = child
            if process := processes.identify(child.pid):
                self._processes[name] = process
                self._save()

    def await_ready(self, *names: str, timeout: float = 30.0) -> None:
        """Wait until daemons answer. Raises StartFailed when one ends or takes longer than `timeout` seconds."""
        limit = time.monotonic() + timeout
        for name in names:
            while not _is_ready(self._command(name)):
                if not self.alive(name):
                    raise self._failure(name, "ended while it started")
                if time.monotonic() > limit:
                    raise self._failure(name, f"did not answer within {timeout:g} s")
                time.sleep(_POLL)

    def end(self, name: str, signum: int, timeout: float = 20.0) -> None:
        """Signal a daemon and wait until it has ended. Raises SandboxError when it does not run or does not end."""
        self._command(name)
        if not self.alive(name):
            raise SandboxError(f"{name} is not running: start it first")
        process = self._processes[name]
        processes.send(process, signum)
        if not processes.wait_until_ended(process, timeout):
            raise SandboxError(
                f"{name} (process {process.pid}) still runs {timeout:g} s after {signal.strsignal(signum)}"
            )
        self._reap()

    def end_all(self) -> None:
        """End every daemon, then every process of every job, by SIGKILL. Raises SandboxError if one survives."""
        with _uninterrupted():
            left = processes.kill(self._processes.values())
            # A process that was just being started may be missed: repeat until none is found.
            while not left and (others := processes.cluster_processes(self._layout.slurm_conf, self._layout.logs)):
                left = processes.kill(others)
            self._reap()
        if left:
            raise SandboxError(f"processes {[process.pid for process in left]} do not end; see them with ps -p")

    def _command(self, name: str) -> DaemonCommand:
        try:
            return self._commands[name]
        except KeyError:
            raise SandboxError(f"no daemon {name}; there are {', '.join(self._commands)}") from None

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
            "daemons": {name: asdict(command) for name, command in self._commands.items()},
            "processes": {name: asdict(process) for name, process in self._processes.items()},
        }
        fresh = self._layout.state.with_suffix(".new")
        fresh.touch(0o600)
        fresh.write_text(json.dumps(state, indent=1))
        os.replace(fresh, self._layout.state)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay a Ctrl-C until the end of the block, so that no daemon is started without being recorded."""
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


def _is_ready(daemon: DaemonCommand) -> bool:
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
    """Whether a socket listens, by the tables in proc(5): to connect and send nothing would confuse the daemon."""
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
