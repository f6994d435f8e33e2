"""The endpoint: an HTTP server on the controller that answers requests for reports, and takes changes of directives.

Nothing else can be changed here, and by users only directives of their own jobs. A change is recorded in the ledger,
where the next cycle finds it.

A client is unknown until munged authenticates it, so everything before that is limited: connections, bytes, seconds,
and the number of credentials checked at once. After that each user is limited by rate.
"""

import json
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from slurmplug.config.schema import Config
from slurmplug.endpoint import munge, wire
from slurmplug.endpoint.limits import RateLimit
from slurmplug.endpoint.viewers import Viewers, account_name
from slurmplug.errors import EndpointError, LedgerError, NotConfirmed, SteppedDown, UsageError
from slurmplug.ledger.directive_changes import Author, ChangeRequest, make_change
from slurmplug.ledger.ledger import Ledger
from slurmplug.reports import requested
from slurmplug.reports.service import LedgerReports
from slurmplug.reports.viewer import Viewer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EndpointLimits:
    """What unknown clients and users may use of the daemon."""

    connections: int = 64
    connections_per_address: int = 16
    idle_seconds: float = 10.0
    """seconds without a byte"""
    connection_seconds: float = 60.0
    """seconds of a connection, whatever it does"""
    credential_checks: int = 4
    reports: int = 2
    queue_seconds: float = 10.0
    """seconds to wait for a credential check or a report while the others are busy"""
    jobs: int = 50_000
    """in one response"""


class _RequestRefused(Exception):
    """The request is refused with an HTTP status and a message."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class RequestHandler:
    """Handles a request: authenticates its sender, limits the rate, and makes the report or records the change."""

    def __init__(
        self,
        ledger: Path,
        config: Callable[[], Config],
        viewers: Viewers,
        limits: EndpointLimits = EndpointLimits(),
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        """`config` returns the configuration in force. `confirm` raises SteppedDown or NotConfirmed if this daemon may
        not act: then its ledger may not be the one that counts."""
        self._confirm = confirm
        self._ledger, self._config, self._viewers, self.limits = ledger, config, viewers, limits
        self._socket = config().endpoint.munge_socket
        self._rate = RateLimit(config().endpoint.requests_per_minute)
        self._lock = threading.Lock()
        self._credential_slots = threading.BoundedSemaphore(limits.credential_checks)
        self._report_slots = threading.BoundedSemaphore(limits.reports)

    def answer(self, report: str, body: bytes, authorization: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """The status and the JSON of the response. Never raises, whatever a client sent."""
        try:
            return HTTPStatus.OK, self._answer(report, body, self._sender(report, body, authorization))
        except _RequestRefused as refused:
            return refused.status, {"error": refused.message}
        except UsageError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except LedgerError as error:
            log.warning("endpoint: %s", error)
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the daemon's ledger cannot be used at the moment"}
        except (SteppedDown, NotConfirmed) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"this daemon changes nothing at the moment: {error}"}

    def _sender(self, report: str, body: bytes, authorization: str) -> int:
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "munge" or not credential:
            raise _RequestRefused(HTTPStatus.UNAUTHORIZED, "a MUNGE credential is required")
        with _Slot(self._credential_slots, self.limits.queue_seconds):
            try:
                sender = munge.decode(credential.strip(), self._socket)
            except EndpointError as error:
                raise _RequestRefused(HTTPStatus.UNAUTHORIZED, str(error)) from error
        if sender.payload != wire.payload(report, body):
            raise _RequestRefused(HTTPStatus.UNAUTHORIZED, "the credential is of another request")
        with self._lock:
            if not self._rate.allows(sender.uid, time.monotonic()):
                raise _RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, "too many requests: wait some seconds")
        return sender.uid

    def _answer(self, report: str, body: bytes, uid: int) -> dict[str, Any]:
        viewer = self._viewers.viewer(uid)
        with _Slot(self._report_slots, self.limits.queue_seconds):
            if report == wire.CHANGE_NAME:
                return {"changed": self._change(wire.change_request(body), viewer)}
            ledger = Ledger(self._ledger, readonly=True)
            try:
                reports = LedgerReports(ledger, self._ledger, self._config(), viewer, self.limits.jobs)
                return wire.answer(report, body, reports, time.time())
            finally:
                ledger.close()

    def _change(self, request: ChangeRequest, viewer: Viewer) -> list[str]:
        uid = viewer.uid
        author = Author(uid, account_name(uid) or str(uid), self._viewers.operates(uid), viewer.sees_all)
        self._confirm()
        Ledger(self._ledger, readonly=True).close()  # one that was moved away is not made anew
        ledger = Ledger(self._ledger)
        try:
            changed = make_change(ledger, request, author, time.time())
        finally:
            ledger.close()
        log.info("directives of %s changed by %s", ", ".join(changed.jobs), author.user)
        return requested.changed_sentences(changed, self._config().interval)


class _Slot:
    """Holds a semaphore, or refuses the request if it does not get it in time."""

    def __init__(self, semaphore: threading.BoundedSemaphore, wait: float) -> None:
        self._semaphore, self._wait = semaphore, wait

    def __enter__(self) -> None:
        if not self._semaphore.acquire(timeout=self._wait):
            raise _RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once: try again")

    def __exit__(self, *_: object) -> None:
        self._semaphore.release()


class EndpointServer(ThreadingHTTPServer):
    """The listening socket of the endpoint, and a thread for each connection."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, listen: str, endpoint: RequestHandler) -> None:
        """`listen`: HOST:PORT, as `endpoint.listen`. Raises OSError if it cannot listen there."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.endpoint = endpoint
        self._open: dict[socket.socket, tuple[str, float]] = {}
        self._opening = threading.Lock()
        super().__init__((host, int(port)), _HttpHandler)

    def server_bind(self) -> None:
        """Bind without looking up this machine's name, which may take long and is not needed."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether the limits allow one more connection from this address."""
        address, limits = str(client_address[0]), self.endpoint.limits
        with self._opening:
            from_there = Counter(each for each, _ in self._open.values())[address]
            if len(self._open) >= limits.connections or from_there >= limits.connections_per_address:
                return False
            self._open[request] = (address, time.monotonic())
        return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and stop counting it."""
        with self._opening:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close the connections that have lasted too long."""
        now = time.monotonic()
        with self._opening:
            for request, (_, since) in list(self._open.items()):
                if now - since > self.endpoint.limits.connection_seconds:
                    del self._open[request]
                    _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log at debug level: a client that hangs up is no error of the daemon."""
        log.debug("endpoint: a connection from %s broke", client_address[0], exc_info=True)


def _hang_up(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("endpoint: %s", error)


class _HttpHandler(BaseHTTPRequestHandler):
    """One request per connection (HTTP/1.0)."""

    server: EndpointServer
    server_version = "slurmplug"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.endpoint.limits.idle_seconds)

    def do_POST(self) -> None:
        report = self.path.removeprefix(wire.PREFIX)
        if not self.path.startswith(wire.PREFIX) or report not in (*wire.REPORT_NAMES, wire.CHANGE_NAME):
            self._respond(HTTPStatus.NOT_FOUND, {"error": "there is no such report"})
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or len(length) > 9:
            self._respond(HTTPStatus.LENGTH_REQUIRED, {"error": "a Content-Length is required"})
            return
        if int(length) > wire.REQUEST_BYTES:
            self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"at most {wire.REQUEST_BYTES} bytes"})
            return
        body = self.rfile.read(int(length))
        if len(body) == int(length):
            self._respond(*self.server.endpoint.answer(report, body, self.headers.get("Authorization", "")))

    def _respond(self, status: HTTPStatus, response: Mapping[str, Any]) -> None:
        body = json.dumps(response).encode("ascii")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("endpoint: %s %s", self.client_address[0], format % args)


class EndpointThread:
    """Runs an endpoint's server in a thread until it is closed."""

    def __init__(self, server: EndpointServer, poll: float = 0.5) -> None:
        """`poll`: seconds between two checks for connections that last too long, or for `close`."""
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(poll,), name="endpoint", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The TCP port it listens on."""
        return self._server.server_port

    def close(self) -> None:
        """Stop the server and its thread, and close the socket."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
