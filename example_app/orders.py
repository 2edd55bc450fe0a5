"""The orders, in an SQLite file: the one truth that all worker processes share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BUSY_TIMEOUT = 10.0
"""Seconds to wait while another worker writes."""

_TABLE = """
CREATE TABLE IF NOT EXISTS orders (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    item TEXT NOT NULL,
    how TEXT NOT NULL,
    placed TEXT NOT NULL DEFAULT (datetime('now'))
)
"""


class Orders:
    """A list of orders that refuses nothing: what is added twice stands there twice.

    Args:
        path: of the file; it and its folder are made where they do not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with self._open() as database:
            database.execute(_TABLE)

    def add(self, item: str, how: str) -> int:
        """Add an order and return its number.

        Args:
            item: what is ordered.
            how: the mode that guarded the request.
        """
        with self._open() as database:
            statement = "INSERT INTO orders (item, how) VALUES (?, ?) RETURNING number"
            return int(database.execute(statement, (item, how)).fetchone()[0])

    def latest(self, limit: int = 20) -> list[dict[str, Any]]:
        """Return the latest orders, the last one first."""
        with self._open() as database:
            statement = "SELECT number, item, how, placed FROM orders ORDER BY number DESC LIMIT ?"
            return [dict(row) for row in database.execute(statement, (limit,))]

    def count(self) -> int:
        """Return how many orders there are."""
        with self._open() as database:
            return int(database.execute("SELECT count(*) FROM orders").fetchone()[0])

    def clear(self) -> None:
        """Remove all orders."""
        with self._open() as database:
            database.execute("DELETE FROM orders")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT)
        database.row_factory = sqlite3.Row
        try:
            with database:  # commits, or rolls back
                yield database
        finally:
            database.close()
