"""A process beside the daemon's: asked under deadlines, started again, and ended without waiting for it."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from slurmplug.processes import child as processes
from slurmplug.processes.child import Channel, Child


def echo(channel: Channel, greeting: str) -> None:
    channel.send((greeting, os.getpid()))
    while True:
        message = channel.receive()
        if message == "end":
            return
        channel.send(message)


def computes(channel: Channel) -> None:
    channel.send("began")
    while True:
        pass


@pytest.fixture
def child() -> Iterator[Child]:
    one = Child("echo", echo, "hello")
    assert one.channel.receive(60) == ("hello", one.pid)
    yield one
    if one.running:
        os.kill(one.pid, signal.SIGCONT)
    one.kill()


def ended(child: Child) -> None:
    while child.running:
        time.sleep(0.01)


def test_messages_of_any_size_go_both_ways(child: Child) -> None:
    large = os.urandom(5_000_000)
    for message in ("a", large, None):
        child.channel.send(message)
        assert child.channel.receive(60) == message


def test_an_answer_that_is_late_comes_with_a_later_call(child: Child) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    large = os.urandom(5_000_000)
    child.channel.send(large)  # more than the kernel takes, and nothing waits
    with pytest.raises(TimeoutError):
        child.channel.receive(0.1)
    os.kill(child.pid, signal.SIGCONT)
    assert child.channel.receive(60) == large


def test_what_nobody_takes_is_not_waited_for_beyond_a_time(child: Child) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    child.channel.send(os.urandom(5_000_000))
    with pytest.raises(TimeoutError, match="not taken"):
        child.channel.flush(0.1)


def test_waiting_ends_as_soon_as_it_should_not_go_on(child: Child) -> None:
    calls = iter([True, True, False])
    with pytest.raises(TimeoutError, match="not waited for"):
        child.channel.receive(3600, lambda: next(calls))


def test_a_process_that_is_stopped_is_killed_without_waiting_for_it(child: Child) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    child.kill()
    assert not child.running


def test_it_ends_by_itself_when_the_daemon_is_gone(child: Child) -> None:
    child.channel.close()
    ended(child)


def test_it_ends_when_the_daemon_is_gone_also_while_it_computes() -> None:
    """A training went on beside that of the next daemon."""
    child = Child("computes", computes)
    assert child.channel.receive(60) == "began"
    child.channel.close()
    until = time.monotonic() + 60
    while child.running and time.monotonic() < until:
        time.sleep(0.05)
    was_running = child.running
    child.kill()
    assert not was_running


def test_only_the_daemon_ends_it(child: Child) -> None:
    """The service manager and a terminal send their signals to both."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(child.pid, number)
    child.channel.send("still there")
    assert child.channel.receive(60) == "still there"


def test_one_that_ended_is_started_again_with_new_arguments(
    child: Child, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert not child.start_again("too early: it runs")
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ConnectionError):
        child.channel.receive(60)
    ended(child)
    monkeypatch.setattr(processes, "PAUSE", 0.0)
    assert child.start_again("again")
    assert "the process echo has ended (status -9); it is started again" in caplog.text
    assert child.channel.receive(60) == ("again", child.pid)


def test_one_that_ends_at_once_is_not_started_again_and_again(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PAUSE", 3600.0)
    child.channel.send("end")
    ended(child)
    assert not child.start_again("again")
