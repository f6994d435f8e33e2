"""The files that SQLite keeps beside the ledger, ledger.db-wal and -shm: whether they are the ones that it has open.

They are only looked at by their names: closing a descriptor of one would release SQLite's own locks on it.
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
class Beside:
    """The log (-wal) and its index (-shm) of an open ledger, as they were when last seen. SQLite never makes either
    smaller while it is open."""

    ledger: Path
    _last: dict[str, _Seen] = field(default_factory=dict)

    def note(self) -> None:
        """Take what is there now for what SQLite has open: right after it was opened and read."""
        self._last = {ending: found for ending in ("-wal", "-shm") if (found := self._seen(ending)) is not None}

    def log(self) -> State:
        """What became of the log since the last look: where it shrank, the last cycles may be lost with it."""
        return self._state("-wal")

    def index(self) -> State:
        """What became of the index since the last look. One that shrank is made as long as it was: SQLite, which has it
        mapped, would end with SIGBUS, and finds that it has to be made anew when it is all zeros."""
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
