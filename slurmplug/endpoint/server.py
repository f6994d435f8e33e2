"""The endpoint: an HTTP server on the controller that answers requests for reports, and takes changes of directives.

Nothing else can be changed here, and by users only directives of their own jobs. Reports are made by other processes,
in turns; a change is recorded by the daemon, for its next cycle.

A client is unknown until munged authenticates it, so everything before that is limited: connections, bytes, seconds,
and the number of credentials checked at once. After that each user is limited by rate, and queued fairly.
"""

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from slurmplug.config.schema import Config
from slurmplug.endpoint import answers, metrics, munge, wire
from slurmplug.endpoint.changes import Change
from slurmplug.endpoint.connections import ConnectionLimits, Connections
from slurmplug.endpoint.credential_checks import CredentialChecks
from slurmplug.endpoint.fair_queue import FairQueue
from slurmplug.endpoint.limits import RateLimit
from slurmplug.endpoint.report_makers import PageRequest, ReportMaker
from slurmplug.endpoint.viewers import Viewers, account_name
from slurmplug.errors import EndpointError, LedgerError, NotConfirmed, SteppedDown, UsageError
from slurmplug.ledger.directive_changes import Author

_JSON = "application/json"
LATER_PAGE = 0.05
"""What a page after the first counts for the rate; the CPU time that it takes counts in the fair queue."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EndpointLimits:
    """What unknown clients and users may use of the endpoint."""

    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    credential_checks: int = 4
    queue_seconds: float = 10.0
    """seconds to wait for a credential check while others are busy"""
    turn_seconds: float = 60.0
    """seconds to wait for a turn"""


class _RequestRefused(Exception):
    """The request is refused with an HTTP status and a message."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class Client(NamedTuple):
    """Who sent a request, before it is authenticated."""

    address: str
    is_open: Callable[[], bool]
    """whether the connection still is"""
    may_have_one_more: Callable[[int], bool]
    """called with the uid that sent it; whether that may have one more connection"""


class RequestHandler:
    """Handles a request: authenticates its sender, limits the rate, and has the report made or the change recorded."""

    def __init__(
        self,
        config: Callable[[], Config],
        viewers: Viewers,
        queue: FairQueue[ReportMaker],
        change: Change,
        limits: EndpointLimits | None = None,
    ) -> None:
        """`config` returns the configuration in force."""
        self._config, self._viewers, self._queue, self._change = config, viewers, queue, change
        self.limits = limits or EndpointLimits()
        self._socket = config().endpoint.munge_socket
        self._rate = RateLimit(config().endpoint.requests_per_minute)
        self._lock = threading.Lock()
        self.checks = CredentialChecks(self.limits.credential_checks)

    def answer(self, report: str, body: bytes, authorization: str, client: Client) -> tuple[HTTPStatus, bytes]:
        """The status and the response, in JSON except metrics. Never raises, whatever a client sent."""
        try:
            uid = self._sender(report, body, authorization, client)
            if not client.may_have_one_more(uid):
                message = "too many connections at once: wait for answers"
                return HTTPStatus.TOO_MANY_REQUESTS, encoded({"error": message})
            return self._answer(report, body, uid)
        except _RequestRefused as refused:
            return refused.status, encoded({"error": refused.message})
        except UsageError as error:
            return HTTPStatus.BAD_REQUEST, encoded({"error": str(error)})
        except LedgerError as error:
            log.warning("endpoint: %s", error)
            return HTTPStatus.SERVICE_UNAVAILABLE, encoded(
                {"error": "the daemon's ledger cannot be used at the moment"}
            )
        except (SteppedDown, NotConfirmed) as error:
            message = f"this daemon changes nothing at the moment: {error}"
            return HTTPStatus.SERVICE_UNAVAILABLE, encoded({"error": message})

    def _sender(self, report: str, body: bytes, authorization: str, client: Client) -> int:
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "munge" or not credential:
            raise _RequestRefused(HTTPStatus.UNAUTHORIZED, "a MUNGE credential is required")
        try:
            with self.checks.turn(client.address, self.limits.queue_seconds, client.is_open):
                sender = munge.decode(credential.strip(), self._socket)
        except TimeoutError as error:
            raise _RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once: try again") from error
        except EndpointError as error:
            raise _RequestRefused(HTTPStatus.UNAUTHORIZED, str(error)) from error
        if sender.payload != wire.payload(report, body):
            raise _RequestRefused(HTTPStatus.UNAUTHORIZED, "the credential is of another request")
        with self._lock:
            cost = LATER_PAGE if answers.is_later_page(report, body) else 1.0
            if not self._rate.allows(sender.uid, time.monotonic(), cost):
                raise _RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, "too many requests: wait some seconds")
        return sender.uid

    def _answer(self, report: str, body: bytes, uid: int) -> tuple[HTTPStatus, bytes]:
        if report == wire.METRICS_NAME:
            return self._metrics(uid)
        viewer = self._viewers.viewer(uid)
        if report == wire.CHANGE_NAME:
            author = Author(uid, account_name(uid) or str(uid), self._viewers.operates(uid), viewer.sees_all)
            return HTTPStatus.OK, encoded({"changed": self._change(answers.change_request(body), author)})
        try:
            with self._queue.turn(uid, self.limits.turn_seconds) as make:
                made = make(PageRequest(report, body, viewer, self._config()))
                self._queue.charge(uid, made.seconds)
        except TimeoutError as error:
            raise _RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once: try again") from error
        return made.status, made.response

    def _metrics(self, uid: int) -> tuple[HTTPStatus, bytes]:
        if not self._viewers.operates(uid):
            raise _RequestRefused(HTTPStatus.FORBIDDEN, "metrics are for operators and administrators of Slurm")
        try:
            return HTTPStatus.OK, metrics.fetched(self._config().metrics.listen)
        except EndpointError as error:
            raise _RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error


def encoded(response: Mapping[str, Any]) -> bytes:
    """A response as it is sent."""
    return json.dumps(response).encode("ascii")


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
        self.connections = Connections(endpoint.limits.connections, endpoint.checks.look_again)
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
        return self.connections.admit(request, str(client_address[0]), time.monotonic())

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the thread of a connection that was admitted. Raises RuntimeError where the machine has none left."""
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self.connections.ended(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection that was admitted, and count it no longer afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.ended(request)

    def service_actions(self) -> None:
        """Close the connections that have lasted too long."""
        self.connections.hang_up_late(time.monotonic())

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log at debug level: a client that hangs up is no error of the daemon."""
        log.debug("endpoint: a connection from %s broke", client_address[0], exc_info=True)


class _HttpHandler(BaseHTTPRequestHandler):
    """One request per connection (HTTP/1.0)."""

    server: EndpointServer
    server_version = "slurmplug"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.endpoint.limits.connections.seconds)

    def do_GET(self) -> None:
        if self.path != wire.METRICS_PATH:
            self._refuse(HTTPStatus.NOT_IMPLEMENTED, {"error": "reports are asked for by POST"})
            return
        status, text = self._answered(wire.METRICS_NAME, b"")
        self._respond(status, text, metrics.CONTENT_TYPE if status == HTTPStatus.OK else _JSON)

    def do_POST(self) -> None:
        report = self.path.removeprefix(wire.PREFIX)
        if not self.path.startswith(wire.PREFIX) or report not in (*wire.REPORT_NAMES, wire.CHANGE_NAME):
            self._refuse(HTTPStatus.NOT_FOUND, {"error": "there is no such report"})
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or len(length) > 9:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, {"error": "a Content-Length is required"})
            return
        if int(length) > wire.REQUEST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"at most {wire.REQUEST_BYTES} bytes"})
            return
        body = self.rfile.read(int(length))
        if len(body) == int(length):
            self._respond(*self._answered(report, body))

    def _answered(self, report: str, body: bytes) -> tuple[HTTPStatus, bytes]:
        """The response to a request that has come whole."""
        connections, request = self.server.connections, self.connection
        connections.was_read(request)
        client = Client(
            str(self.client_address[0]),
            lambda: connections.is_open(request),
            lambda uid: connections.is_of(request, uid),
        )
        return self.server.endpoint.answer(report, body, self.headers.get("Authorization", ""), client)

    def _refuse(self, status: HTTPStatus, response: Mapping[str, Any]) -> None:
        self._respond(status, encoded(response))

    def _respond(self, status: HTTPStatus, body: bytes, content_type: str = _JSON) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
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
