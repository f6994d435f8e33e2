"""The pages' addresses: each a GET of the reports for who asks; nothing is changed by any request."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, make_response, render_template, request
from markupsafe import Markup
from werkzeug.exceptions import HTTPException

from slurmplug.config.schema import Config
from slurmplug.console import times
from slurmplug.console.table import counted, printable
from slurmplug.endpoint.limits import RateLimit
from slurmplug.endpoint.viewers import Viewers
from slurmplug.endpoint.web.askers import Asker, AskerRefused, Askers
from slurmplug.endpoint.web.pages import Pages
from slurmplug.endpoint.web.savings_page import KeptSavings
from slurmplug.errors import LedgerError, UsageError
from slurmplug.ledger.database import LedgerFile
from slurmplug.ledger.rankings import CycleRankings

READ_SECONDS = 10.0
"""for what a page needs of the ledger"""
METHODS = ("GET", "HEAD")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Nothing but the style sheet is loaded, no script runs, nothing is kept, and no other site's page contains these."""

log = logging.getLogger(__name__)


class _Ledgers:
    """Opens the ledger for a page; the rankings of the last cycle are decoded once for all pages."""

    def __init__(self, config: Config) -> None:
        self._path = config.ledger.path
        self._rankings: CycleRankings | None = None

    @contextlib.contextmanager
    def open(self) -> Iterator[LedgerFile]:
        """Raises LedgerError."""
        with contextlib.closing(LedgerFile(self._path, readonly=True)) as ledger:
            ledger.finish_within(READ_SECONDS)
            ledger.rankings = self._rankings
            yield ledger
            self._rankings = ledger.rankings


def make_app(config: Config, viewers: Viewers) -> Flask:
    """The application (WSGI)."""
    app = Flask(__name__)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.jinja_options = {"finalize": _shown, "autoescape": True}
    app.jinja_env.filters.update(time=_time, duration=times.format_duration, counted=counted)
    kept = KeptSavings(config.ledger.path)
    ledgers, askers = _Ledgers(config), Askers(viewers, config.web.user_header)
    rate, lock = RateLimit(config.endpoint.requests_per_minute), threading.Lock()

    def page(template: str, made: Callable[[Pages], dict[str, Any]]) -> Response:
        asker = askers.asker(request.environ)
        with lock:
            allowed = not asker.name or rate.allows(asker.viewer.uid, time.monotonic())
        if not allowed:
            return _message(HTTPStatus.TOO_MANY_REQUESTS, "too many pages: wait some seconds", asker)
        with ledgers.open() as ledger:
            pages = Pages(ledger, config, asker.viewer, time.time(), kept)
            values = made(pages)
            return make_response(render_template(template, asker=asker, here=template, **pages.state(), **values))

    @app.get("/")
    def queue() -> Response:
        user, first = request.args.get("user", "").strip(), request.args.get("from", "0")
        start = int(first) if first.isascii() and first.isdecimal() and len(first) < 10 else 0
        return page("queue.html", lambda pages: pages.queue(user, start))

    @app.get("/job")
    def job() -> Response:
        return page("job.html", lambda pages: pages.job(request.args.get("id", "").strip()))

    @app.get("/nodes")
    def nodes() -> Response:
        return page("nodes.html", lambda pages: pages.nodes(request.args.get("last", "")))

    @app.get("/load")
    def load() -> Response:
        return page("load.html", lambda pages: pages.load(request.args.get("last", "")))

    @app.get("/savings")
    def savings() -> Response:
        return page("savings.html", Pages.savings)

    @app.get("/forecasts")
    def forecasts() -> Response:
        return page("forecasts.html", Pages.forecasts)

    _restrict(app)
    _handle_errors(app)
    return app


def _restrict(app: Flask) -> None:
    """Refuse every method that could change something, and set the security headers of each response."""

    @app.before_request
    def only_reading() -> Response | None:
        if request.method in METHODS:
            return None
        refused = _message(HTTPStatus.METHOD_NOT_ALLOWED, "nothing can be changed here")
        refused.headers["Allow"] = ", ".join(METHODS)
        return refused

    @app.after_request
    def guarded(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response


def _handle_errors(app: Flask) -> None:
    @app.errorhandler(AskerRefused)
    def asker_refused(error: AskerRefused) -> Response:
        return _message(HTTPStatus.FORBIDDEN, str(error))

    @app.errorhandler(UsageError)
    def not_usable(error: UsageError) -> Response:
        return _message(HTTPStatus.NOT_FOUND, str(error))

    @app.errorhandler(LedgerError)
    def no_ledger(error: LedgerError) -> Response:
        log.warning("web: %s", error)
        return _message(HTTPStatus.SERVICE_UNAVAILABLE, "the daemon's ledger cannot be used at the moment")

    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response:
        return _message(HTTPStatus(error.code or 500), error.name.lower())


def _message(status: HTTPStatus, message: str, asker: Asker | None = None) -> Response:
    return make_response(render_template("message.html", message=message, asker=asker, here=""), status)


def _shown(value: Any) -> Any:
    """A value as it is put into a page, before it is escaped there."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _time(seconds: float) -> str:
    return times.format_time(seconds).replace("T", " ")
