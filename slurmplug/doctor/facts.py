"""Reads a site once for its checks: Slurm's settings and rights, and the paths of the configuration."""

import contextlib
import os
import pwd
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from slurmplug.cluster import pyslurm_process
from slurmplug.cluster.mail import Mailer
from slurmplug.cluster.site_client import SiteClient
from slurmplug.config.schema import Config
from slurmplug.doctor.values import Facts, PathStatus
from slurmplug.errors import ReadFailed

Statuses: TypeAlias = Mapping[Path, PathStatus]
_MOUNTS = Path("/proc/self/mountinfo")
_EXPORTS = Path("/var/lib/nfs/etab")
"""What this machine's NFS server exports at the moment, exportfs(8)."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


def statuses_in_spool(config: Config) -> Statuses:
    """The status of the spool and of its two folders, by their paths."""
    spool = config.spool.path
    return {path: path_status(path) for path in (spool, spool / "reports", spool / "requests")}


def collect_facts(config: Config, shared: Statuses | None = None) -> Facts:
    """Everything the checks need, as this process' user sees it; what cannot be read is named in `read_errors`.

    shared: the statuses of the folders that other machines mount, as `statuses_in_spool` and of `takeover.folder`,
    without those that did not answer; None to find them out.
    """
    uid = os.geteuid()
    name = _user_name(uid)
    client = SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout)
    read_errors: dict[str, str] = {}
    settings: dict[str, str] = {}
    clock_offset, level, others, identity = None, "", 0, ""
    siblings: tuple[str, ...] = ()
    try:
        before = time.time()
        reply = client.slurm_conf()
        settings, identity = dict(reply.values), reply.identity
        clock_offset = _clock_offset(reply.as_of, before, time.time())
        siblings = client.federation_siblings()
        others = len(client.node_hosts() - {socket.gethostname(), socket.gethostname().split(".")[0]})
    except ReadFailed as error:
        read_errors["Slurm"] = str(error)
    if "Slurm" not in read_errors:
        try:
            level = client.admin_levels().get(name, "")
        except ReadFailed as error:
            read_errors["accounting"] = str(error)
    spool, takeover = config.spool.path, config.takeover.folder

    def status(path: Path) -> PathStatus:
        return path_status(path) if shared is None else shared.get(path) or PathStatus(str(path), answers=False)

    return Facts(
        config=config,
        user=name,
        uid=uid,
        gid=os.getegid(),
        host=socket.gethostname(),
        settings=settings,
        identity=identity,
        clock_offset=clock_offset,
        admin_level=level,
        other_nodes=others,
        siblings=siblings,
        spool=status(spool),
        reports=status(spool / "reports"),
        requests=status(spool / "requests"),
        ledger=path_status(config.ledger.path.parent),
        ledger_mode=_mode(config.ledger.path),
        shared=status(takeover) if takeover else None,
        read_errors=read_errors,
        mail_problem="" if config.notifications.mail == "off" else Mailer(settings, config.slurm.timeout).problem,
    )


def with_pyslurm(facts: Facts) -> Facts:
    """The facts with a trial of pyslurm, where the configuration chooses it and Slurm answers."""
    slurm = facts.config.slurm
    if slurm.client != "pyslurm" or "Slurm" in facts.read_errors:
        return facts
    return replace(facts, pyslurm=pyslurm_process.trial(slurm.conf, facts.settings.get("SLURM_VERSION", "")))


def path_status(path: Path) -> PathStatus:
    """The status of a folder."""
    try:
        at = path.stat()
        free = os.statvfs(path)
    except OSError as error:
        return PathStatus(str(path), problem=error.strerror or str(error))
    return PathStatus(
        path=str(path),
        problem="" if path.is_dir() else "is not a folder",
        owner=at.st_uid,
        group=at.st_gid,
        mode=at.st_mode & 0o7777,
        readable=os.access(path, os.R_OK | os.X_OK, effective_ids=True),
        writable=os.access(path, os.W_OK | os.X_OK, effective_ids=True),
        file_system=_file_system(path),
        exported=_exported(path),
        free=free.f_bavail * free.f_frsize,
    )


def _mode(path: Path) -> int | None:
    """A file's mode, without others' rights if a folder above lets no others in; None if it cannot be read."""
    try:
        real = path.resolve(strict=True)
        closed = any(not folder.stat().st_mode & 0o001 for folder in real.parents)
        return real.stat().st_mode & (0o7770 if closed else 0o7777)
    except OSError:
        return None


def _user_name(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _clock_offset(reported: float | None, before: float, after: float) -> float | None:
    """The smallest possible offset of a clock that reported a whole second at some time between two of ours."""
    if reported is None:
        return None
    if reported > after:
        return reported - after
    return min(0.0, reported + 1.0 - before)


def _exported(path: Path) -> bool:
    """Whether this machine's NFS server exports it or a folder above."""
    try:
        lines = _EXPORTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    real = path.resolve()
    folders = (_unescaped(fields[0]) for line in lines if (fields := line.split()))
    return any(real.is_relative_to(folder) for folder in folders)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


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
        point = _unescaped(fields[4]) if len(fields) > 4 else ""
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if point and inside and len(point) >= best:  # the last of several mounted there is the one seen
            best, kind = len(point), options.split()[0] if options else ""
    return kind
