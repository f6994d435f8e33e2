"""Notifications beside the cycles: recorded before they are sent, sent once, and what fails."""

import errno
import http.server
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from slurmplug.config.schema import Config
from slurmplug.daemon import notifications
from slurmplug.daemon.notifications import EVERY, Notifications
from slurmplug.errors import LedgerError
from slurmplug.ledger import notifications as kept
from slurmplug.processes.one_shot import OneShotProcess
from slurmplug.reports.notifications import LOOK_BACK, TRY_AGAIN_AFTER
from tests.ledgers import Site

LATE = b"#!/bin/sh\n#PLUG --deadline=1m --max-iterations=50\ntrain\n"


class Service:
    """A web service that is sent notifications; `status` is its answer."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.status = 200
        self.garbled = False
        self.before_answer: Callable[[], object] = lambda: None
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                service.before_answer()
                if service.garbled:
                    self.wfile.write(b"220 mail.example.org ESMTP\r\n")
                    return
                self.send_response(service.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    one = Service()
    yield one
    one.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A job whose deadline has passed."""
    with Site(tmp_path) as one:
        late(one)
        yield one


@pytest.fixture
def daemon(site: Site) -> Iterator[Notifications]:
    one = Notifications(site.ledger, site.path)
    yield one
    one.close()


def late(site: Site) -> None:
    site.cluster.start(site.cluster.submit(LATE, name="bert"))
    site.cycle()
    site.cluster.time += 120.0
    site.cycle()


def posting(url: str, **settings: Any) -> Config:
    return Config.from_table({"notifications": {"webhook": url, **settings}})


def look(daemon: Notifications, site: Site, config: Config) -> None:
    """What the daemon does after its cycles, until nothing is under way that was begun."""
    until = time.monotonic() + 120
    daemon.after_cycle(config, site.cluster.time)
    while daemon._looking or daemon._sending:
        assert time.monotonic() < until
        time.sleep(0.02)
        daemon.after_cycle(config, site.cluster.time)
    site.cluster.time += EVERY


def results(site: Site) -> list[tuple[str, str]]:
    return site.ledger.tuples("SELECT kind, result FROM notifications ORDER BY job, kind")


def test_each_is_posted_once_and_recorded(daemon: Notifications, site: Site, service: Service) -> None:
    config = posting(service.url)
    look(daemon, site, config)
    [one] = service.received
    assert {**one, "text": ""} == {
        "job": "1", "user": "ada", "name": "bert", "kind": "deadline", "text": "", "gpu_hours": None,
    }  # fmt: skip
    assert one["text"].startswith("Job 1 (bert): deadline. Its deadline, ")
    assert results(site) == [("deadline", "sent")]
    look(daemon, site, config)
    late(site)
    look(daemon, site, config)
    assert [each["job"] for each in service.received] == ["1", "2"]


def test_after_a_clock_that_was_ahead_is_right_again_users_are_told_on(
    daemon: Notifications, site: Site, service: Service
) -> None:
    site.cluster.time += 30 * 86_400.0
    look(daemon, site, posting(service.url))
    site.cluster.time -= 30 * 86_400.0
    late(site)
    look(daemon, site, posting(service.url))
    assert [each["job"] for each in service.received] == ["1", "2"]


def test_what_failed_by_a_clock_that_was_ahead_is_tried_again(
    daemon: Notifications, site: Site, service: Service
) -> None:
    site.cluster.time += 30 * 86_400.0
    service.status = 503
    look(daemon, site, posting(service.url))
    site.cluster.time -= 30 * 86_400.0
    service.status = 200
    look(daemon, site, posting(service.url))
    assert results(site) == [("deadline", "sent")]


def test_nothing_is_looked_for_where_none_is_wanted(daemon: Notifications, site: Site) -> None:
    for config in (Config(), posting("http://127.0.0.1:1/", about=[])):
        daemon.after_cycle(config, site.cluster.time)
        assert daemon._looking is None


def test_what_cannot_be_recorded_is_not_sent(
    daemon: Notifications, site: Site, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(kept, "record", full)
    with pytest.raises(LedgerError):
        look(daemon, site, posting(service.url))
    assert service.received == []
    monkeypatch.undo()
    site.cluster.time += EVERY
    look(daemon, site, posting(service.url))
    assert len(service.received) == 1


def test_what_was_not_sent_is_recorded_and_logged_and_tried_again_later(
    daemon: Notifications, site: Site, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.status = 500
    look(daemon, site, posting(service.url))
    assert results(site) == [("deadline", "not posted: HTTP Error 500: Internal Server Error")]
    logged = "1 of 1 notifications were not sent, of which 1 are tried again: not posted: HTTP Error 500"
    assert logged in caplog.text
    service.status = 200
    look(daemon, site, posting(service.url))
    assert len(service.received) == 1
    site.cluster.time += TRY_AGAIN_AFTER[0]
    for _ in range(2):
        look(daemon, site, posting(service.url))
    assert len(service.received) == 2
    assert results(site) == [("deadline", "sent")]


def test_it_is_given_up_after_the_last_try(
    daemon: Notifications, site: Site, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.status = 503
    look(daemon, site, posting(service.url))
    for after in (*TRY_AGAIN_AFTER, LOOK_BACK):
        site.cluster.time += after
        look(daemon, site, posting(service.url))
    assert len(service.received) == 1 + len(TRY_AGAIN_AFTER)
    assert "of which 0 are tried again" in caplog.text


@pytest.mark.parametrize("status", [400, 404, 502, 504])
def test_what_the_service_will_never_take_or_may_have_taken_is_not_tried_again(
    daemon: Notifications, site: Site, service: Service, status: int
) -> None:
    service.status = status
    for _ in range(2):
        look(daemon, site, posting(service.url))
        site.cluster.time += TRY_AGAIN_AFTER[0]
    assert len(service.received) == 1


def test_a_service_that_is_not_there_is_tried_again(daemon: Notifications, site: Site, service: Service) -> None:
    look(daemon, site, posting("http://127.0.0.1:1/"))
    [(_, result)] = results(site)
    assert "Connection refused" in result
    site.cluster.time += TRY_AGAIN_AFTER[0]
    look(daemon, site, posting(service.url))
    assert len(service.received) == 1


def test_mail_that_failed_is_tried_again_without_what_was_posted(
    daemon: Notifications, site: Site, service: Service
) -> None:
    config = Config.from_table(
        {"notifications": {"mail": "all", "webhook": service.url}, "slurm": {"bin": "/nonexistent"}}
    )
    look(daemon, site, config)
    site.cluster.time += TRY_AGAIN_AFTER[0]
    look(daemon, site, config)
    assert len(service.received) == 1
    assert site.ledger.tuples("SELECT again, tries FROM notifications") == [("mail", 2)]


def test_what_answers_may_be_no_web_service(daemon: Notifications, site: Site, service: Service) -> None:
    service.garbled = True
    look(daemon, site, posting(service.url))
    [(_, result)] = results(site)
    assert result.startswith("not posted: ")
    assert site.ledger.tuples("SELECT again FROM notifications") == [("",)]
    assert "220 mail.example.org" in result


def test_where_sending_fails_as_a_whole_it_is_said_and_tried_again(
    daemon: Notifications,
    site: Site,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(notifications, "send", fails)
    look(daemon, site, posting(service.url))
    assert "1 of 1 notifications were not sent, of which 1 are tried again" in caplog.text
    assert results(site) == [("deadline", "not sent: the process that sends has ended")]
    monkeypatch.undo()
    site.cluster.time += TRY_AGAIN_AFTER[0]
    look(daemon, site, posting(service.url))
    assert len(service.received) == 1
    assert results(site) == [("deadline", "sent")]


def test_where_no_process_can_be_started_users_are_told_later(
    daemon: Notifications, site: Site, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = OneShotProcess

    def start(name: str, serve: Callable[..., None], *arguments: object) -> OneShotProcess:
        if serve is notifications.send:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return started(name, serve, *arguments)

    monkeypatch.setattr(notifications, "OneShotProcess", start)
    look(daemon, site, posting(service.url))
    assert service.received == []
    monkeypatch.undo()
    site.cluster.time += TRY_AGAIN_AFTER[0]
    look(daemon, site, posting(service.url))
    assert results(site) == [("deadline", "sent")]


def test_what_a_killed_process_had_not_begun_to_send_is_sent_later_and_nothing_twice(
    daemon: Notifications, site: Site, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    late(site)
    late(site)

    def kill() -> None:
        if len(service.received) == 2:
            os.kill(pid_of_sender(daemon), signal.SIGKILL)

    service.before_answer = kill
    look(daemon, site, posting(service.url))
    assert [result.partition(":")[0] for _, result in results(site)] == ["unknown", "unknown", "not sent"]
    assert "of 2 notifications it is not known whether they were sent" in caplog.text
    site.cluster.time += TRY_AGAIN_AFTER[0]
    look(daemon, site, posting(service.url))
    assert [each["job"] for each in service.received] == ["1", "2", "3"]
    assert [result for _, result in results(site)] == ["unknown", "unknown", "sent"]


def test_what_had_not_begun_when_the_daemon_ended_is_sent_by_the_next_one(site: Site, service: Service) -> None:
    late(site)
    first, waiting = Notifications(site.ledger, site.path), threading.Event()
    service.before_answer = waiting.wait
    try:
        until = time.monotonic() + 120
        while not service.received and time.monotonic() < until:
            first.after_cycle(posting(service.url), site.cluster.time)
            time.sleep(0.02)
        first.close()
    finally:
        waiting.set()
    site.cluster.time += TRY_AGAIN_AFTER[0]
    with closing(Notifications(site.ledger, site.path)) as second:
        look(second, site, posting(service.url))
    assert [each["job"] for each in service.received] == ["1", "2"]
    assert [result for _, result in results(site)] == ["unknown", "sent"]


def pid_of_sender(daemon: Notifications) -> int:
    assert daemon._sending is not None
    assert daemon._sending._child is not None
    return daemon._sending._child.pid


def test_after_three_failures_in_a_row_no_more_is_tried(daemon: Notifications, site: Site, service: Service) -> None:
    for _ in range(4):
        late(site)
    service.status = 503
    look(daemon, site, posting(service.url))
    assert len(service.received) == 3
    assert [result for _, result in results(site)][3:] == ["not posted: not tried after 3 failures"] * 2


def test_without_slurm_there_is_no_mail_and_it_says_so(
    daemon: Notifications, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config.from_table({"notifications": {"mail": "all"}, "slurm": {"bin": "/nonexistent"}})
    look(daemon, site, config)
    [(_, result)] = results(site)
    assert result.startswith("no mail: scontrol")


def test_a_process_that_fails_is_logged_and_tried_again(
    daemon: Notifications,
    site: Site,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(notifications, "look", fails)
    with caplog.at_level(logging.ERROR):
        look(daemon, site, posting(service.url))
    assert "users are not told of their jobs now" in caplog.text
    monkeypatch.undo()
    look(daemon, site, posting(service.url))
    assert len(service.received) == 1


def fails(*_: object) -> None:
    raise ValueError("no look")


def test_closing_ends_what_is_under_way(site: Site, service: Service) -> None:
    one = Notifications(site.ledger, site.path)
    one.after_cycle(posting(service.url), site.cluster.time)
    assert one._looking is not None
    child = one._looking
    one.close()
    assert one._looking is None
    assert not child.running
