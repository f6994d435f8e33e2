"""The lease that lets one of several controllers' daemons act, renewed by heartbeats in a folder that they share.

A daemon runs on each host of SlurmctldHost. The one that acts is on the host whose slurmctld is in control, and holds
the lease; the others stand by. Slurm's failover decides: a backup slurmctld takes control when the primary does not
answer. The holder renews its lease by writing a heartbeat into a file; a daemon that stands by measures on its own
clock how long the heartbeat has not changed, so the hosts' clocks need not agree.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slurmplug.cluster.site_client import Controller
from slurmplug.daemon.shared_folder import Heartbeat, SharedFolder, read_heartbeat
from slurmplug.errors import NotConfirmed, SteppedDown

HEARTBEATS = 6
"""Heartbeats within `takeover.patience`, after which a lease has expired."""
RELEASE_SECONDS = 0.3
"""in which it is released; else another daemon waits until it has expired"""

log = logging.getLogger(__name__)


class Eligibility(NamedTuple):
    """Whether a daemon may acquire the lease; if not, the reason, and a detail that changes with time."""

    eligible: bool
    reason: str = ""
    detail: str = ""

    @property
    def message(self) -> str:
        """The reason with its detail."""
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


def controller_index(controllers: Sequence[Controller], host: str) -> int | None:
    """The position of a host among the controllers, 0 for the primary; None if it is not one of them."""
    names = [each.host.partition(".")[0] for each in controllers]
    own = host.partition(".")[0]
    return names.index(own) if own in names else None


def controller_in_control(controllers: Sequence[Controller]) -> int | None:
    """The position of the controller that is in control: the first that answers; None if none does."""
    return next((at for at, each in enumerate(controllers) if each.up), None)


def eligibility(
    own: int | None, controllers: Sequence[Controller], heartbeat: Heartbeat, age: float, patience: float
) -> Eligibility:
    """Whether the daemon on controller `own` may acquire the lease.

    `heartbeat`: the last one of the holder; `age`: the seconds for which it has not changed.
    """
    if own is None:
        return Eligibility(False, f"this host is not in SlurmctldHost: {', '.join(each.host for each in controllers)}")
    in_control = controller_in_control(controllers)
    if in_control is None:
        return Eligibility(False, "no slurmctld answers")
    if in_control != own:
        return Eligibility(False, f"slurmctld on {controllers[in_control].host} is in control")
    ours = controller_index(controllers, heartbeat.host) == own  # an earlier daemon's: the ledger's lock was free
    if heartbeat.host and not ours and age < patience:
        return Eligibility(False, f"the daemon on {heartbeat.host} is alive", f"last heartbeat {age:.0f} s ago")
    return Eligibility(True)


def may_continue(own: int | None, controllers: Sequence[Controller]) -> bool:
    """Whether the holder goes on: the primary's for as long as it lives, a backup's until another is in control."""
    return own == 0 or controller_in_control(controllers) in (own, None)


def other_active_host(folder: Path, host: str, patience: float) -> str:
    """The other host whose daemon holds the lease; empty if there is none. For a single check, by the time of day.

    Raises:
        NotConfirmed: the shared folder cannot be read.
    """
    heartbeat = read_heartbeat(folder)
    if heartbeat.host.partition(".")[0] in ("", host.partition(".")[0]):
        return ""
    try:
        age = time.time() - (folder / "acting").stat().st_mtime
    except OSError as error:
        raise NotConfirmed(f"{folder}/acting cannot be read: {error.strerror}") from error
    return heartbeat.host if age < patience else ""


class HeartbeatMonitor:
    """Measures how long the heartbeat has not changed, by this host's monotonic clock."""

    def __init__(self, now: float) -> None:
        self._last, self._since = Heartbeat(), now

    def age(self, heartbeat: Heartbeat, now: float) -> float:
        """Seconds since this heartbeat was first seen."""
        if heartbeat != self._last:
            self._last, self._since = heartbeat, now
        return now - self._since


class Lease:
    """The right of one daemon to act, renewed in the shared folder by a thread until it is closed.

    The thread and `confirm` ask the folder's process, under deadlines: what is not confirmed in time is not held.
    """

    def __init__(self, folder: SharedFolder, patience: float, host: str = "") -> None:
        """`patience`: the seconds without a heartbeat after which the lease has expired."""
        self.folder = folder
        self._host = host or socket.gethostname()
        self._process = secrets.token_hex(8)
        self._patience = patience
        self._count = 0
        self._renewed_at = float("-inf")
        self._lost = ""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Write a first heartbeat, and renew it from then on.

        Raises:
            SteppedDown: another daemon acquired the lease at the same time.
            NotConfirmed: the shared folder cannot be read or written.
        """
        with self._lock:
            self._renew()
        self._closed.wait(self._patience / HEARTBEATS)  # for one that acquires it at the same moment
        self.confirm()
        self._thread = threading.Thread(target=self._keep_renewing, name="lease", daemon=True)
        self._thread.start()

    def confirm(self) -> None:
        """Make sure that the lease is still held; called before anything is done to the cluster.

        Raises:
            SteppedDown: another daemon holds the lease.
            NotConfirmed: the shared folder cannot be read or written.
        """
        with self._lock:
            heartbeat = self.folder.heartbeat()
            if self._lost or heartbeat.process != self._process:
                self._lost = self._lost or f"the daemon on {heartbeat.host or 'another controller'} is active now"
                raise SteppedDown(self._lost)
            if time.monotonic() - self._renewed_at > self._patience / 2:  # as after this machine was suspended
                self._renew()

    def is_held(self) -> bool:
        """Whether `confirm` succeeds."""
        try:
            self.confirm()
        except (SteppedDown, NotConfirmed):
            return False
        return True

    @property
    def holder(self) -> "Holder":
        """Who holds it, for a process that asks the folder by itself."""
        return Holder(self.folder.path, self._process)

    def finish_within(self, seconds: float) -> None:
        """Wait for the folder no longer than so many seconds from now; safe in a signal handler."""
        self.folder.finish_within(seconds)

    def close(self) -> None:
        """Release the lease, where the folder answers at once: another daemon may acquire it then."""
        self._closed.set()
        self.folder.finish_within(RELEASE_SECONDS)
        if self._thread:
            self._thread.join(RELEASE_SECONDS)
        if self.is_held():
            with suppress(NotConfirmed):
                self.folder.write_heartbeat(Heartbeat())

    def _keep_renewing(self) -> None:
        while not self._closed.wait(self._patience / HEARTBEATS):
            try:
                with self._lock:
                    if self.folder.heartbeat().process != self._process:
                        return  # `confirm` raises SteppedDown
                    self._renew()
            except NotConfirmed as error:
                log.warning("%s", error)

    def _renew(self) -> None:
        self._count += 1
        self.folder.write_heartbeat(Heartbeat(self._host, self._process, str(self._count)))
        self._renewed_at = time.monotonic()


class Holder(NamedTuple):
    """The holder of a lease."""

    folder: Path
    process: str

    def acts(self) -> bool:
        """Whether it still holds the lease."""
        try:
            return read_heartbeat(self.folder).process == self.process
        except NotConfirmed:
            return False
