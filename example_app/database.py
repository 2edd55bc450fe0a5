"""The shop's SQLite file, which all processes share.

It has no constraint against duplicates: an order that is placed twice has two rows.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from flask import current_app
from werkzeug.routing import IntegerConverter

BUSY_TIMEOUT = 10.0
"""Seconds to wait for another process's write."""

TABLES = """
CREATE TABLE IF NOT EXISTS orders (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    product TEXT NOT NULL, quantity INTEGER NOT NULL, name TEXT NOT NULL,
    placed TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE TABLE IF NOT EXISTS payments (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    amount INTEGER NOT NULL, how TEXT NOT NULL,
    paid TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE TABLE IF NOT EXISTS payment_steps (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    payment TEXT NOT NULL, step TEXT NOT NULL, pid INTEGER NOT NULL,
    at TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE TABLE IF NOT EXISTS tries (operation TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS tries_of ON tries (operation);
CREATE TABLE IF NOT EXISTS likes (product TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS comments (product TEXT NOT NULL, name TEXT, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS lab_runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    mode TEXT NOT NULL, requests INTEGER NOT NULL, delay REAL NOT NULL, failure TEXT NOT NULL,
    only_first INTEGER NOT NULL, asked REAL NOT NULL, began REAL, ended REAL
);
CREATE TABLE IF NOT EXISTS lab_effects (run INTEGER NOT NULL, lane INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS lab_events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL, lane INTEGER NOT NULL, what TEXT NOT NULL, detail TEXT,
    at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS lab_events_of ON lab_events (run, number);
"""


class RowNumber(IntegerConverter):
    """The converter `<int:...>` for numbers that every database accepts."""

    regex = r"\d{1,9}"


class Database:
    """One connection per process, shared by its threads.

    Args:
        path: the file. It and its folder are created if they are missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        with self._lock:
            self._open().executescript(TABLES)

    def read(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Run a statement, commit, and return its rows."""
        with self._lock:
            return [dict(row) for row in self._open().execute(statement, values)]

    def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row."""
        return next(iter(self.read(statement, *values)[0].values()))

    def write(self, statement: str, *values: Any) -> int:
        """Run a statement, commit, and return the number of the inserted row."""
        with self._lock:
            return self._open().execute(statement, values).lastrowid or 0

    def close(self) -> None:
        """Close the connection. The next statement opens another."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        # A connection must not be used on both sides of a fork (gunicorn --preload).
        if self._connection is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
            )
            self._connection.row_factory = sqlite3.Row
            # Readers and the writer do not wait for one another, in any process.
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
        return self._connection


def database() -> Database:
    """Return the database of the current application."""
    found: Database = current_app.extensions["example_database"]
    return found
