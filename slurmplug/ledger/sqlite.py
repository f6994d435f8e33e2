"""Rows of a SELECT as dicts, and WAL mode."""

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


def enable_wal(connection: sqlite3.Connection) -> None:
    """Set WAL mode, by sqlite-utils.

    It is loaded here, by who writes, as reports go without; and without pandas, which it loads where that is installed.
    """
    loaded = "pandas" in sys.modules
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]  # None: its import fails
    try:
        from sqlite_utils import Database  # noqa: PLC0415
    finally:
        if not loaded:
            del sys.modules["pandas"]
    Database(connection).enable_wal()


def rows(cursor: sqlite3.Cursor) -> Iterator[Row]:
    """The rows of a SELECT that was executed, read as they are asked for."""
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)
