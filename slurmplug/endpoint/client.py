"""The reports' questions, asked of the daemon's endpoint."""

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from slurmplug.config import Endpoint
from slurmplug.endpoint import munge, wire
from slurmplug.errors import EndpointError, UsageError
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports.job_view import Job
from slurmplug.reports.queue import QueueEntry
from slurmplug.reports.service import JobExplanation

TIMEOUT = 60.0
"""Seconds without a byte from the endpoint."""
MOST_BYTES = 512 << 20


class EndpointReports:
    """`Reports` of a daemon elsewhere. Every method raises EndpointError where it does not answer or refuses."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._url = endpoint.url
        self._socket = endpoint.munge_socket

    def jobs(self, which: Selection) -> list[Job]:
        """For `acct`."""
        return wire.jobs(self._ask("jobs", wire.of_selection(which)))

    def queue(self, which: Selection) -> list[QueueEntry]:
        """For `queue` and `prio`."""
        return wire.entries(self._ask("queue", wire.of_selection(which)))

    def explain_job(self, job: JobId) -> list[JobExplanation]:
        """For `why`."""
        return wire.explanations(self._ask("story", {"job": list(job)}))

    def knows_user(self, user: str) -> bool:
        """Whether it is an account there, or there are jobs of it."""
        return bool(self._ask("user", {"user": user}).get("known"))

    def status(self, now: float) -> dict[str, Any]:  # noqa: ARG002 the daemon's clock counts
        """For `status`."""
        return self._ask("status", {})

    def _ask(self, question: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(asked).encode("ascii")
        credential = munge.encode(wire.payload(question, body), self._socket)
        headers = {"Authorization": f"Munge {credential}", "Content-Type": "application/json"}
        status, answer = self._exchange(question, body, headers)
        try:
            told = json.loads(answer)
        except ValueError as error:
            raise EndpointError(f"{self._url} answers {status}, and no JSON: is it slurmplug's daemon?") from error
        if status == 400:
            raise UsageError(str(told.get("error")))
        if status != 200 or not isinstance(told, dict):
            why = told.get("error") if isinstance(told, dict) else ""
            raise EndpointError(f"the daemon at {self._url} refuses: {why or status}")
        return told

    def _exchange(self, question: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        at = urlsplit(self._url)
        connection = HTTPConnection(at.hostname or "", at.port, timeout=TIMEOUT)
        try:
            connection.request("POST", f"{wire.PREFIX}{question}", body, dict(headers))
            response = connection.getresponse()
            answer = response.read(MOST_BYTES)
        except (OSError, HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise EndpointError(f"the daemon does not answer at {self._url}: {why}; does it run there?") from error
        finally:
            connection.close()
        return response.status, answer
