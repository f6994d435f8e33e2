"""Root acts as the owner of a folder in it, since who owns a folder decides where the names in it lead."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slurmplug.errors import LedgerError

ROOT = 0


@contextmanager
def as_owner_of(folder: Path) -> Iterator[None]:
    """Within it, root has the rights of the folder's owner alone; anyone else, and root in its own folder, as before.

    It holds for the whole process: no other thread may rely on root's rights meanwhile.

    Raises:
        OSError: the folder cannot be reached.
        LedgerError: this root may not become its owner.
    """
    uid, gid = _owner(folder)
    if os.geteuid() != ROOT or uid == ROOT:
        yield
        return
    groups, own = os.getgroups(), os.getegid()
    try:
        try:
            os.setgroups(_groups(uid, gid))
            os.setegid(gid)
            os.seteuid(uid)
        except OSError as error:
            raise _not_possible(folder, uid, error) from error
        yield
    finally:
        os.seteuid(ROOT)
        os.setegid(own)
        if os.getgroups() != groups:
            os.setgroups(groups)


def become_owner_of(folder: Path) -> None:
    """As `as_owner_of`, for good: a daemon that root starts runs as the account that its ledger is of.

    A folder that cannot be reached is left to who opens its files.

    Raises:
        LedgerError
    """
    try:
        uid, gid = _owner(folder)
    except OSError:
        return
    if os.geteuid() != ROOT or uid == ROOT:
        return
    try:
        os.setgroups(_groups(uid, gid))
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise _not_possible(folder, uid, error) from error


def _owner(folder: Path) -> tuple[int, int]:
    at = folder.stat()
    return at.st_uid, at.st_gid


def _groups(uid: int, gid: int) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:  # an account that this machine does not know
        return [gid]


def _not_possible(folder: Path, uid: int, error: OSError) -> LedgerError:
    return LedgerError(
        f"{folder} is of the uid {uid}, whom root cannot become here ({error.strerror}): run it as that user"
    )
