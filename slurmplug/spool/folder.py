"""The spool as the daemon uses it: the interface, and a folder that this process reads and writes itself."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from slurmplug.spool.read_file import ReadFile
from slurmplug.spool.report_files import NOT_KNOWN, NewReports, ReportReader
from slurmplug.spool.requests import Request, RequestKind, Requests, read_waiting, write_notices, write_waiting
from slurmplug.spool.run_files import Sweeper, Swept
from slurmplug.spool.values import RunId

T = TypeVar("T")


class Spool(Protocol):
    """Reports of jobs and requests to them. All methods but `read` and `sweep` raise OSError.

    Among these, TimeoutError: the spool did not answer, so whether it was done is not known.
    """

    def read(self, owners: Mapping[RunId, int], started: Mapping[RunId, float] = NOT_KNOWN) -> NewReports:
        """As `ReportReader.read`; a spool that does not answer is a fault, and what it read comes with a later call."""
        ...

    def write_requests(self, requests: Sequence[Request]) -> list[str]:
        """As `Requests.write`."""
        ...

    def open_runs(self, kind: RequestKind) -> list[RunId]:
        """As `Requests.open_runs`."""
        ...

    def write_notices(self, notices: Mapping[RunId, str]) -> None:
        """As `requests.write_notices`."""
        ...

    def write_waiting(self, job_ids: Iterable[int]) -> None:
        """As `requests.write_waiting`."""
        ...

    def read_waiting(self) -> frozenset[int]:
        """As `requests.read_waiting`."""
        ...

    def sweep(self, keep: Collection[RunId], asked: Collection[RunId], before: float) -> Swept:
        """As `Sweeper.sweep`; a spool that does not answer is a fault."""
        ...


class SpoolFolder:
    """A `Spool` that this process reads and writes itself, for as long as that takes."""

    def __init__(self, path: Path, files: Mapping[str, ReadFile] = MappingProxyType({})) -> None:
        """`files`: how far report files were read before."""
        self._path = path
        self.sweep = Sweeper(path).sweep
        requests = Requests(path)
        self.read = ReportReader(path, files=files).read
        self.write_requests, self.open_runs = requests.write, requests.open_runs

    def write_notices(self, notices: Mapping[RunId, str]) -> None:
        """As `Spool.write_notices`."""
        write_notices(self._path, notices)

    def write_waiting(self, job_ids: Iterable[int]) -> None:
        """As `Spool.write_waiting`."""
        write_waiting(self._path, job_ids)

    def read_waiting(self) -> frozenset[int]:
        """As `Spool.read_waiting`."""
        return read_waiting(self._path)

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that uses the spool in its own way."""
        return function(*arguments)
