"""The stores of a long run, and what their servers say from their side."""

import contextlib
import sqlite3
import threading
from pathlib import Path

from helpers.servers.postgres import PostgresServer
from helpers.servers.processes import Assembled, RedisServer

from flask_idempotence.stores import open_store

from .processes import children_of, proportional_size, usage_of

HELD = 0.5
"""Seconds for which a store answers nothing before a run, so that all connections are opened."""


class RedisStore(Assembled):
    def _assemble(self, start) -> None:
        self._server = start(RedisServer())
        self.url = self._server.url
        self.version = f"Redis {self._server.version}"

    def hold(self) -> None:
        self._server.pause()
        threading.Timer(HELD, self._server.resume).start()

    def sample(self) -> dict[str, float]:
        """Return what the server counts; its own client is one of the connections."""
        client = self._server.client()
        memory = client.info("memory")
        return {
            "connections": len(client.client_list()) - 1,
            "keys": client.dbsize(),
            "store's bytes": memory["used_memory_dataset"],
            "store's RSS": memory["used_memory_rss"],
        }


class SqliteStore(Assembled):
    def __init__(self, directory: Path):
        self._file = directory / "store.db"

    def _assemble(self, start) -> None:
        self.url = f"sqlite:///{self._file}"
        self.version = f"SQLite {sqlite3.sqlite_version}"
        create_table(self.url)
        connection = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
        self._connection = start(contextlib.closing(connection))
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA busy_timeout=5000")

    def hold(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        threading.Timer(HELD, self._connection.execute, ["COMMIT"]).start()

    def sample(self) -> dict[str, float]:
        """Return the rows and the size of the files; a file has no connections of its own."""
        [rows] = self._connection.execute("SELECT count(*) FROM flask_idempotence").fetchone()
        sizes = {path.name: path.stat().st_size for path in self._file.parent.glob("store.db*")}
        return {"keys": rows, "store's bytes": sum(sizes.values())}


class PostgresStore(Assembled):
    """A PostgreSQL with the settings of its distribution, save for the flushes."""

    def _assemble(self, start) -> None:
        self._server = start(PostgresServer())
        self.url = self._server.new_database()
        self._connection = start(self._server.connect(self.url.rpartition("/")[2]))
        version = self._connection.execute("SHOW server_version").fetchone()[0]
        self.version = f"PostgreSQL {version}"
        create_table(self.url)

    def hold(self) -> None:
        self._server.pause()
        threading.Timer(HELD, self._server.resume).start()

    def sample(self) -> dict[str, float]:
        """Return what the server counts, but for the connection that asks."""
        backends = self._connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
        [rows] = self._connection.execute("SELECT count(*) FROM flask_idempotence").fetchone()
        [size] = self._connection.execute(
            "SELECT pg_total_relation_size('flask_idempotence')"
        ).fetchone()
        private = 0
        for (pid,) in backends:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                private += usage_of(pid).uss
        postmaster = self._server.pid
        resident = sum(map(_size_of, [postmaster, *children_of(postmaster)]))
        return {
            "connections": len(backends),
            "keys": rows,
            "store's bytes": size,
            "backends' USS": private,
            "store's RSS": resident,
        }


def _size_of(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return proportional_size(pid)
    return 0


def create_table(url: str) -> None:
    with contextlib.closing(open_store(url, {})) as store:
        store.create_table()


def open_server(name: str, directory: Path):
    kinds = {"redis": RedisStore, "postgresql": PostgresStore}
    return SqliteStore(directory) if name == "sqlite" else kinds[name]()


STORES = ("redis", "sqlite", "postgresql")
