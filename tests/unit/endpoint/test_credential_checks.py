"""Clients that nobody knows yet take turns by address in having their credentials checked."""

import threading
import time
from collections.abc import Callable

import pytest

from slurmplug.endpoint.credential_checks import CredentialChecks


class Waiting:
    """Threads that wait for a check, each of which lasts until it is let go."""

    def __init__(self, checks: CredentialChecks) -> None:
        self.checks = checks
        self.begun: list[str] = []
        self.left: list[str] = []
        self.closed: set[str] = set()
        self._go: dict[str, threading.Event] = {}

    def come(self, name: str, address: str) -> None:
        """One more; it waits or is checked when this returns."""
        self._go[name] = threading.Event()
        known = len(self.begun) + len(self.checks._waiting)
        threading.Thread(target=self._wait, args=(name, address), daemon=True).start()
        until(lambda: len(self.begun) + len(self.checks._waiting) > known)

    def end(self, name: str) -> None:
        self._go[name].set()

    def _wait(self, name: str, address: str) -> None:
        try:
            with self.checks.turn(address, 60.0, lambda: name not in self.closed):
                self.begun.append(name)
                self._go[name].wait(60)
        except TimeoutError:
            self.left.append(name)


def until(true: Callable[[], bool]) -> None:
    for _ in range(1200):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come true")


@pytest.fixture
def waiting() -> Waiting:
    return Waiting(CredentialChecks(4))


def test_a_flood_from_one_address_keeps_no_other_waiting(waiting: Waiting) -> None:
    for number in range(20):
        waiting.come(f"junk{number}", "login1")
    waiting.come("honest", "login2")
    until(lambda: "honest" in waiting.begun)
    assert waiting.begun == ["junk0", "junk1", "honest"]
    waiting.end("junk0")
    until(lambda: waiting.begun[3:] == ["junk2"])


def test_where_all_are_busy_next_is_who_came_from_where_the_fewest_are_checked(waiting: Waiting) -> None:
    for name, address in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("a3", "a"), ("c1", "c")):
        waiting.come(name, address)
    waiting.end("a1")
    until(lambda: len(waiting.begun) == 5)
    assert waiting.begun[-1] == "c1"


def test_who_was_closed_meanwhile_leaves_at_once(waiting: Waiting) -> None:
    for number in range(3):
        waiting.come(f"junk{number}", "login1")
    waiting.closed = {"junk2"}
    waiting.checks.look_again()
    until(lambda: waiting.left == ["junk2"])
    assert not waiting.checks._waiting


def test_who_waits_too_long_leaves(waiting: Waiting) -> None:
    for number in range(2):
        waiting.come(f"junk{number}", "login1")
    with pytest.raises(TimeoutError), waiting.checks.turn("login1", 0.01, lambda: True):
        pass
