"""The ledger's file: opened, migrated, written in whole transactions; its errors say what to do."""

import ctypes
import logging
import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from slurmplug.errors import LedgerDamaged, LedgerError, LedgerLost, advice
from slurmplug.ledger import codec
from slurmplug.ledger.rankings import CycleRankings
from slurmplug.ledger.schema import MIGRATIONS
from slurmplug.ledger.selection import has_node
from slurmplug.ledger.sqlite import Row, enable_wal, rows
from slurmplug.ledger.wal_files import WalFiles

BUSY_SECONDS = 10.0
"""How long another process that writes to the ledger is waited for."""
BUSY_TRY_MILLISECONDS = 500
"""How long SQLite waits at a time; it handles no signal meanwhile."""
STEPS = 100_000
"""of SQLite's virtual machine from one look at the clock to the next: milliseconds"""
WAL_PAGES = 64
"""of 4 KiB, after which what was written beside the file is moved into it. On a disk that is full before that, nothing
can be moved any more, as it takes room."""
GROUP_READS = 0o640
"""The mode of a new ledger, whatever the umask lets through: reports are read in the daemon's group. SQLite gives the
files beside it the same."""
_log = logging.getLogger(__name__)


class LedgerFile:
    """A SQLite file in WAL mode, or one in memory."""

    db: sqlite3.Connection

    def __init__(self, path: Path | None, *, readonly: bool) -> None:
        """As `Ledger`."""
        self.name = f"the ledger {path}" if path else "the ledger in memory"
        self.path = path
        self._until = math.inf
        self.rankings: CycleRankings | None = None
        """of the last cycle, kept for as long as it is the last one"""
        self.of_state: tuple[int, Any] | None = None
        """what a report made of one `state`, and that state"""
        self._readonly = readonly
        self._wal_files = None if path is None or readonly else WalFiles(path)
        with self.errors():
            self._files = _files(path)
            self._open(readonly)
            self._identity = _identity(path)
            try:
                self._migrate(readonly)
                if not readonly:
                    self._move_in()
                if self._wal_files is not None:
                    self._wal_files.note()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the file."""
        self.db.close()

    def require_in_place(self) -> None:
        """Look whether the file, and those that SQLite keeps beside it, are the ones that are open.

        Where its log or the index of that was removed, all that was written goes into the ledger, which is opened anew.

        Raises:
            LedgerError: the ledger was moved away: what is written to it would be lost.
            LedgerLost: of its log something is missing that the ledger does not have yet.
        """
        if _identity(self.path) != self._identity:
            raise LedgerError(f"{self.name} was moved or removed: put it back, or restart the daemon for a new one")
        if self._wal_files is None:
            return
        log, index = self._wal_files.log(), self._wal_files.index()
        if log == "shrunk":
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.db))  # closing would copy a part of it to the ledger
            self.db = sqlite3.connect(":memory:")
            raise self._lost("truncated")
        if "replaced" in (log, index):
            with self.errors():
                _, frames, copied = self.db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
                self.db.close()
                self._open(readonly=False)
                self._version()
            self._wal_files.note()
            if frames != copied:
                raise self._lost("removed")
        if log != "in place" or index != "in place":
            _log.warning("files beside %s were removed or truncated; nothing is lost", self.name)

    def _lost(self, how: str) -> LedgerLost:
        return LedgerLost(
            f"{self.name} has lost what was written last, as {self.path}-wal was {how}: start the daemon again, which "
            "goes on from what is left; where that is damaged, restore a backup"
        )

    def _open(self, readonly: bool) -> None:
        self.db, self._unlocked = _connected(self.path, readonly)
        self.db.create_function("has_node", 2, has_node, deterministic=True)
        try:
            self._set_up(readonly)
        except BaseException:
            self.db.close()
            raise

    def query(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        """The rows of a SELECT."""
        with self.errors():
            return list(rows(self.db.execute(sql, parameters)))

    def tuples(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a SELECT, in the order of its columns."""
        with self.errors():
            return self.db.execute(sql, parameters).fetchall()

    def value(self, sql: str, *parameters: object) -> Any:
        """The only column of the only row of a SELECT."""
        with self.errors():
            return self.db.execute(sql, parameters).fetchone()[0]

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """What is read within is of one state of the ledger, whatever is written meanwhile."""
        if self.db.in_transaction:
            yield
            return
        with self.errors():
            self.db.execute("BEGIN")
        try:
            yield
        finally:
            with self.errors():
                self.db.execute("ROLLBACK")

    def state(self) -> int | None:
        """A number that is another one after each change by others; None where this process may write itself."""
        return int(self.value("PRAGMA data_version")) if self._readonly else None

    def is_in_place(self) -> bool:
        """Whether the files that are open to be read are still those of the ledger, so that all changes are seen."""
        return not self._unlocked and self._files == _files(self.path)

    def decoded(self, data: bytes) -> Any:
        """A value that `codec.dumps` stored. Raises LedgerError where it is damaged."""
        try:
            return codec.loads(data)
        except ValueError as error:
            raise self.damaged(error) from error

    def backup(self, path: Path) -> None:
        """Copy the ledger while it is in use (SQLite's online backup): one file, whose readers need write nothing."""
        with self.errors():
            target = sqlite3.connect(path)
            try:
                self.db.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")  # WAL's readers write beside it
            finally:
                target.close()

    def _move_in(self) -> None:
        """Move what was written beside the file into it, whose room beside is then written again."""
        self.db.execute("PRAGMA wal_checkpoint").fetchall()

    def _set_up(self, readonly: bool) -> None:
        self.db.set_progress_handler(self._is_late, STEPS)
        self.db.execute("PRAGMA temp_store = MEMORY")  # wherever temporary files would go may be full, or not writable
        if not readonly:
            enable_wal(self.db)
            self.db.execute("PRAGMA foreign_keys = ON")
            self.db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
            self.db.execute(f"PRAGMA busy_timeout = {BUSY_TRY_MILLISECONDS}")

    def _migrate(self, readonly: bool) -> None:
        version = self._version()
        if version > len(MIGRATIONS):
            raise LedgerError(f"{self.name} was written by a newer slurmplug: upgrade this one")
        if readonly and version < len(MIGRATIONS):
            raise LedgerError(
                f"{self.name} is of an older release, or empty: start the daemon, which brings it up to date"
            )
        if 0 < version < len(MIGRATIONS):
            self._keep(version)
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            with self._transaction():
                if self._version() < number:  # another process may have been quicker
                    for statement in script.split(";\n"):
                        self.db.execute(statement)
                    self.db.execute(f"PRAGMA user_version = {number}")

    def _keep(self, version: int) -> None:
        """A copy from before an upgrade, beside it: the release before cannot read what comes after."""
        if self.path is None:
            return
        copy = self.path.with_name(f"{self.path.name}.version-{version}")
        try:
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return  # another process was quicker, or an upgrade that failed is tried again
        except OSError as error:
            raise LedgerError(f"no copy can be kept before the upgrade: {copy}: {error.strerror}") from error
        try:
            self.backup(copy)
        except BaseException:
            copy.unlink()
            raise

    def _version(self) -> int:
        return int(self.value("PRAGMA user_version"))

    def _put(self, table: str, new: Iterable[Row], key: Sequence[str] = ()) -> None:
        """Insert rows of one shape; one with the same key is replaced, where a key is given."""
        remaining = iter(new)
        first = next(remaining, None)
        if first is None:
            return
        names = [f'"{name}"' for name in first]
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        if key:  # itself it is not set again: that would write the row and its indexes anew
            given = ", ".join(f'"{name}" = excluded."{name}"' for name in first if name not in key)
            sql += f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {given}"
        self.db.executemany(sql, (tuple(row.values()) for row in chain([first], remaining)))

    def damaged(self, what: object) -> LedgerDamaged:
        """The error of a ledger that holds what cannot be read."""
        return LedgerDamaged(f"{self.name} is damaged, {what}: restore a backup, or move it away")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing. It waits for the lock at its begin, where waiting helps: not between reading and writing."""
        with self.errors():
            self.require_in_place()
            self._begin()
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                self.db.rollback()
                raise

    def _begin(self) -> None:
        """Begin to write, once no other process does; not within SQLite, which no signal interrupts."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
                if not busy or time.monotonic() > min(until, self._until):
                    raise
            else:
                return

    def finish_within(self, seconds: float) -> None:
        """Wait for other processes no longer than so many seconds from now, and end a statement that takes longer, with
        its transaction; safe in a signal handler."""
        self._until = min(self._until, time.monotonic() + seconds)

    def _is_late(self) -> bool:
        return time.monotonic() > self._until

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn an error of SQLite into a LedgerError that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            what_to_do = next((each for start, each in _ADVICE.items() if name.startswith(start)), "")
            raise LedgerError(f"{self.name} cannot be used: {error}{_of_system() or what_to_do}") from error


def _of_system() -> str:
    """What to do where no file can be opened at all, which SQLite does not tell from one that is not there."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return advice(error)
    return ""


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        at = path.stat() if path else None
    except FileNotFoundError:
        return None
    return (at.st_dev, at.st_ino) if at else None


def _files(path: Path | None) -> tuple[tuple[int, int] | None, ...]:
    """Which files SQLite uses of a ledger: itself, its log and the index of that."""
    return tuple(_identity(path.with_name(path.name + end)) for end in ("", "-wal", "-shm")) if path else ()


def _connected(path: Path | None, readonly: bool) -> tuple[sqlite3.Connection, bool]:
    """A connection, and whether it goes without locks, by which it would see changes."""
    if path is None:
        return sqlite3.connect(":memory:", isolation_level=None), False
    if not readonly:
        with suppress(OSError):  # it is there, or SQLite will say what is in the way
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, GROUP_READS))
    uri = f"{path.absolute().as_uri()}?mode={'ro' if readonly else 'rwc'}"
    unlocked = readonly and not _in_use(path) and not os.access(path.parent, os.W_OK, effective_ids=True)
    if unlocked:
        uri += "&immutable=1"  # a reader of WAL would have to write beside the file
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None), unlocked


def _in_use(path: Path) -> bool:
    return path.with_name(path.name + "-wal").exists()


_ADVICE = {
    "SQLITE_INTERRUPT": ": the daemon is to end",
    "SQLITE_FULL": "; make room on its disk",
    "SQLITE_IOERR": "; is its disk full or failing?",
    "SQLITE_BUSY": "; another process has held it for long: a backup, or a second daemon?",
    "SQLITE_CORRUPT": "; restore a backup, or move it away",
    "SQLITE_NOTADB": "; restore a backup, or move it away",
    "SQLITE_CANTOPEN": "; does its folder exist, and is it this user's?",
    "SQLITE_READONLY": "; is it this user's?",
}
"""Advice on what to do, by the beginning of SQLite's name for the error."""
