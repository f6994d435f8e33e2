"""Copies of the ledger: made, checked, and restored.

A copy is older than what Slurm has. Once one is restored, no SiteFactor in it counts as known, and requests in the
spool that it does not know are withdrawn: what is newer is read from Slurm and from the spool again.
"""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from slurmplug.errors import LedgerError
from slurmplug.ledger.database import GROUP_READS, LedgerFile
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.owner import ROOT, as_owner_of
from slurmplug.ledger.schema import MIGRATIONS
from slurmplug.spool.requests import RequestKind, Requests

NEWEST, BEFORE = "ledger.db", "ledger.before.db"
"""In the takeover's folder: the last copy, and the one before it."""


def publish(ledger: Path, folder: Path, may: Callable[[], bool]) -> None:
    """Copy the ledger, while it is in use, into the folder that the controllers share; the copy before is kept too.

    `may`: called last; where it says that this daemon is no longer the one that acts, nothing is published.

    Raises:
        LedgerError
    """
    local, shared = ledger.with_name(f"{ledger.name}.copying"), folder / f".{NEWEST}.coming"
    with _advice(f"no copy of {ledger} can be made in {folder}"):
        local.unlink(missing_ok=True)
        try:
            local.touch(0o600)
            with closing(Ledger(ledger, readonly=True)) as source:
                source.backup(local)
            _copy(local, shared)
        finally:
            local.unlink(missing_ok=True)
        if may():
            with suppress(FileNotFoundError):
                os.replace(folder / NEWEST, folder / BEFORE)
            os.replace(shared, folder / NEWEST)


def newest(folder: Path) -> tuple[Path, float] | None:
    """The newest copy in the folder that is not damaged, and when its last cycle began; None where there is none."""
    found = []
    for path in (folder / NEWEST, folder / BEFORE):
        with suppress(LedgerError):
            found.append((path, last_cycle(path)))
    return max(found, key=lambda each: each[1]) if found else None


def last_cycle(path: Path) -> float:
    """When the last cycle in a ledger began, minus infinity where there is none.

    Raises:
        LedgerError: it is not there, damaged, or of a newer release.
    """
    with _advice(f"{path} is not a ledger"), closing(_opened(path)) as db:
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if not 0 < version <= len(MIGRATIONS):
            why = "was written by a newer slurmplug: upgrade this one" if version else "is not a ledger, or empty"
            raise LedgerError(f"{path} {why}")
        if (damage := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise LedgerError(f"{path} is damaged, {damage}: take another copy")
        started = db.execute("SELECT max(started) FROM cycles").fetchone()[0]
        return float("-inf") if started is None else float(started)


class Installed(NamedTuple):
    """A copy in the place of the ledger. `aside`: where the one before is now, if there was one."""

    copy: Path
    last_cycle: float
    """when the last cycle in it began"""
    aside: Path | None
    expected: frozenset[tuple[int, int]]
    """the runs, as (job id, restarts), to which requests are open"""


def take_over(folder: Path, ledger: Path) -> Installed | None:
    """Install the newest copy in the takeover's folder, if it is newer than the ledger; None if it is not.

    Raises:
        LedgerError: this host's ledger is damaged, or the copy cannot be installed.
    """
    own = last_cycle(ledger) if ledger.exists() else float("-inf")
    found = newest(folder)
    return None if found is None or found[1] <= own else install(found[0], ledger)


def restore(copy: Path, ledger: Path, spool: Path) -> Path | None:
    """Restore a copy, while no daemon runs. Returns where the ledger that it replaces was moved to, if there was one.

    Raises:
        LedgerError: as `install`
    """
    installed = install(copy, ledger)
    withdraw_unknown(spool, installed.expected)
    return installed.aside


def install(copy: Path, ledger: Path) -> Installed:
    """Put a copy in the place of the ledger; `withdraw_unknown` is to follow.

    Raises:
        LedgerError: the copy is damaged, and nothing was changed; or it cannot be put in place.
    """
    last = last_cycle(copy)
    coming = ledger.with_name(f"{ledger.name}.coming")
    with _advice(f"{copy} cannot be put in the place of {ledger}"), closing(_opened(copy)) as source:
        source.execute("PRAGMA schema_version").fetchone()  # all of its files are open before root becomes another
        with as_owner_of(ledger.parent):
            coming.unlink(missing_ok=True)
            _reserve(coming)
            with closing(sqlite3.connect(coming)) as target:
                source.backup(target)
            _owned_as(coming, ledger)
            aside = _moved_aside(ledger)
            os.replace(coming, ledger)
            with closing(Ledger(ledger)) as installed:
                installed.mark_unknown()
                expected = frozenset((o.job.job_id, o.restarts) for o in installed.open_operations())
    return Installed(copy, last, aside, expected)


def withdraw_unknown(spool: Path, expected: Collection[tuple[int, int]]) -> None:
    """Withdraw the requests to other runs than these, which a copy does not know: their operation and rule are lost."""
    requests = Requests(spool)
    kinds: tuple[RequestKind, ...] = ("stop", "checkpoint")
    with suppress(OSError), as_owner_of(spool):  # a spool that is not mounted has no requests
        for kind in kinds:
            with suppress(OSError):
                for run in requests.open_runs(kind):
                    if (run.job_id, run.restart) not in expected:
                        requests.withdraw(run, kind)


def write(ledger: LedgerFile, file: Path) -> None:
    """Copy the ledger to a new file, which only its owner can read; as root, the owner of its folder.

    Raises:
        FileExistsError: it exists.
        OSError: it cannot be made in its folder.
        LedgerError: the copy failed, and no file is left.
    """
    with as_owner_of(file.parent):
        _reserve(file)
        try:
            ledger.backup(file)
        except BaseException:
            file.unlink()
            raise


def _reserve(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _opened(path: Path) -> sqlite3.Connection:
    """Read-only, and without writing beside it."""
    if not path.is_file():
        raise LedgerError(f"{path} is not there, or no file")
    in_use = path.with_name(f"{path.name}-wal").exists()
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{'' if in_use else '&immutable=1'}", uri=True)


def _moved_aside(ledger: Path) -> Path | None:
    if not ledger.exists():
        return None
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    aside = next(
        path
        for number in range(1_000)
        if not (path := ledger.with_name(f"{ledger.name}.{stamp}{f'.{number}' if number else ''}")).exists()
    )
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.rename(ledger.with_name(ledger.name + ending), aside.with_name(aside.name + ending))
    return aside


def _owned_as(path: Path, like: Path) -> None:
    """Give it the owner of the ledger that it replaces, else of its folder: root restores, the daemon writes."""
    at = (like if like.exists() else like.parent).stat()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.geteuid() == ROOT:
            os.fchown(descriptor, at.st_uid, at.st_gid)
        os.fchmod(descriptor, at.st_mode & 0o777 if like.exists() else GROUP_READS)
    finally:
        os.close(descriptor)


def _copy(source: Path, target: Path) -> None:
    """Copy a file and sync it to the disk."""
    with source.open("rb") as read:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as write:
            shutil.copyfileobj(read, write, 1 << 20)
            write.flush()
            os.fsync(write.fileno())


@contextmanager
def _advice(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{what}: {error}") from error
