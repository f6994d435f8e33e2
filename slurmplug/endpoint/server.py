"""The endpoint: HTTP on the controller, which answers the reports' questions and can do nothing else.

Whoever connects is a stranger until munged vouches for a uid, so everything before that is bounded: connections,
bytes, seconds, and how many credentials are looked at at once. After that each user is limited by rate.
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

from slurmplug.config import Config
from slurmplug.endpoint import munge, wire
from slurmplug.endpoint.limits import RateLimit
from slurmplug.endpoint.viewers import Viewers
from slurmplug.errors import EndpointError, LedgerError, UsageError
from slurmplug.ledger.ledger import Ledger
from slurmplug.reports.service import LedgerReports

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bounds:
    """What strangers and users may take."""

    connections: int = 64
    connections_of_an_address: int = 16
    silence: float = 10.0
    """seconds without a byte"""
    life: float = 60.0
    """seconds of a connection, whatever it does"""
    unmunges: int = 4
    reports: int = 2
    wait: float = 10.0
    """seconds to wait for a turn at either"""
    jobs: int = 50_000
    """in one answer"""


class _Refused(Exception):
    """A status and what is said with it."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Endpoint:
    """What a request goes through: a turn, a credential, a rate, a report."""

    def __init__(self, ledger: Path, config: Callable[[], Config], viewers: Viewers, bounds: Bounds = Bounds()) -> None:
        """`config` gives that in force."""
        self._ledger, self._config, self._viewers, self.bounds = ledger, config, viewers, bounds
        self._socket = config().endpoint.munge_socket
        self._rate = RateLimit(config().endpoint.requests_per_minute)
        self._lock = threading.Lock()
        self._unmunging = threading.BoundedSemaphore(bounds.unmunges)
        self._reporting = threading.BoundedSemaphore(bounds.reports)

    def answer(self, question: str, body: bytes, authorization: str) -> tuple[HTTPStatus, dict[str, Any]]:
        """The status and the JSON of an answer. Never raises for what a client sent."""
        try:
            return HTTPStatus.OK, self._answer(question, body, self._sender(question, body, authorization))
        except _Refused as refused:
            return refused.status, {"error": refused.why}
        except UsageError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except LedgerError as error:
            log.warning("endpoint: %s", error)
            return HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the daemon's ledger cannot be read at the moment"}

    def _sender(self, question: str, body: bytes, authorization: str) -> int:
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "munge" or not credential:
            raise _Refused(HTTPStatus.UNAUTHORIZED, "a MUNGE credential is needed")
        with _Turn(self._unmunging, self.bounds.wait):
            try:
                sender = munge.decode(credential.strip(), self._socket)
            except EndpointError as error:
                raise _Refused(HTTPStatus.UNAUTHORIZED, str(error)) from error
        if sender.payload != wire.payload(question, body):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "the credential is of another request")
        with self._lock:
            if not self._rate.allows(sender.uid, time.monotonic()):
                raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, "you ask too often: wait some seconds")
        return sender.uid

    def _answer(self, question: str, body: bytes, uid: int) -> dict[str, Any]:
        viewer = self._viewers.of(uid)
        with _Turn(self._reporting, self.bounds.wait):
            ledger = Ledger(self._ledger, readonly=True)
            try:
                reports = LedgerReports(ledger, self._ledger, self._config(), viewer, self.bounds.jobs)
                return wire.answer(question, body, reports, time.time())
            finally:
                ledger.close()


class _Turn:
    """A semaphore for a while, or a refusal."""

    def __init__(self, semaphore: threading.BoundedSemaphore, wait: float) -> None:
        self._semaphore, self._wait = semaphore, wait

    def __enter__(self) -> None:
        if not self._semaphore.acquire(timeout=self._wait):
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many ask at once: try again")

    def __exit__(self, *_: object) -> None:
        self._semaphore.release()


class Server(ThreadingHTTPServer):
    """The sockets and threads of an endpoint."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, listen: str, endpoint: Endpoint) -> None:
        """`listen`: as the configuration has it. Raises OSError."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.endpoint = endpoint
        self._open: dict[socket.socket, tuple[str, float]] = {}
        self._opening = threading.Lock()
        super().__init__((host, int(port)), _Handler)

    def server_bind(self) -> None:
        """Without asking for this machine's name, which may take long and which nobody needs."""
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more connection."""
        address, bounds = str(client_address[0]), self.endpoint.bounds
        with self._opening:
            from_there = Counter(each for each, _ in self._open.values())[address]
            if len(self._open) >= bounds.connections or from_there >= bounds.connections_of_an_address:
                return False
            self._open[request] = (address, time.monotonic())
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._opening:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that have lasted too long."""
        now = time.monotonic()
        with self._opening:
            for request, (_, since) in list(self._open.items()):
                if now - since > self.endpoint.bounds.life:
                    del self._open[request]
                    _hang_up(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        log.debug("endpoint: a connection from %s broke off", client_address[0], exc_info=True)


def _hang_up(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("endpoint: %s", error)


class _Handler(BaseHTTPRequestHandler):
    """One request a connection (HTTP/1.0)."""

    server: Server
    server_version = "slurmplug"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.endpoint.bounds.silence)

    def do_POST(self) -> None:
        question = self.path.removeprefix(wire.PREFIX)
        if not self.path.startswith(wire.PREFIX) or question not in wire.QUESTIONS:
            self._say(HTTPStatus.NOT_FOUND, {"error": "there is no such question"})
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or len(length) > 9:
            self._say(HTTPStatus.LENGTH_REQUIRED, {"error": "a Content-Length is needed"})
            return
        if int(length) > wire.QUESTION_BYTES:
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": f"at most {wire.QUESTION_BYTES} bytes"})
            return
        body = self.rfile.read(int(length))
        if len(body) == int(length):
            self._say(*self.server.endpoint.answer(question, body, self.headers.get("Authorization", "")))

    def _say(self, status: HTTPStatus, told: Mapping[str, Any]) -> None:
        answer = json.dumps(told).encode("ascii")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("endpoint: %s %s", self.client_address[0], format % args)


class Serving:
    """An endpoint in a thread of its own, until closed."""

    def __init__(self, server: Server, poll: float = 0.5) -> None:
        """`poll`: seconds between two looks for connections that last too long, or for the end."""
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(poll,), name="endpoint", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
