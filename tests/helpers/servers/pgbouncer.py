"""A real PgBouncer in front of the PostgreSQL of the tests."""

import os
import shutil

import psycopg

from helpers.servers.postgres import PostgresServer, as_nobody, open_to_nobody
from helpers.servers.processes import HOST, ConnectedServer, free_port, needed

BINARY_VARIABLE = "IDEMPOTENCE_TEST_PGBOUNCER"

CONFIGURATION = """
[databases]
* = host={host} port={server} user=postgres

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
{settings}
"""


def pgbouncer_binary() -> str | None:
    wanted = os.environ.get(BINARY_VARIABLE, "pgbouncer")
    return shutil.which(wanted) or shutil.which(wanted, path="/usr/sbin")


class PgBouncer(ConnectedServer):
    """A pooler in transaction mode; by default few connections serve all clients."""

    refused = psycopg.OperationalError

    def __init__(self, behind: PostgresServer, **settings: object):
        self._behind, self._binary = behind, needed(pgbouncer_binary(), "pgbouncer: not found")
        self._settings = {"default_pool_size": 3, **settings}
        self.port = free_port()

    def start(self) -> None:
        open_to_nobody(self.directory)
        told = "\n".join(f"{name} = {value}" for name, value in self._settings.items())
        file = self.directory / "pgbouncer.ini"
        places = {"host": HOST, "server": self._behind.port, "port": self.port}
        file.write_text(CONFIGURATION.format(settings=told, **places))
        self._launch([self._binary, str(file)], self._answers, seconds=15, **as_nobody())

    def connect(self) -> psycopg.Connection:
        place = {"host": HOST, "port": self.port, "user": "postgres", "dbname": "postgres"}
        return psycopg.connect(**place, connect_timeout=5)

    def url(self, url: str, driver: str = "psycopg") -> str:
        """Return the way through the pooler to a database of the server's."""
        return f"postgresql+{driver}://postgres@{HOST}:{self.port}/{url.rpartition('/')[2]}"
