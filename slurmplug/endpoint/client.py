"""Requests to the daemon's endpoint, for commands on hosts without the ledger: reports, and changes of directives."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from slurmplug.config.serving import Endpoint
from slurmplug.console.table import Value
from slurmplug.endpoint import munge, wire
from slurmplug.errors import EndpointError, UsageError
from slurmplug.ledger.selection import JobId, Selection
from slurmplug.reports.interface import JobExplanation, Suggestions, Table

if TYPE_CHECKING:
    from slurmplug.ledger.directive_changes import ChangeRequest
    from slurmplug.reports.job_request import JobRequest

TIMEOUT = 120.0
"""Seconds without a byte from the endpoint."""
REPLY_BYTES = 64 << 20
_ROW = "jobid"
"""The field that tells one job from another."""


class EndpointReports:
    """The `Reports` of a daemon on another host. Every method raises EndpointError if it does not answer or refuses."""

    def __init__(self, endpoint: Endpoint) -> None:
        """`endpoint`: this section of the configuration."""
        self._url = endpoint.url
        self._socket = endpoint.munge_socket

    def jobs(self, which: Selection, fields: Sequence[str]) -> Table:
        """The selected jobs, for `acct`."""
        return self._table("jobs", which, fields)

    def queue(self, which: Selection, fields: Sequence[str]) -> Table:
        """The selected jobs of the live queue, for `queue` and `prio`."""
        return self._table("queue", which, fields)

    def explain_job(self, job: JobId, *, curves: bool = False) -> list[JobExplanation]:
        """The explanations of a job, or of an array's elements, for `why`. `curves`: with `curve`."""
        return wire.explanations(self._request("story", {"job": list(job), "curves": curves}))

    def suggestions(self, which: Selection) -> Suggestions:
        """What to change about the selected jobs, for `suggest`."""
        return wire.suggestions(self._request("suggestions", wire.selection_body(which, (), 0)))

    def knows_user(self, user: str) -> bool:
        """Whether the user has an account there, or jobs."""
        return bool(self._request("user", {"user": user}).get("known"))

    def estimate(self, request: "JobRequest", now: float) -> dict[str, Any]:  # noqa: ARG002 the daemon uses its own clock
        """What is to be expected of such a job of this process' user, for `estimate`."""
        known = {name: value for name, value in asdict(request).items() if name != "user" and value is not None}
        return self._request("estimate", known)

    def status(self, now: float) -> dict[str, Any]:  # noqa: ARG002 the daemon uses its own clock
        """The daemon's status, for `status`."""
        return self._request("status", {})

    def dead_since(self, now: float) -> None:
        """None: the daemon that answers is alive."""

    def change_directives(self, request: "ChangeRequest") -> list[str]:
        """Change directives of a job of this process' user; returns what was changed, for `set`.

        Raises:
            UsageError: the daemon says why it may not be.
        """
        return wire.sentences(self._request(wire.CHANGE_NAME, wire.change_body(request)))

    def _table(self, report: str, which: Selection, fields: Sequence[str]) -> Table:
        """A report of jobs, fetched page by page; a job that moved meanwhile may be on two pages and counts once."""
        asked, rows = [_ROW, *fields], dict[Value, tuple[Value, ...]]()
        for first in itertools.count(0, wire.PAGE):
            answer = self._request(report, wire.selection_body(which, asked, first))
            page, more = wire.columns(answer, asked)
            if first == 0 and not more:
                return page[1:]
            rows.update(zip(page[0], zip(*page, strict=True), strict=True))
            if not more:
                break
        return [list(column) for column in zip(*rows.values(), strict=True)][1:]

    def _request(self, report: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(parameters).encode("ascii")
        credential = munge.encode(wire.payload(report, body), self._socket)
        headers = {"Authorization": f"Munge {credential}", "Content-Type": "application/json"}
        status, answer = self._exchange(report, body, headers)
        try:
            reply = json.loads(answer)
        except ValueError as error:
            raise EndpointError(
                f"{self._url} answers with status {status} and no JSON: is it slurmplug's daemon?"
            ) from error
        if status == 400:
            raise UsageError(str(reply.get("error")))
        if status != 200 or not isinstance(reply, dict):
            message = reply.get("error") if isinstance(reply, dict) else ""
            raise EndpointError(f"the daemon at {self._url} refuses the request: {message or status}")
        return reply

    def _exchange(self, report: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        at = urlsplit(self._url)
        connection = HTTPConnection(at.hostname or "", at.port, timeout=TIMEOUT)
        try:
            connection.request("POST", f"{wire.PREFIX}{report}", body, dict(headers))
            response = connection.getresponse()
            answer = response.read(REPLY_BYTES)
        except (OSError, HTTPException) as error:
            message = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise EndpointError(f"the daemon does not answer at {self._url}: {message}; is it running?") from error
        finally:
            connection.close()
        return response.status, answer
