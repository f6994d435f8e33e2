"""Makes the endpoint's reports, in processes of their own, from the ledger opened for reading."""

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
from slurmplug.ledger.kept_open import KeptOpen, OpensLedger, opened_anew
from slurmplug.processes.child import Channel, Child
from slurmplug.reports.service import LedgerReports
from slurmplug.reports.viewer import Viewer

MOST_JOBS = 50_000
"""of one report, in all its pages"""
REPORT_SECONDS = 30.0
"""for one page of a report; a process that takes longer is ended"""

log = logging.getLogger(__name__)


class PageRequest(NamedTuple):
    """A request for one page of a report: its name, the body of the HTTP request, the reader, and the configuration."""

    report: str
    body: bytes
    viewer: Viewer
    config: Config


class PageResponse(NamedTuple):
    """The HTTP status, the body of the response in JSON, and the CPU seconds that making it took."""

    status: HTTPStatus
    response: bytes
    seconds: float


ReportMaker: TypeAlias = Callable[[PageRequest], PageResponse]


class LocalReportMaker:
    """Makes reports in this process."""

    def __init__(self, most: int = MOST_JOBS, opened: OpensLedger = opened_anew) -> None:
        """most: jobs of one report."""
        self._most = most
        self._opened = opened

    def __call__(self, request: PageRequest) -> PageResponse:
        """The response to a request. Never raises, whatever a client sent."""
        began = time.process_time()
        status, response = self._answer(request)
        return PageResponse(status, json.dumps(response).encode("ascii"), time.process_time() - began)

    def _answer(self, request: PageRequest) -> tuple[HTTPStatus, dict[str, Any]]:
        try:
            path = request.config.ledger.path
            with self._opened(path) as ledger:
                reports = LedgerReports(ledger, path, request.config, request.viewer, self._most)
                return HTTPStatus.OK, answers.answer(request.report, request.body, reports, time.time())
        except UsageError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except LedgerError as error:
            log.warning("endpoint: %s", error)
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the daemon's ledger cannot be used at the moment"}


class ReportMakerProcess:
    """Makes reports in another process, at a nice value of its own."""

    def __init__(self, name: str, nicer: int) -> None:
        """Start it. nicer: added to this process' nice value."""
        self._child = Child(name, _make_each, nicer)
        self._nicer = nicer

    def __call__(self, request: PageRequest) -> PageResponse:
        """As `LocalReportMaker`. A process that does not answer in time is killed, and replaced at the next request."""
        began = time.monotonic()
        try:
            if not self._child.running:
                self._child.start_again(self._nicer)
            self._child.channel.send(request)
            made: PageResponse = self._child.channel.receive(REPORT_SECONDS)
        except OSError as error:  # as are TimeoutError and ConnectionError
            log.warning("endpoint: a report was not made: %s", error)
            self._child.kill()
            advice = "ask for fewer jobs, or later if the host is busy"
            response = json.dumps({"error": f"the report could not be made: {advice}"}).encode("ascii")
            return PageResponse(HTTPStatus.SERVICE_UNAVAILABLE, response, time.monotonic() - began)
        return made


def _make_each(channel: Channel, nicer: int) -> None:
    """The process: makes what it is asked for, one after the other."""
    os.nice(nicer)
    make = LocalReportMaker(opened=KeptOpen())
    while True:
        channel.send(make(channel.receive()))
        channel.flush()
