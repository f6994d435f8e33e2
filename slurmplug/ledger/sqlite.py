"""Rows of a SELECT as dicts."""

import sqlite3
from collections.abc import Iterator
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]


def rows(cursor: sqlite3.Cursor) -> Iterator[Row]:
    """The rows of a SELECT that was executed, read as they are asked for."""
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor)
