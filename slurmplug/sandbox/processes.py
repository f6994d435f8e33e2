"""Processes that outlive their parent: identified by id and start time, so that no other process is ever signalled."""

import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)  # errors of reading in /proc/PID of an ended process


@dataclass(frozen=True)
class Process:
    """A process: ids are reused, but unique together with the start time (clock ticks since boot, proc(5))."""

    pid: int
    started: int


@dataclass(frozen=True)
class DaemonCommand:
    """How to start a daemon, and when it is ready: it listens at a TCP port or at the path of a socket, and then the
    command `probe`, if there is one, succeeds.
    """

    account: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    listens: str | int
    probe: tuple[str, ...] = ()


def spawn(account: str, argv: Sequence[str], env: Mapping[str, str], output: Path) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that a Ctrl-C in the terminal does not reach it."""
    entry = pwd.getpwnam(account)
    with output.open("ab") as log:
        return subprocess.Popen(
            argv,
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            umask=0o022,
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def identify(pid: int) -> Process | None:
    """The process that has this id now; None if there is none, or a zombie."""
    fields = _stat(pid)
    return None if not fields or fields[0] in b"ZX" else Process(pid, int(fields[19]))


def send(process: Process, signum: int) -> None:
    """Signal a process, unless it has ended."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if identify(process.pid) == process:
            signal.pidfd_send_signal(handle, signum)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def wait_until_ended(process: Process, timeout: float) -> bool:
    """Wait until a process, of any parent, has ended; False when it still runs after `timeout` seconds."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if identify(process.pid) != process:
            return True
        watch = select.poll()
        watch.register(handle, select.POLLIN)
        return bool(watch.poll(timeout * 1000))
    finally:
        os.close(handle)


def kill(processes: Iterable[Process], timeout: float = 10.0) -> list[Process]:
    """End processes by SIGKILL, all at once; returns those that still run after `timeout` seconds."""
    targets = list(processes)
    for process in targets:
        send(process, signal.SIGKILL)
    limit = time.monotonic() + timeout
    return [process for process in targets if not wait_until_ended(process, max(0.0, limit - time.monotonic()))]


def cluster_processes(slurm_conf: Path, logs: Path) -> list[Process]:
    """All processes of a cluster: Slurm's programs with its slurm.conf in their environment or its logs open, jobs with
    its slurm.conf, and their descendants: a job can change its environment, but not its ancestors.
    """
    mark = b"SLURM_CONF=" + os.fsencode(slurm_conf)
    children: dict[int, list[int]] = {}
    roots: list[int] = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        if not (fields := _stat(pid)):
            continue
        children.setdefault(int(fields[1]), []).append(pid)
        environment = _read(pid, "environ").split(b"\0")
        in_job = any(entry.startswith(b"SLURM_JOB_ID=") for entry in environment)
        if (mark in environment and (in_job or _is_slurm(pid))) or (_is_slurm(pid) and _writes_to(pid, logs)):
            roots.append(pid)
    found: dict[int, Process] = {}
    while roots:
        pid = roots.pop()
        if pid not in found and (process := identify(pid)):
            found[pid] = process
            roots.extend(children.get(pid, ()))
    return list(found.values())


def _is_slurm(pid: int) -> bool:
    return _target(Path(f"/proc/{pid}/exe")).name.startswith("slurm")


def _writes_to(pid: int, logs: Path) -> bool:
    """From 24.11 a slurmstepd overwrites its environment, but it keeps the log of its node open."""
    try:
        return any(_target(handle).parent == logs for handle in Path(f"/proc/{pid}/fd").iterdir())
    except _GONE:
        return False


def _target(link: Path) -> Path:
    try:
        return link.readlink()
    except _GONE:
        return Path()


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on. The command before it, in parentheses, may contain anything."""
    stat = _read(pid, "stat")
    return stat[stat.rfind(b")") + 2 :].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except _GONE:
        return b""
