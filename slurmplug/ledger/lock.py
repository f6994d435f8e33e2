"""One daemon at a time: a lock on a file, held as long as its process lives, and whether one holds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurmplug.errors import AlreadyRunning, LedgerError


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold a lock: one daemon a ledger, and one a spool, which is one a cluster.

    Raises:
        AlreadyRunning: another daemon holds it.
        LedgerError: it cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be made: {error.strerror}; does its folder exist and is it this user's?"
        ) from error
    try:
        if os.geteuid() == 0:  # so that the daemon's account can take it later
            at = path.parent.stat()
            os.fchown(descriptor, at.st_uid, at.st_gid)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"another daemon holds {path}: stop it first") from error
        except OSError as error:  # a network file system mounted without locks
            raise LedgerError(f"{path} cannot be locked: {error.strerror}; mount it with locks") from error
        yield
    finally:
        os.close(descriptor)


def daemon_runs(ledger: Path) -> bool:
    """Whether a daemon holds the lock beside this ledger; True where that cannot be read."""
    try:
        descriptor = os.open(ledger.with_suffix(".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
