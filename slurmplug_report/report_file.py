"""The file that a run's reports are written to, in a folder where every user may put files.

This runs inside users' programs, so it imports the standard library only and runs on Python 3.8.
"""

from __future__ import annotations

import os
import stat


def opened_file(folder: str, run: str, since: float) -> int:
    """Open the run's report file, or one with a random suffix where that name is taken: by another user, or by a file
    that was last written before `since`. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return _opened(f"{folder}/{run}.jsonl", flags, since)
    except OSError:
        return _opened(f"{folder}/{run}.{os.urandom(8).hex()}.jsonl", flags | os.O_EXCL, since)


def _opened(path: str, flags: int, since: float) -> int:
    file = os.open(path, flags, 0o640)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or (found.st_size and found.st_mtime < since):
        os.close(file)
        raise FileExistsError(f"{path} belongs to another user or an earlier job, or is no regular file")
    os.fchmod(file, 0o640)  # whatever the umask: the daemon reads it through the group
    return file
