"""Two controllers, one daemon that acts: whose turn it is, and the sign of life of the one whose turn it was.

A daemon runs on each of SlurmctldHost. One acts where Slurm's own controller of that machine is in charge and no other
daemon shows life; the others stand by. Slurm's takeover is the signal: a backup slurmctld takes charge when the
primary's does not answer. The sign of life is a file in a folder that the controllers share; who stands by judges it by
how long it stood still on its own clock, so clocks need not agree.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slurmplug.cluster.site_client import Controller
from slurmplug.errors import NotConfirmed, SteppedDown

BEATS = 6
"""Signs of life while the other's patience lasts."""
_BYTES = 200

log = logging.getLogger(__name__)


class Sign(NamedTuple):
    """A sign of life: whose, of which of its processes, and which in a row. Empty where nobody acts."""

    host: str = ""
    process: str = ""
    number: str = ""


class Turn(NamedTuple):
    """Whether to act, and why not."""

    acts: bool
    why: str = ""


def position(controllers: Sequence[Controller], host: str) -> int | None:
    """Which of the controllers this machine is, 0 for the primary; None where it is none."""
    names = [each.host.partition(".")[0] for each in controllers]
    own = host.partition(".")[0]
    return names.index(own) if own in names else None


def in_charge(controllers: Sequence[Controller]) -> int | None:
    """The first that answers, as Slurm has it; None where none does."""
    return next((at for at, each in enumerate(controllers) if each.up), None)


def turn(own: int | None, controllers: Sequence[Controller], sign: Sign, still: float, patience: float) -> Turn:
    """Whether the daemon on controller `own` may begin to act.

    `sign`: the last sign of life of one that acts, and `still`: the seconds that it has not changed.
    """
    if own is None:
        return Turn(False, f"this machine is none of SlurmctldHost: {', '.join(each.host for each in controllers)}")
    charge = in_charge(controllers)
    if charge is None:
        return Turn(False, "no slurmctld answers")
    if charge != own:
        return Turn(False, f"slurmctld on {controllers[charge].host} is in charge")
    ours = position(controllers, sign.host) == own  # of a daemon before this one: the lock beside the ledger was free
    if sign.host and not ours and still < patience:
        return Turn(False, f"the daemon on {sign.host} showed life {still:.0f} s ago")
    return Turn(True)


def elsewhere(folder: Path, host: str, patience: float) -> str:
    """The other machine whose daemon acts, empty where there is none. Raises NotConfirmed.

    For who looks only once: when the last sign of life was shown is told by the time of day.
    """
    sign = read(folder)
    if sign.host.partition(".")[0] in ("", host.partition(".")[0]):
        return ""
    try:
        still = time.time() - (folder / "acting").stat().st_mtime
    except OSError as error:
        raise NotConfirmed(f"{folder}/acting cannot be read: {error.strerror}") from error
    return sign.host if still < patience else ""


def stays(own: int | None, controllers: Sequence[Controller]) -> bool:
    """Whether a daemon that acts goes on: the primary's as long as it lives, a backup's until another is in charge."""
    return own == 0 or in_charge(controllers) in (own, None)


class Watch:
    """How long a sign stood still, by a monotonic clock of this machine."""

    def __init__(self, now: float) -> None:
        self._sign, self._since = Sign(), now

    def still(self, sign: Sign, now: float) -> float:
        """Seconds, counted from when this sign was first seen."""
        if sign != self._sign:
            self._sign, self._since = sign, now
        return now - self._since


class Life:
    """The sign of life of a daemon that acts, kept in the shared folder by a thread until it is closed."""

    def __init__(self, folder: Path, patience: float, host: str = "") -> None:
        """`patience`: seconds after which the others take this one for gone."""
        self._path = folder / "acting"
        self._host = host or socket.gethostname()
        self._process = secrets.token_hex(8)
        self._patience = patience
        self._count = 0
        self._shown = float("-inf")
        self._lost = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def claim(self) -> None:
        """Begin to show life. Raises SteppedDown where another was quicker, NotConfirmed where the folder fails."""
        with self._lock:
            self._show()
        self._ended.wait(self._patience / BEATS)  # for one that claims at the same moment
        self.confirm()
        self._thread = threading.Thread(target=self._beat, name="life", daemon=True)
        self._thread.start()

    def confirm(self) -> None:
        """Be sure that no other acts, before anything is done.

        Raises:
            SteppedDown: another acts.
            NotConfirmed: the shared folder cannot be read or written, so nobody can tell.
        """
        with self._lock:
            sign = read(self._path.parent)
            if self._lost or sign.process != self._process:
                self._lost = self._lost or f"the daemon on {sign.host or 'another controller'} acts now"
                raise SteppedDown(self._lost)
            if time.monotonic() - self._shown > self._patience / 2:  # as after a long pause of this machine
                self._show()

    def owns(self) -> bool:
        """Whether `confirm` would go well."""
        try:
            self.confirm()
        except (SteppedDown, NotConfirmed):
            return False
        return True

    def close(self) -> None:
        """Show life no more, and leave the place free for another at once."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        if self.owns():
            with suppress(NotConfirmed):
                self._write("")

    def _beat(self) -> None:
        while not self._ended.wait(self._patience / BEATS):
            try:
                with self._lock:
                    if read(self._path.parent).process != self._process:
                        return  # `confirm` tells
                    self._show()
            except NotConfirmed as error:
                log.warning("%s", error)

    def _show(self) -> None:
        self._count += 1
        self._write(f"{self._host} {self._process} {self._count}\n")
        self._shown = time.monotonic()

    def _write(self, text: str) -> None:
        coming = self._path.with_name(f".acting.{self._process}")
        try:
            coming.write_text(text)
            os.replace(coming, self._path)
        except OSError as error:
            raise NotConfirmed(f"{self._path} cannot be written: {error.strerror}") from error


def read(folder: Path) -> Sign:
    """The last sign of life in the shared folder. Raises NotConfirmed."""
    try:
        with (folder / "acting").open("rb") as file:
            words = file.read(_BYTES).decode("ascii", "replace").split()
    except FileNotFoundError:
        return Sign()
    except OSError as error:
        raise NotConfirmed(f"{folder}/acting cannot be read: {error.strerror}") from error
    return Sign(*words) if len(words) == len(Sign._fields) else Sign()
