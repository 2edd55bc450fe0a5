"""The stores of the benchmarks: servers that are started for them, and temporary files."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy
from helpers.servers.postgres import PostgresServer
from helpers.servers.processes import RedisServer

from flask_idempotence import SqlStore

MEMORY, REDIS, REDIS_UNIX = "memory", "Redis, TCP", "Redis, Unix socket"
SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"
SHARE_OF_DATABASES = 4
"""Databases, whose every commit waits for the disk, get one request of so many."""

DURABLE = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB"}
"""Nothing that a database does for its data is switched off."""


@dataclass
class Stores:
    """What can be measured on this machine.

    Attributes:
        redis: a Redis server.
        directory: for the files of SQLite.
        postgres: a PostgreSQL server, or None.
        left_out: says of each store that is not there why.
        versions: of what is there, by name.
    """

    redis: RedisServer
    directory: Path
    postgres: PostgresServer | None = None
    left_out: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    _files: int = 0

    def uris(self) -> dict[str, str]:
        """Return the URI of each store, by what it is called in the report; tables are new."""
        uris = {MEMORY: "memory://", REDIS: self.redis.url, REDIS_UNIX: self.redis.unix_url}
        return uris | {name: self.new_table(name) for name in self.databases()}

    def databases(self) -> list[str]:
        return [SQLITE, POSTGRESQL] if self.postgres else [SQLITE]

    def new_table(self, name: str) -> str:
        """Make an empty table in a database of its own; return the URI."""
        self._files += 1
        sqlite = f"sqlite:///{self.directory}/{self._files}.db"
        uri = self.postgres.new_database() if name == POSTGRESQL else sqlite
        make_table(uri)
        return uri


def make_table(uri: str) -> None:
    store = SqlStore(sqlalchemy.create_engine(uri), deadline=10)
    store.create_table()
    store.close()
    store.engine.dispose()


def requests_for(store: str, requests: int) -> int:
    """Return how many requests a store gets of so many that the others get."""
    is_database = store in {SQLITE, POSTGRESQL}
    return max(1, requests // SHARE_OF_DATABASES) if is_database else requests


@contextmanager
def open_stores() -> Iterator[Stores]:
    """Start what is there; yield the stores."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(RedisServer())
        versions = {"Redis": redis.version, "SQLAlchemy": sqlalchemy.__version__}
        versions[SQLITE] = sqlite3.sqlite_version
        stores = Stores(redis, directory, versions=versions)
        _add_postgres(stores, stack)
        yield stores


def _add_postgres(stores: Stores, stack: ExitStack) -> None:
    try:
        stores.postgres = stack.enter_context(PostgresServer(**DURABLE))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        stores.left_out.append(f"PostgreSQL was left out, since it cannot be started: {reason}")
        return
    with stores.postgres.connect() as connection:
        told = connection.execute("SHOW server_version").fetchone()[0]
    stores.versions[POSTGRESQL] = told.split()[0]
