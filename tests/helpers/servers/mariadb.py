"""A real MariaDB for the tests, or a MySQL, as a process of their own."""

import contextlib
import os
import shutil
import socket
from pathlib import Path

import pymysql

from helpers.servers.postgres import as_nobody, open_to_nobody
from helpers.servers.processes import HOST, DatabaseServer, free_port, needed, run_to_end

BINARY_VARIABLE = "IDEMPOTENCE_TEST_MARIADB"
SCHEME_VARIABLE = "IDEMPOTENCE_TEST_MYSQL_SCHEME"
"""Names another driver than PyMySQL, such as `mysql+mysqldb`, which has to be installed."""

REMEDY = (
    "install mariadb-server (Debian and Ubuntu: apt-get install mariadb-server), or set "
    f"{BINARY_VARIABLE} to the path of mariadbd, or of MySQL's mysqld"
)
_MYSQL_USER = (
    "CREATE USER IF NOT EXISTS root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' "
    "WITH GRANT OPTION;"
)
"""Over TCP, where no name is resolved, 127.0.0.1 is not localhost."""

_OF_MYSQL = {
    "mysqlx": 0,
    "secure_file_priv": "NULL",
    "tls_version": "",  # the proxy reads along
    "gtid_mode": "OFF",  # tables without transactions count what a rollback would undo
    "enforce_gtid_consistency": "OFF",
}


class MariaDbServer(DatabaseServer):
    """A MariaDB server on a unix socket and a port of loopback, with no database of its own.

    By default nothing is flushed to the disk: a crash of the server loses nothing, one of the
    machine would.
    """

    refused = pymysql.OperationalError
    KILLS = ("KILL {}", "KILL {}", "KILL QUERY {}")

    def __init__(self, **settings: object):
        wanted = os.environ.get(BINARY_VARIABLE, "mariadbd")
        binary = shutil.which(wanted) or shutil.which(wanted, path="/usr/sbin:/usr/local/sbin")
        self._binary = needed(binary, f"no MariaDB server: {REMEDY}")
        version = run_to_end([self._binary, "--version"], check=True)
        self.is_mysql = "MariaDB" not in version.stdout
        self._settings = {
            "innodb_flush_log_at_trx_commit": 2,  # 0 loses a second of commits when killed
            "innodb_flush_method": "nosync",
            "innodb_doublewrite": 0,
            "innodb_buffer_pool_size": "64M",
            "loose_innodb_log_file_size": "32M",
            "max_connections": 400,
            "skip_name_resolve": 1,
            **(_OF_MYSQL if self.is_mysql else {}),
            **settings,
        }
        self._count = 0

    def start(self) -> None:
        data = self.directory / "data"
        if not data.exists():
            data.mkdir()
            open_to_nobody(self.directory, data)
            self._make_tables(data)
            self.port = free_port()
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        if self.is_mysql:
            settings.append(f"--init-file={self.directory}/init.sql")
        command = [self._binary, "--no-defaults", f"--datadir={data}", f"--socket={self.socket}"]
        command += [f"--bind-address={HOST}", f"--port={self.port}", f"--tmpdir={self.directory}"]
        self._launch([*command, *settings], self._answers, seconds=30, **as_nobody())

    @property
    def socket(self) -> Path:
        return self.directory / "socket"

    def _make_tables(self, data: Path) -> None:
        if self.is_mysql:
            (self.directory / "init.sql").write_text(_MYSQL_USER)
            command = [self._binary, "--no-defaults", f"--datadir={data}", "--initialize-insecure"]
        else:
            install = shutil.which("mariadb-install-db") or str(
                Path(self._binary).resolve().parents[1] / "bin" / "mariadb-install-db"
            )
            command = [install, "--no-defaults", f"--datadir={data}", "--skip-test-db"]
            command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
        # In a common directory, a server that starts removes the temporary tables of others.
        options = {"env": {**os.environ, "TMPDIR": str(self.directory)}, **as_nobody()}
        done = run_to_end(command, **options)
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        # The driver leaves a socket open that could not connect.
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(self.socket)):
                return False
        return super()._answers()

    def connect(self, database: str | None = None, **options) -> pymysql.Connection:
        """Return a connection of the driver's, to look behind the back of the code under test."""
        options = {"autocommit": True, "connect_timeout": 5, **options}
        return pymysql.connect(
            unix_socket=str(self.socket), user="root", database=database, **options
        )

    def execute(self, *statements: str, database: str | None = None) -> list[tuple]:
        with contextlib.closing(self.connect(database)) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def connections(self, database: str) -> list[int]:
        return [row[0] for row in self.execute("SHOW PROCESSLIST") if row[3] == database]

    def deadlocks(self) -> int:
        if self.is_mysql:
            table = "information_schema.innodb_metrics"
            return self.execute(f"SELECT count FROM {table} WHERE name = 'lock_deadlocks'")[0][0]
        return int(self.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])

    def url(self, database: str) -> str:
        scheme = os.environ.get(SCHEME_VARIABLE, "mysql+pymysql")
        return f"{scheme}://root@{HOST}:{self.port}/{database}"
