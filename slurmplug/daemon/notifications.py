"""Tells users of their jobs by mail, and a web service: found and sent by processes beside the daemon.

What is to be told is recorded before it is sent, so that nobody is told twice, and the result after it. What was
certainly not sent is tried again later (`reports.notifications.TRY_AGAIN_AFTER`): also what a process that has ended
had not begun to send, since it says so before it begins.
"""

import json
import logging
import math
import os
import socket
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.error import HTTPError, URLError

from slurmplug.cluster.mail import Mailer, MailFailed, MailNotKnown
from slurmplug.cluster.site_client import SiteClient
from slurmplug.config.schema import Config
from slurmplug.errors import LedgerError, ReadFailed, advice
from slurmplug.ledger import notifications
from slurmplug.ledger.ledger import Ledger
from slurmplug.ledger.notifications import SENT, Delivery, Told
from slurmplug.processes.child import Channel
from slurmplug.processes.one_shot import OneShotProcess
from slurmplug.reports.notifications import Notification, due, message

EVERY = 60.0
"""Seconds from one look for what is to be told to the next."""
MOST = 500
"""How much is sent at once; the rest with the next look."""
SEND_SECONDS = 20.0
"""Seconds that one mail or one POST may take."""
FAILURES = 3
"""After so many failures in a row of mail, or of the web service, the rest of what was to be sent fails too."""
NICENESS = 10

log = logging.getLogger(__name__)


class Failure(NamedTuple):
    """Why something was not delivered; certain: that it was not, and that another try may succeed."""

    why: str
    certain: bool


class Begun(NamedTuple):
    """What a process is about to send in one way. If it ends now, it is not known whether that was delivered."""

    way: str
    about: Sequence[Told]


class Sending:
    """A process that sends notifications, and how far it is."""

    def __init__(self, told: Sequence[Notification], config: Config) -> None:
        """told: what it sends."""
        self._told = told
        self._tried: set[tuple[str, Told]] = set()
        self._results: Sequence[Delivery] | None = None
        self._child = _begun(send, told, config)

    def results(self) -> Sequence[Delivery] | None:
        """How the deliveries ended, without those in doubt; None while they are under way."""
        if self._results is None and self._child is not None:
            try:
                self._take(self._child.channel.arrived())
            except ConnectionError:
                return self.end()
        elif self._results is None:
            self._results = self._not_tried()
        return self._results

    def end(self) -> Sequence[Delivery]:
        """End it now; the results, as of `results`."""
        child, self._child = self._child, None
        if child is not None:
            try:
                self._take(child.end())
            except TimeoutError as error:
                log.error("it is not known whether users were told of their jobs: %s", error)
                self._results = self._results or ()
        return self.results() or ()

    def _take(self, messages: Iterable[Begun | Sequence[Delivery]]) -> None:
        for each in messages:
            if isinstance(each, Begun):
                self._tried |= {(each.way, about) for about in each.about}
            else:
                self._results = each
                return

    def _not_tried(self) -> Sequence[Delivery]:
        """The results of what a process that has ended had not tried in one way at least."""
        failure = Failure("not sent: the process that sends has ended", certain=True)
        left = ((each, [way for way in each.ways if (way, each.about) not in self._tried]) for each in self._told)
        found = [_delivery(each, dict.fromkeys(ways, failure)) for each, ways in left if ways]
        if doubt := len(self._told) - len(found):
            log.error("of %d notifications it is not known whether they were sent; they are not sent again", doubt)
        return found


class Notifications:
    """One process at a time: it looks for what is to be told, or sends it."""

    def __init__(self, ledger: Ledger, path: Path) -> None:
        """ledger: what was told is recorded there. path: of the same."""
        self._ledger, self._path = ledger, path
        self._looking: OneShotProcess | None = None
        self._sending: Sending | None = None
        self._looked_at = -math.inf

    def after_cycle(self, config: Config, now: float) -> None:
        """Go on with what was begun, if it is there; and look for what is to be told when that is due.

        Raises:
            LedgerError: it could not be recorded; nothing of it was sent
        """
        if self._looking is not None:
            self._send(self._looking, config, now)
        if self._sending is not None and (results := self._sending.results()) is not None:
            self._keep(self._sending, results)
        is_time = not 0 <= now - self._looked_at < EVERY
        if is_time and not (self._looking or self._sending) and config.notifications.wanted:
            self._looked_at = now
            self._looking = _begun(look, self._path, config, now)

    def close(self) -> None:
        """End what was begun, without waiting for it."""
        self._end_looking()
        if self._sending is not None:
            try:
                self._keep(self._sending, self._sending.end())
            except LedgerError as error:
                log.error("what users were told last cannot be recorded, and is not tried again: %s", error)

    def _send(self, looking: OneShotProcess, config: Config, now: float) -> None:
        try:
            found: list[Notification] | None = looking.result()
        except ConnectionError:
            log.error("users are not told of their jobs now; the next try is made in %g s", EVERY)
            self._end_looking()
            return
        if found is None:
            return
        self._end_looking()
        announced = {each.about: each.stops_after for each in found if each.stops_after is not None}
        new = set(notifications.record(self._ledger, [each.about for each in found], now, announced))
        if told := [each for each in found if each.about in new]:
            self._sending = Sending(told, config)

    def _end_looking(self) -> None:
        if self._looking is not None:
            self._looking.kill()
            self._looking = None

    def _keep(self, sending: Sending, results: Sequence[Delivery]) -> None:
        """Record the results of a process, and end it. Raises LedgerError: then the next cycle does."""
        notifications.record_results(self._ledger, results)
        sending.end()
        self._sending = None
        if failed := [each for each in results if each.result != SENT]:
            counts = len(failed), len(results), sum(bool(each.again) for each in failed)
            log.error(
                "%d of %d notifications were not sent, of which %d are tried again: %s", *counts, failed[0].result
            )


def _begun(serve: Callable[..., None], *arguments: object) -> OneShotProcess | None:
    try:
        return OneShotProcess("notifications", serve, *arguments)
    except OSError as error:
        log.error("users are not told of their jobs now: %s%s", error.strerror, advice(error))
        return None


def look(channel: Channel, path: Path, config: Config, now: float) -> None:
    """The process that looks: sends what is to be told, `MOST` at once."""
    os.nice(NICENESS)
    with closing(Ledger(path, readonly=True)) as ledger:
        channel.send(due(ledger, config, now)[:MOST])


def send(channel: Channel, told: Sequence[Notification], config: Config) -> None:
    """The process that sends: one mail to each user, one POST of each to the web service.

    Sends what it is about to send (`Begun`), and at the end the results.
    """
    os.nice(NICENESS)

    def begin(way: str, about: Sequence[Told]) -> None:
        channel.send(Begun(way, about))
        channel.flush()

    failed = {
        "mail": _mailed([each for each in told if "mail" in each.ways], config, partial(begin, "mail")),
        "webhook": _posted([each for each in told if "webhook" in each.ways], config, partial(begin, "webhook")),
    }
    channel.send(
        [_delivery(each, {way: of[each.about] for way, of in failed.items() if each.about in of}) for each in told]
    )


def _delivery(told: Notification, failed: Mapping[str, Failure]) -> Delivery:
    """failed: by way."""
    again = frozenset(way for way, failure in failed.items() if failure.certain and not told.last)
    return Delivery(told.about, "; ".join(failure.why for failure in failed.values()) or SENT, again)


Begin: TypeAlias = Callable[[Sequence[Told]], None]
"""Called before each try."""


def _mailed(told: Sequence[Notification], config: Config, begin: Begin) -> dict[Told, Failure]:
    """What failed."""
    by_user: dict[str, list[Notification]] = defaultdict(list)
    for each in told:
        by_user[each.user].append(each)
    if not by_user:
        return {}
    try:
        conf = SiteClient(config.slurm.conf, config.slurm.bin, config.slurm.timeout).slurm_conf().values
    except ReadFailed as error:
        return {each.about: Failure(f"no mail: {error}", certain=True) for each in told}
    mailer, cluster = Mailer(conf, SEND_SECONDS), config.cluster or conf.get("ClusterName", "")
    tries = _Tries("no mail", begin)
    for user, of_user in by_user.items():
        tries.run([each.about for each in of_user], partial(mailer.send, user, *message(of_user, cluster)))
    return tries.failed


def _posted(told: Sequence[Notification], config: Config, begin: Begin) -> dict[Told, Failure]:
    """What failed."""
    tries = _Tries("not posted", begin)
    for each in told:
        tries.run([each.about], partial(_post, config.notifications.webhook, each))
    return tries.failed


def _post(url: str, told: Notification) -> None:
    body = {
        "job": told.job,
        "user": told.user,
        "name": told.name,
        "kind": told.about.kind,
        "text": f"Job {told.title}. {told.text}",
        "gpu_hours": told.gpu_hours,
    }
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=SEND_SECONDS).close()


def _certain(error: Exception) -> bool:
    """Whether an error shows that nothing was delivered, and another try may succeed."""
    if isinstance(error, MailFailed):
        return not isinstance(error, MailNotKnown)
    if isinstance(error, HTTPError):
        return error.code == HTTPStatus.TOO_MANY_REQUESTS or (error.code >= 500 and error.code not in _PASSED_ON)
    return isinstance(error, URLError) and isinstance(error.reason, ConnectionRefusedError | socket.gaierror)


_PASSED_ON = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
"""What a proxy answers that passed a request on, and got no answer, or one that it does not understand."""


class _Tries:
    """What was tried in one way, and what of it failed: all that comes after `FAILURES` in a row, too."""

    def __init__(self, failure: str, begin: Begin) -> None:
        """failure: what is said of each that fails."""
        self.failed: dict[Told, Failure] = {}
        self._failure, self._begin = failure, begin
        self._in_a_row = 0

    def run(self, about: Sequence[Told], action: Callable[[], None]) -> None:
        """Try it, unless too much has failed."""
        why, certain = f"not tried after {FAILURES} failures", True
        if self._in_a_row < FAILURES:
            self._begin(about)
            try:
                action()
            except (MailFailed, OSError, HTTPException, ValueError) as error:
                self._in_a_row += 1
                why, certain = str(error) or type(error).__name__, _certain(error)
            else:
                self._in_a_row = 0
                return
        self.failed |= dict.fromkeys(about, Failure(f"{self._failure}: {why}", certain))
