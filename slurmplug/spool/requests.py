"""Requests to jobs, and the list of jobs that wait for admission: files that the daemon writes for others to read."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from slurmplug.spool.run_files import REQUEST_NAME, REQUESTS, UNFINISHED, names_in, opened_folder, reason_of
from slurmplug.spool.values import RunId
from slurmplug_report.report import NOTICE_BYTES

RequestKind: TypeAlias = Literal["stop", "checkpoint"]


class Request(NamedTuple):
    """A request to a run, to be written, or to be withdrawn where `content` is None."""

    run: RunId
    kind: RequestKind
    content: str | None = ""


class Requests:
    """The daemon's requests to runs. Its methods raise OSError where the spool cannot be read or written."""

    def __init__(self, spool: Path) -> None:
        self._folder = spool / REQUESTS

    def issue(self, run: RunId, kind: RequestKind, content: str = "") -> None:
        """Write a request in place of one that is open: a second request for a checkpoint is for another one.

        A job sees the whole request or none. Without content, as earlier releases wrote it, it says no more than its
        name.
        """
        _write_for_jobs(self._path(run, kind), content.encode())

    def withdraw(self, run: RunId, kind: RequestKind) -> None:
        """Remove a request, where there is one."""
        self._path(run, kind).unlink(missing_ok=True)

    def write(self, requests: Sequence[Request]) -> list[str]:
        """Issue or withdraw each; why it could not be, empty where it was. Does not raise."""
        return [self._error_of(request) for request in requests]

    def _error_of(self, request: Request) -> str:
        try:
            if request.content is None:
                self.withdraw(request.run, request.kind)
            else:
                self.issue(request.run, request.kind, request.content)
        except OSError as error:
            return reason_of(error)
        return ""

    def open_runs(self, kind: RequestKind) -> list[RunId]:
        """The runs with an open request of that kind."""
        with opened_folder(self._folder) as folder:
            return [run for name, run in names_in(folder, REQUEST_NAME) if name.endswith(f".{kind}")]

    def _path(self, run: RunId, kind: RequestKind) -> Path:
        return self._folder / f"{run.job_id}.{run.restart}.{kind}"


def write_notices(spool: Path, notices: Mapping[RunId, str]) -> None:
    """Write what `report()` of these runs prints once on standard error; a run that has a notice keeps it.

    Raises OSError.
    """
    for run, text in notices.items():
        path = spool / REQUESTS / f"{run.job_id}.{run.restart}.notice"
        if not path.is_file():
            _write_for_jobs(path, text.encode("ascii", "replace")[:NOTICE_BYTES])


def _write_for_jobs(path: Path, content: bytes) -> None:
    """Write a file that jobs see whole or not at all, and can read whatever this process' umask. Raises OSError."""
    new = path.with_name(f"{path.name}{UNFINISHED}")
    new.unlink(missing_ok=True)  # of a daemon that was killed meanwhile
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o644), "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(content)
    new.replace(path)


def write_waiting(spool: Path, job_ids: Iterable[int]) -> None:
    """List the jobs that wait for admission; the time of the file shows when the daemon was last alive.

    `site_config/slurmplug-release` releases these jobs when the daemon has been gone for long. Raises OSError.
    """
    path = spool / "waiting"
    new = path.with_suffix(".new")
    new.write_text("".join(f"{job_id}\n" for job_id in sorted(job_ids)))
    new.replace(path)


def read_waiting(spool: Path) -> frozenset[int]:
    """The jobs that waited for admission when the daemon was last alive; none before it wrote that. Raises OSError."""
    try:
        words = (spool / "waiting").read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return frozenset()
    return frozenset(int(word) for word in words if word.isdecimal() and word.isascii())
