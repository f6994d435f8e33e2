"""What the screen shows, read as the other commands read it. Each call may wait: for the daemon, Slurm, a disk."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurmplug.cluster.user_client import Change, UserClient
from slurmplug.commands import why
from slurmplug.commands.opened import dead_daemon, open_reports, user_client
from slurmplug.commands.queue_table import Values
from slurmplug.commands.screen import output_file
from slurmplug.commands.screen.rows import FIELDS_READ, Searchable
from slurmplug.ledger.selection import Selection
from slurmplug.reports.interface import JobExplanation, Reports


@dataclass(frozen=True)
class Queue:
    """The live queue. at: when it was read; notice: how old it is, if the daemon is not alive."""

    values: Values
    searchable: Searchable
    at: float
    notice: str


class Source:
    """The reports and Slurm, by the rights of this process' user; its methods may be called from any thread."""

    def __init__(self, config_path: Path, ledger_path: Path | None, *, unicode: bool) -> None:
        """unicode: whether the terminal shows more than ASCII."""
        self._config_path, self._ledger_path, self._unicode = config_path, ledger_path, unicode
        self._rights = threading.Lock()
        """While root opens the ledger it has the rights of the ledger's owner, in all threads."""

    def queue(self) -> Queue:
        """The jobs of `slurmplug queue`. Raises SlurmplugError."""
        with self._reports() as reports:
            values = dict(zip(FIELDS_READ, reports.queue(Selection(live=True), FIELDS_READ), strict=True))
            notice = dead_daemon(reports)
        return Queue(values, Searchable(values), time.time(), notice)

    def story(self, job: str, width: int) -> list[str]:
        """What `slurmplug why` says of a job, and the plot of `why --plot`. Raises SlurmplugError."""
        with self._reports() as reports:
            asked = why.ask(reports, job, curves=True)
            notice = dead_daemon(reports)

        def shown(each: JobExplanation) -> Iterator[str]:
            yield from why.story(each)
            if "curve" in each.story:
                yield ""
                yield from why.curve(each, width, unicode=self._unicode)

        return [*filter(None, [notice]), *why.lines(job, asked, shown)]

    def output(self, job: str) -> list[str]:
        """The end of what a job has written. Raises SlurmplugError."""
        with self._rights:
            path = self._slurm().output_file(job)
            return output_file.end_of(path) if path else ["Slurm names no output file of this job."]

    def change(self, change: Change, job: str) -> str:
        """Hold, release or cancel a job; what Slurm has against it, empty if nothing. Raises SlurmplugError."""
        with self._rights:
            return self._slurm().change(change, job)

    def _slurm(self) -> UserClient:
        return user_client(self._config_path, self._ledger_path, "")

    @contextmanager
    def _reports(self) -> Iterator[Reports]:
        with ExitStack() as opened:
            with self._rights:
                reports = opened.enter_context(open_reports(self._config_path, self._ledger_path))
            yield reports
