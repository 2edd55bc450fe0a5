"""The stores of a long run, and what their servers say from their side."""

import contextlib
import sqlite3
import threading

import psutil
from helpers.servers.postgres import PostgresServer
from helpers.servers.processes import Assembled, RedisServer

from flask_idempotence.stores import open_store

MEBIBYTE = 1024 * 1024
HELD = 0.5
"""Seconds for which a store answers nothing before a run, so that all connections are opened."""


class ServerStore(Assembled):
    def hold(self):
        self._server.pause()
        threading.Timer(HELD, self._server.resume).start()


class RedisStore(ServerStore):
    def _assemble(self, start):
        self._server = start(RedisServer())
        self.url = self._server.url

    def sample(self):
        client = self._server.client()
        memory = client.info("memory")
        return {
            "connections": len(client.client_list()) - 1,
            "keys": client.dbsize(),
            "store, MiB": memory["used_memory_dataset"] / MEBIBYTE,
            "server's RSS, MiB": memory["used_memory_rss"] / MEBIBYTE,
        }


class SqliteStore(Assembled):
    def __init__(self, directory):
        self._file = directory / "store.db"

    def _assemble(self, start):
        self.url = f"sqlite:///{self._file}"
        create_table(self.url)
        connection = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
        self._connection = start(contextlib.closing(connection))
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA busy_timeout=5000")

    def hold(self):
        self._connection.execute("BEGIN IMMEDIATE")
        threading.Timer(HELD, self._connection.execute, ["COMMIT"]).start()

    def sample(self):
        [rows] = self._connection.execute("SELECT count(*) FROM flask_idempotence").fetchone()
        size = sum(path.stat().st_size for path in self._file.parent.glob("store.db*"))
        return {"keys": rows, "store, MiB": size / MEBIBYTE}


class PostgresStore(ServerStore):
    """A PostgreSQL with the settings of its distribution, save for the flushes."""

    def _assemble(self, start):
        self._server = start(PostgresServer())
        self.url = self._server.new_database()
        self._connection = start(self._server.connect(self.url.rpartition("/")[2]))
        create_table(self.url)

    def _ask(self, query):
        return [row[0] for row in self._connection.execute(query)]

    def sample(self):
        backends = self._ask(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        postmaster = psutil.Process(self._server.pid)
        private = resident = 0
        for process in (postmaster, *postmaster.children()):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                memory = process.memory_full_info()
                resident += memory.pss
                private += memory.uss if process.pid in backends else 0
        [rows] = self._ask("SELECT count(*) FROM flask_idempotence")
        [size] = self._ask("SELECT pg_total_relation_size('flask_idempotence')")
        return {
            "connections": len(backends),
            "keys": rows,
            "store, MiB": size / MEBIBYTE,
            "backends' USS, MiB": private / MEBIBYTE,
            "server's RSS, MiB": resident / MEBIBYTE,
        }


def create_table(url):
    with contextlib.closing(open_store(url, {})) as store:
        store.create_table()


def open_server(name, directory):
    kinds = {"redis": RedisStore, "postgresql": PostgresStore}
    return SqliteStore(directory) if name == "sqlite" else kinds[name]()


STORES = ("redis", "sqlite", "postgresql")
