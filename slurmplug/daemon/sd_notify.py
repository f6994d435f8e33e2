"""Notifies systemd, where it runs the daemon, of its state by sd_notify(3): ready, reloading, watchdog, stopping."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

PINGS_PER_TIMEOUT = 3
"""Watchdog pings within systemd's WatchdogSec."""


class ServiceNotifier:
    """The service manager of this process; without one (no NOTIFY_SOCKET) every method does nothing."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        variables = os.environ if env is None else env
        self._address = variables.get("NOTIFY_SOCKET", "")
        microseconds = variables.get("WATCHDOG_USEC", "")
        for_us = variables.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.watchdog_interval = (
            int(microseconds) / 1e6 / PINGS_PER_TIMEOUT if for_us and microseconds.isdecimal() else None
        )
        """seconds from one watchdog ping to the next; None without a watchdog"""

    def ready(self, status: str) -> None:
        """Started, or reloaded; `status` is shown by `systemctl status`."""
        self._notify(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The configuration is being read again."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def ping_watchdog(self) -> None:
        """Still alive."""
        self._notify("WATCHDOG=1")

    def stopping(self) -> None:
        """About to exit."""
        self._notify("STOPPING=1")

    def _notify(self, state: str) -> None:
        """Send a state; a manager that does not listen is no reason not to work."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel,
        ):
            channel.sendto(state.encode(), address)
