"""One look at a site for `doctor.py`: Slurm's settings and rights, and the paths of the configuration."""

import contextlib
import os
import pwd
import re
import socket
import time
from pathlib import Path

from slurmplug.cluster.site_client import SiteClient
from slurmplug.config.schema import Config
from slurmplug.doctor.checks import Facts, Place
from slurmplug.errors import ReadFailed

_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def look(config: Config) -> Facts:
    """See everything once, with the eyes of this process's user; what does not answer is told as trouble."""
    uid = os.geteuid()
    name = _name(uid)
    client = SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout)
    trouble: dict[str, str] = {}
    settings: dict[str, str] = {}
    clock, level, others = None, "", 0
    try:
        before = time.time()
        slurm_conf = client.slurm_conf()
        settings, clock = dict(slurm_conf.values), _apart(slurm_conf.as_of, before, time.time())
        others = len(client.node_hosts() - {socket.gethostname(), socket.gethostname().split(".")[0]})
    except ReadFailed as error:
        trouble["Slurm"] = str(error)
    if "Slurm" not in trouble:
        try:
            level = client.admin_levels().get(name, "")
        except ReadFailed as error:
            trouble["accounting"] = str(error)
    spool = config.spool.path
    return Facts(
        config=config,
        user=name,
        uid=uid,
        gid=os.getegid(),
        host=socket.gethostname(),
        settings=settings,
        clock=clock,
        admin_level=level,
        other_nodes=others,
        spool=place(spool),
        reports=place(spool / "reports"),
        requests=place(spool / "requests"),
        ledger=place(config.ledger.path.parent),
        ledger_mode=_mode(config.ledger.path),
        shared=place(config.takeover.folder) if config.takeover.folder else None,
        trouble=trouble,
    )


def place(path: Path) -> Place:
    """A folder as it is."""
    try:
        at = path.stat()
        free = os.statvfs(path)
    except OSError as error:
        return Place(str(path), problem=error.strerror or str(error))
    return Place(
        path=str(path),
        problem="" if path.is_dir() else "is not a folder",
        owner=at.st_uid,
        group=at.st_gid,
        mode=at.st_mode & 0o7777,
        readable=os.access(path, os.R_OK | os.X_OK, effective_ids=True),
        writable=os.access(path, os.W_OK | os.X_OK, effective_ids=True),
        kind=_file_system(path),
        free=free.f_bavail * free.f_frsize,
    )


def _mode(path: Path) -> int | None:
    """A file's, less what it would let others do where a folder above lets none of them in."""
    try:
        real = path.resolve(strict=True)
        closed = any(not folder.stat().st_mode & 0o001 for folder in real.parents)
        return real.stat().st_mode & (0o7770 if closed else 0o7777)
    except OSError:
        return None


def _name(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _apart(told: float | None, before: float, after: float) -> float | None:
    """How far a clock is off that tells whole seconds at some time between two of ours: the least that it can be."""
    if told is None:
        return None
    if told > after:
        return told - after
    return min(0.0, told + 1.0 - before)


def _file_system(path: Path) -> str:
    """The type of the longest mount point above it (proc(5), mountinfo)."""
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, kind = -1, ""
    for line in lines:
        mount, _, options = line.partition(" - ")
        fields = mount.split()
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4]) if len(fields) > 4 else ""
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= best:  # the last of several mounted there is the one seen
            best, kind = len(point), options.split()[0] if options else ""
    return kind
