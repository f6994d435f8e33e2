"""The file that a run's reports are written to, in a folder where every user may put files and none but the daemon's
group can list them.

This runs inside users' programs, so it imports the standard library only and runs on Python 3.8.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from contextlib import suppress

KEY_BYTES = 32


def opened_file(folder: str, run: str, since: float, key: bytes | None = None) -> int:
    """Open the run's report file. Raises OSError.

    With a key its name is the same in all of the user's processes, and cannot be guessed by others, who could take it
    first, or see how much the job reports. Without one, or where the file with that name was last written before
    `since`, it is the run's, and where that is taken, one with a random suffix.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    if key:
        with suppress(OSError):
            return _opened(f"{folder}/{run}{_suffix(key, run)}.jsonl", flags, since)
    with suppress(OSError):
        return _opened(f"{folder}/{run}.jsonl", flags, since)
    return _opened(f"{folder}/{run}.{os.urandom(8).hex()}.jsonl", flags | os.O_EXCL, since)


def user_key(home: str) -> bytes | None:
    """A secret of the user's, made at its first use in ~/.local/state/slurmplug; None where there is no home for it."""
    if not os.path.isabs(home) or not os.path.isdir(home):
        return None
    path = f"{home}/.local/state/slurmplug/report.key"
    try:
        return _key(path)
    except OSError:
        pass
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        new = f"{path}.{os.urandom(8).hex()}"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, os.urandom(KEY_BYTES))
        finally:
            os.close(file)
        try:
            os.link(new, path)  # whole or not at all; another process may be quicker
        finally:
            os.unlink(new)
    except FileExistsError:
        pass
    except OSError:
        return None
    try:
        return _key(path)
    except OSError:
        return None


def _key(path: str) -> bytes:
    """Raises OSError where nobody has made one yet, or others could have, or can read it."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        key = os.read(file, KEY_BYTES)
    finally:
        os.close(file)
    trusted = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if not trusted or len(key) < KEY_BYTES:
        raise PermissionError(f"{path} is not a secret of this user's")
    return key


def _suffix(key: bytes, run: str) -> str:
    return "." + hmac.new(key, run.encode(), hashlib.sha256).hexdigest()[:32]


def _opened(path: str, flags: int, since: float) -> int:
    file = os.open(path, flags, 0o640)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or (found.st_size and found.st_mtime < since):
        os.close(file)
        raise FileExistsError(f"{path} belongs to another user or an earlier job, or is not a regular file")
    os.fchmod(file, 0o640)  # whatever the umask: the daemon reads it through the group
    return file
