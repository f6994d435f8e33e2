"""The end of a job's output file, which may be anything: a pipe, a device, a link, gigabytes, binary."""

import os
import stat

BYTES = 32_768
"""read of a file, from its end"""
LINES = 200
"""shown of them"""


def end_of(path: str) -> list[str]:
    """The path, and the last lines of the file as far as this process' user may read it; else why they are not shown.

    It never waits for a writer. The lines have the characters of the file, unprintable ones among them.
    """
    try:
        data, size = _end_of(path)
    except OSError as error:
        return [path, f"cannot be read: {error.strerror}"]
    if data is None:
        return [path, "is not a regular file, so it is not opened"]
    lines = data.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
    if len(data) < size and len(lines) > 1:
        del lines[0]  # its beginning is missing
    shown = [_as_left_by_returns(line) for line in lines[-LINES:]]
    return [f"{path}: {size:,} bytes{', its end' if len(data) < size or len(lines) > LINES else ''}", *shown]


def _end_of(path: str) -> tuple[bytes | None, int]:
    """The last bytes of a regular file, None for another one, and its size. Raises OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a device or a pipe may do something to it
        return None, 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None, 0
        return os.pread(descriptor, BYTES, max(0, found.st_size - BYTES)), found.st_size
    finally:
        os.close(descriptor)


def _as_left_by_returns(line: str) -> str:
    """What a terminal shows last of a line that a progress bar writes again and again; tabs are spaces."""
    return line.rstrip("\r").rpartition("\r")[2].expandtabs()
