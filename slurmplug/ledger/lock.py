"""One daemon at a time: a lock on a file, held as long as its process lives, and whether one holds it."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurmplug.errors import AlreadyRunning, LedgerError, advice
from slurmplug.ledger.owner import as_owner_of

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Neither through a link nor waiting for the other end of a pipe."""


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold a lock: one daemon a ledger, and one a spool, which is one a cluster.

    Raises:
        AlreadyRunning: another daemon holds it.
        LedgerError: it cannot be made.
    """
    try:
        with as_owner_of(path.parent):  # so that the daemon's account can take it later
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o600)
    except OSError as error:
        what_to_do = advice(error, "; does its folder exist and is it this user's?")
        raise LedgerError(f"{path} cannot be made: {error.strerror}{what_to_do}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LedgerError(f"{path} is not a regular file: remove it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"another daemon holds {path}: stop it first") from error
        except OSError as error:  # a network file system mounted without locks
            raise LedgerError(f"{path} cannot be locked: {error.strerror}; put it where locks work") from error
        yield
    finally:
        os.close(descriptor)


def daemon_runs(ledger: Path) -> bool:
    """Whether a daemon holds the lock beside this ledger; True where that cannot be read."""
    try:
        descriptor = os.open(ledger.with_suffix(".lock"), os.O_RDONLY | _SAFELY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
