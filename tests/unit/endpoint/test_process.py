"""The endpoint's processes: what makes reports, and the daemon's end of the endpoint's own."""

import base64
import http.client
import json
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurmplug.config.schema import Config
from slurmplug.daemon.log_format import JsonLines
from slurmplug.endpoint import changes, process, report_makers, wire
from slurmplug.endpoint.changes import Answered, ChangesByDaemon, Wanted
from slurmplug.endpoint.process import EndpointProcess
from slurmplug.endpoint.report_makers import PageRequest, ReportMakerProcess
from slurmplug.errors import SteppedDown, UsageError
from slurmplug.ledger.directive_changes import Author, ChangeRequest
from slurmplug.ledger.selection import JobId
from slurmplug.processes import child
from slurmplug.processes.child import Channel, Child
from slurmplug.reports.viewer import OPERATOR
from tests.builders import CLUSTER
from tests.ledgers import Site

REQUEST = ChangeRequest(JobId(1), ("--urgency=9",), "0" * 32, CLUSTER)
AUTHOR = Author(1001, "ada", operator=False, sees_all=False)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        one.cluster.submit()
        one.cycle()
        yield one


@pytest.fixture
def config(site: Site) -> Config:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    settings = {"listen": listen, "munge_socket": str(site.path.with_name("none"))}
    return Config.from_table({"endpoint": settings, "ledger": {"path": str(site.path)}, "slurm": {"bin": "/none"}})


def listens(config: Config) -> bool:
    host, _, port = config.endpoint.listen.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=60) as raw:
            raw.sendall(b"POST /v1/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
            return b" 401 " in raw.recv(100)
    except OSError:
        return False


def until(true: Callable[[], bool]) -> None:
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come true")


def test_a_report_is_made_in_a_process_that_has_less_of_the_machine(config: Config) -> None:
    make = ReportMakerProcess("reports", 3)
    try:
        made = make(PageRequest("queue", b'{"fields": ["jobid", "state"]}', OPERATOR, config))
        assert (made.status, json.loads(made.response)) == (200, {"columns": [["1"], ["PENDING"]], "more": False})
        assert made.seconds > 0
        pid = make._child.pid
        assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0) + 3
        assert make(PageRequest("queue", b'{"jobs": 1}', OPERATOR, config)).status == 400
        assert make._child.pid == pid
    finally:
        make._child.kill()


def test_a_process_that_hangs_is_ended_and_another_makes_the_next(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "PAUSE", 0.0)
    make = ReportMakerProcess("reports", 0)
    try:
        assert make(PageRequest("status", b"{}", OPERATOR, config)).status == 200
        os.kill(make._child.pid, signal.SIGSTOP)
        with monkeypatch.context() as hurried:
            hurried.setattr(report_makers, "REPORT_SECONDS", 0.1)
            assert make(PageRequest("status", b"{}", OPERATOR, config)).status == 503
        until(lambda: make(PageRequest("status", b"{}", OPERATOR, config)).status == 200)
    finally:
        make._child.kill()


def test_the_endpoint_is_served_by_a_process_of_its_own_and_by_another_when_that_has_ended(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        served = EndpointProcess(config, lambda: None)
        try:
            until(lambda: listens(config))
            os.kill(served._child.pid, signal.SIGKILL)
            until(lambda: "it is started again" in caplog.text and listens(config))
        finally:
            served.close()
    assert not served._child.running


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_its_log_is_the_daemons_in_level_and_format(
    config: Config, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], level: int
) -> None:
    written = logging.StreamHandler()
    written.setFormatter(JsonLines())
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [written])
    monkeypatch.setattr(root, "level", level)
    served = EndpointProcess(config, lambda: None)
    try:
        until(lambda: listens(config))
    finally:
        served.close()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    shown = [(line["level"], line["message"].split(" on ")[0]) for line in lines]
    assert ("INFO", "reports are served") in shown
    access = [message for level_name, message in shown if level_name == "DEBUG" and "POST /v1/status" in message]
    assert bool(access) == (level == logging.DEBUG)


def test_a_port_that_is_taken_is_said(config: Config, capfd: pytest.CaptureFixture[str]) -> None:
    host, _, port = config.endpoint.listen.rpartition(":")
    said: list[str] = []

    def is_said() -> bool:
        said.append(capfd.readouterr().err)
        return "reports work on the controller only" in "".join(said)

    with socket.socket() as other:
        other.bind((host, int(port)))
        other.listen()
        served = EndpointProcess(config, lambda: None)
        try:
            until(is_said)
        finally:
            served.close()


def ask_for_a_change(channel: Channel, _: Config) -> None:
    """A process that asks the daemon for a change, and logs what came of it."""
    channel.send(Wanted(7, REQUEST, AUTHOR))
    answered: Answered = channel.receive()
    logging.error("%d: %s", answered.number, str(answered.result))
    channel.receive()


@pytest.mark.parametrize("may", [True, False])
def test_only_the_daemon_writes_the_changes_that_are_passed_to_it(
    site: Site, config: Config, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], may: bool
) -> None:
    expected = "7: ['job 1: --urgency=9" if may else "the daemon on b is active now"
    said: list[str] = []

    def confirm() -> None:
        if not may:
            raise SteppedDown("the daemon on b is active now")

    def is_said() -> bool:
        said.append(capfd.readouterr().err)
        return expected in "".join(said)

    monkeypatch.setattr(process, "serve", ask_for_a_change)
    served = EndpointProcess(config, confirm)
    try:
        until(is_said)
    finally:
        served.close()
    assert len(site.ledger.query("SELECT * FROM directive_changes")) == may


def test_a_change_is_answered_to_who_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    by_daemon, daemon = ChangesByDaemon(Channel(ours)), Channel(theirs)
    results: dict[str, object] = {}

    def ask(name: str) -> None:
        try:
            results[name] = by_daemon(REQUEST, AUTHOR._replace(user=name))
        except UsageError as error:
            results[name] = str(error)

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    until(lambda: by_daemon._sent.qsize() == 2)
    assert select.select([by_daemon.woken], [], [], 60)[0]  # as the endpoint's process waits for it
    by_daemon.send()
    wanted = {each.author.user: each.number for each in (daemon.receive(60), daemon.receive(60))}
    by_daemon.take(Answered(wanted["bob"], UsageError("it is ada's")))
    by_daemon.take(Answered(99, []))
    by_daemon.take(Answered(wanted["ada"], ["changed"]))
    for thread in threads:
        thread.join(60)
    assert results == {"ada": ["changed"], "bob": "it is ada's"}
    monkeypatch.setattr(changes, "ANSWER_SECONDS", 0.0)
    with pytest.raises(Exception, match="the daemon did not answer"):
        by_daemon(REQUEST, AUTHOR)
    os.close(by_daemon.woken)
    ours.close()
    theirs.close()


UNMUNGE = """#!/bin/sh
read credential
said=$(printf %s "$credential" | cut -d: -f2 | base64 -d)
printf 'STATUS: 0\\nUID: %s\\n\\n%s' "${said%%:*}" "${said#*:}"
"""
"""Believes whoever writes a credential."""


@pytest.fixture
def believing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = site.path.parent
    (folder / "unmunge").write_text(UNMUNGE)
    (folder / "unmunge").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def post_change(config: Config, request: ChangeRequest = REQUEST) -> tuple[int, dict[str, object]]:
    """The status and the answer; raises OSError where nothing listens."""
    body = json.dumps(wire.change_body(request)).encode()
    said = base64.b64encode(b"1001:" + wire.payload("set", body)).decode()
    host, _, port = config.endpoint.listen.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        connection.request("POST", "/v1/set", body, {"Authorization": f"Munge MUNGE:{said}:"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.usefixtures("believing")
def test_a_user_changes_a_directive_through_both_processes(site: Site, config: Config) -> None:
    answers: list[tuple[int, dict[str, object]]] = []

    def answered() -> bool:
        try:
            answers.append(post_change(config))
        except OSError:
            return False
        return True

    served = EndpointProcess(config, lambda: None)
    try:
        until(answered)
    finally:
        served.close()
    [(status, answer)] = answers
    assert (status, "job 1: --urgency=9" in str(answer)) == (200, True)
    assert len(site.ledger.query("SELECT * FROM directive_changes")) == 1


@pytest.mark.usefixtures("believing")
def test_two_changes_whose_answers_come_together_are_both_answered(config: Config) -> None:
    served = Child("endpoint", process.serve, config)
    answers: list[tuple[int, dict[str, object]]] = []

    def ask(nonce: str) -> None:
        answers.append(post_change(config, replace(REQUEST, id=nonce)))

    asking = [threading.Thread(target=ask, args=(digit * 32,)) for digit in "12"]
    try:
        until(lambda: listens(config))
        for thread in asking:
            thread.start()
        wanted = [served.channel.receive(60) for _ in asking]
        os.kill(served.pid, signal.SIGSTOP)
        for each in wanted:
            served.channel.send(Answered(each.number, ["changed"]))
        os.kill(served.pid, signal.SIGCONT)
        for thread in asking:
            thread.join(60)
    finally:
        served.kill()
    assert answers == [(200, {"changed": ["changed"]})] * 2
