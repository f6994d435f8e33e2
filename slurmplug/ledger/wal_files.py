"""Detects that the write-ahead log (ledger.db-wal) or its index (-shm) was removed, replaced or truncated by others.

The files are only examined by name, never opened: closing a descriptor of one would release SQLite's own locks on it.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

State = Literal["in place", "replaced", "shrunk"]


class _Seen(NamedTuple):
    inode: tuple[int, int]
    size: int


@dataclass
class WalFiles:
    """The log (-wal) and its index (-shm) of an open ledger, as they were when last checked. SQLite never makes either
    smaller while they are open."""

    ledger: Path
    _last: dict[str, _Seen] = field(default_factory=dict)

    def note(self) -> None:
        """Remember the present files as those that SQLite has open; call it right after it read them."""
        self._last = {ending: found for ending in ("-wal", "-shm") if (found := self._seen(ending)) is not None}

    def log(self) -> State:
        """The state of the log since the last check. If it shrank, the last cycles may be lost."""
        return self._state("-wal")

    def index(self) -> State:
        """The state of the index since the last check.

        One that shrank is extended to its former size with zeros: SQLite has it mapped and would die of SIGBUS; an
        index of zeros it rebuilds.
        """
        state = self._state("-shm")
        if state == "shrunk":
            with suppress(OSError):
                os.truncate(self._path("-shm"), 0)
                os.truncate(self._path("-shm"), self._last["-shm"].size)
        return state

    def _state(self, ending: str) -> State:
        before, now = self._last.get(ending), self._seen(ending)
        if before is None:
            return "in place"
        if now is None or now.inode != before.inode:
            return "replaced"
        if now.size < before.size:
            return "shrunk"
        self._last[ending] = now
        return "in place"

    def _seen(self, ending: str) -> _Seen | None:
        try:
            at = os.stat(self._path(ending), follow_symlinks=False)
        except OSError:
            return None
        return _Seen((at.st_dev, at.st_ino), at.st_size)

    def _path(self, ending: str) -> Path:
        return self.ledger.with_name(self.ledger.name + ending)
