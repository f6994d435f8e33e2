"""Word to the service manager, where there is one (sd_notify(3)): ready, reloading, alive, and in one line what for."""

import os
import socket
import time
from collections.abc import Mapping

BEATS = 3
"""Signs of life while systemd's watchdog waits for one."""


class Manager:
    """The service manager of this process; without one, every word goes nowhere."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        told = os.environ if env is None else env
        self._address = told.get("NOTIFY_SOCKET", "")
        microseconds = told.get("WATCHDOG_USEC", "")
        meant = told.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.beat = int(microseconds) / 1e6 / BEATS if meant and microseconds.isdecimal() else None
        """seconds from one sign of life to the next, None where none is wanted"""

    def ready(self, status: str) -> None:
        self.tell(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        self.tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def alive(self) -> None:
        self.tell("WATCHDOG=1")

    def stopping(self) -> None:
        self.tell("STOPPING=1")

    def tell(self, words: str) -> None:
        """Say it; that nobody listens is no reason not to work."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            try:
                channel.sendto(words.encode(), address)
            except OSError:
                return
