"""The ledger's file: opened, migrated, written in whole transactions; its errors say what to do."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from slurmplug.errors import LedgerError
from slurmplug.ledger import codec
from slurmplug.ledger.rows import Row
from slurmplug.ledger.schema import MIGRATIONS

BUSY_SECONDS = 10.0
GROUP_READS = 0o640
"""The mode of a new ledger, whatever the umask lets through: reports are read in the daemon's group. SQLite gives the
files beside it the same."""


class LedgerFile:
    """A SQLite file in WAL mode, or one in memory."""

    def __init__(self, path: Path | None, *, readonly: bool) -> None:
        """As `Ledger`."""
        self.name = f"the ledger {path}" if path else "the ledger in memory"
        self._path = path
        with self.errors():
            self.db = _connected(path, readonly)
            self._identity = _identity(path)
            self._migrate(readonly)

    def close(self) -> None:
        """Let go of the file."""
        self.db.close()

    def query(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        """The rows of a SELECT."""
        with self.errors():
            return list(self.db.query(sql, parameters))

    def value(self, sql: str, *parameters: object) -> Any:
        """The only column of the only row of a SELECT."""
        with self.errors():
            return self.db.execute(sql, parameters).fetchone()[0]

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
                self.db.conn.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")  # WAL's readers write beside it
            finally:
                target.close()

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
                        self.db.conn.execute(statement)
                    self.db.conn.execute(f"PRAGMA user_version = {number}")

    def _keep(self, version: int) -> None:
        """A copy from before an upgrade, beside it: the release before cannot read what comes after."""
        if self._path is None:
            return
        copy = self._path.with_name(f"{self._path.name}.version-{version}")
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

    def _put(self, table: str, rows: Iterable[Row], key: Sequence[str] = ()) -> None:
        """Insert rows of one shape; one with the same key is replaced, where a key is given.

        Not by sqlite-utils, which on a full disk takes SQLite for one without upsert, and then drops rows silently.
        """
        remaining = iter(rows)
        first = next(remaining, None)
        if first is None:
            return
        names = [f'"{name}"' for name in first]
        sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        if key:  # itself it is not set again: that would write the row and its indexes anew
            given = ", ".join(f'"{name}" = excluded."{name}"' for name in first if name not in key)
            sql += f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {given}"
        self.db.conn.executemany(sql, (tuple(row.values()) for row in chain([first], remaining)))

    def damaged(self, what: object) -> LedgerError:
        """The error of a ledger that holds what cannot be read."""
        return LedgerError(f"{self.name} is damaged, {what}: restore a backup, or move it away")

    def _require_in_place(self) -> None:
        """Raises LedgerError where the file was moved away: what is written to it would be lost."""
        if _identity(self._path) != self._identity:
            raise LedgerError(f"{self.name} was moved or removed: put it back, or restart the daemon for a new one")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing. It waits for the lock at its begin, where waiting helps: not between reading and writing."""
        with self.errors():
            self._require_in_place()
            self.db.conn.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.conn.execute("COMMIT")
            except BaseException:
                self.db.conn.rollback()
                raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn an error of SQLite into a LedgerError that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            advice = next((advice for start, advice in _ADVICE.items() if name.startswith(start)), "")
            raise LedgerError(f"{self.name} cannot be used: {error}{advice}") from error


def _identity(path: Path | None) -> tuple[int, int] | None:
    try:
        at = path.stat() if path else None
    except FileNotFoundError:
        return None
    return (at.st_dev, at.st_ino) if at else None


def _connected(path: Path | None, readonly: bool) -> Database:
    if path is None:
        db = Database(memory=True)
    else:
        if not readonly:
            with suppress(OSError):  # it is there, or SQLite will say what is in the way
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, GROUP_READS))
        uri = f"{path.absolute().as_uri()}?mode={'ro' if readonly else 'rwc'}"
        if readonly and not _in_use(path) and not os.access(path.parent, os.W_OK):
            uri += "&immutable=1"  # a reader of WAL would have to write beside the file
        db = Database(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS))
    db.execute("PRAGMA temp_store = MEMORY")  # wherever temporary files would go may be full, or not writable
    if not readonly:
        db.enable_wal()
        db.execute("PRAGMA foreign_keys = ON")
    return db


def _in_use(path: Path) -> bool:
    return path.with_name(path.name + "-wal").exists()


_ADVICE = {
    "SQLITE_FULL": "; make room on its disk",
    "SQLITE_IOERR": "; is its disk full or failing?",
    "SQLITE_BUSY": "; another process has held it for long: a backup, or a second daemon?",
    "SQLITE_CORRUPT": "; restore a backup, or move it away",
    "SQLITE_NOTADB": "; restore a backup, or move it away",
    "SQLITE_CANTOPEN": "; does its folder exist, and is it this user's?",
    "SQLITE_READONLY": "; is it this user's?",
}
"""Advice on what to do, by the beginning of SQLite's name for the error."""
