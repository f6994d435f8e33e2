"""Reports are made in processes of their own, from the ledger opened for reading."""

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

from slurmplug.config.schema import Config
from slurmplug.endpoint import answers
from slurmplug.errors import LedgerError, UsageError
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.rankings import CycleRankings
from slurmplug.processes.child import Channel, Child
from slurmplug.reports.service import LedgerReports
from slurmplug.reports.viewer import Viewer

MOST_JOBS = 50_000
"""of one report, in all its pages"""
REPORT_SECONDS = 30.0
"""for one page of a report; a process that takes longer is ended"""

log = logging.getLogger(__name__)


class Asked(NamedTuple):
    """A page of a report, for whom, and the configuration in force."""

    report: str
    body: bytes
    viewer: Viewer
    config: Config


class Made(NamedTuple):
    """The response, and the processor seconds that it took."""

    status: HTTPStatus
    response: bytes
    seconds: float


Make: TypeAlias = Callable[[Asked], Made]


class Maker:
    """Makes reports in this process."""

    def __init__(self, most: int = MOST_JOBS) -> None:
        """most: jobs of one report."""
        self._most = most
        self._rankings: CycleRankings | None = None

    def __call__(self, asked: Asked) -> Made:
        """The response to a request. Never raises, whatever a client sent."""
        began = time.process_time()
        status, response = self._answered(asked)
        return Made(status, json.dumps(response).encode("ascii"), time.process_time() - began)

    def _answered(self, asked: Asked) -> tuple[HTTPStatus, dict[str, Any]]:
        try:
            path = asked.config.ledger.path
            with contextlib.closing(LedgerFile(path, readonly=True)) as ledger:
                ledger.rankings = self._rankings
                reports = LedgerReports(ledger, path, asked.config, asked.viewer, self._most)
                answer = answers.answer(asked.report, asked.body, reports, time.time())
                self._rankings = ledger.rankings
                return HTTPStatus.OK, answer
        except UsageError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except LedgerError as error:
            log.warning("endpoint: %s", error)
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the daemon's ledger cannot be used at the moment"}


class OtherProcess:
    """Makes reports in another process, which has less of the machine the nicer it is."""

    def __init__(self, name: str, nicer: int) -> None:
        """Start it. nicer: what is added to this process' nice value."""
        self._child = Child(name, _make_each, nicer)
        self._nicer = nicer

    def __call__(self, asked: Asked) -> Made:
        """As `Maker`; where the process does not answer in time, it is ended and another one is started."""
        began = time.monotonic()
        try:
            if not self._child.running:
                self._child.start_again(self._nicer)
            self._child.channel.send(asked)
            made: Made = self._child.channel.receive(REPORT_SECONDS)
        except OSError as error:  # as are TimeoutError and ConnectionError
            log.warning("endpoint: a report was not made: %s", error)
            self._child.kill()
            response = json.dumps({"error": "the report could not be made: ask for fewer jobs"}).encode("ascii")
            return Made(HTTPStatus.SERVICE_UNAVAILABLE, response, time.monotonic() - began)
        return made


def _make_each(channel: Channel, nicer: int) -> None:
    """The process: makes what it is asked for, one after the other."""
    os.nice(nicer)
    make = Maker()
    while True:
        channel.send(make(channel.receive()))
        channel.flush()
