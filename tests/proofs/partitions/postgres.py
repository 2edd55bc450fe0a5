"""A PostgreSQL and its synchronous standby, each on a host of its own."""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import psycopg
from helpers.servers.network import Network
from helpers.servers.packet_switch import NETWORK
from helpers.servers.postgres import PostgresServer, as_nobody, open_to_nobody
from helpers.servers.processes import HOST, Assembled, until

from flask_idempotence.stores import open_store

from .faults import FAULTS, Fault

PORT = 5432
STANDBY = "standby"


class HostedPostgres(PostgresServer):
    """A PostgreSQL on a host; it is looked at through its unix socket, past the network."""

    def __init__(self, network: Network, host: str, **settings: object):
        super().__init__(**settings)
        self.network, self.host = network, host
        self.address = network.address(host)

    def _launch(self, command, answers, seconds, user=None, group=None, **options) -> None:
        # Only root may enter a namespace: the user is changed inside it.
        inside = [self.address if word == HOST else word for word in command]
        inside[inside.index("-p") + 1] = str(PORT)
        enter = self.network.command(self.host, inside)
        directory = self.directory.stat()
        enter[-len(inside) - 1 : -len(inside) - 1] = [
            f"--setuid={directory.st_uid}",
            f"--setgid={directory.st_gid}",
        ]
        options.pop("extra_groups", None)
        super()._launch(enter, answers, seconds, **options)

    def _make_cluster(self, data: Path) -> None:
        super()._make_cluster(data)
        with (data / "pg_hba.conf").open("a") as rules:
            rules.writelines(
                f"host {what} all {NETWORK}0/24 trust\n" for what in ("all", "replication")
            )

    def connect(self, database: str = "postgres", **options) -> psycopg.Connection:
        place = {"host": str(self.directory), "port": PORT, "dbname": database}
        return psycopg.connect(**place, user="postgres", autocommit=True, **options)


class Standby(HostedPostgres):
    def __init__(self, primary: HostedPostgres, host: str):
        source = f"host={primary.address} port={PORT} user=postgres application_name={STANDBY}"
        super().__init__(primary.network, host, primary_conninfo=source)
        self._primary, self._binaries = primary, primary._binaries

    def _make_cluster(self, data: Path) -> None:
        open_to_nobody(self.directory)
        command = [self._binary("pg_basebackup"), "-h", str(self._primary.directory), "-D"]
        command += [str(data), "-p", str(PORT), "-U", "postgres", "--checkpoint=fast", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, timeout=60, **as_nobody())
        (data / "standby.signal").touch()
        os.chown(data / "standby.signal", data.stat().st_uid, data.stat().st_gid)


class PostgresHosts(Assembled):
    """A primary that waits for its standby with every commit."""

    HOSTS = ("postgres", STANDBY)

    def __init__(self, network: Network, **_):
        self.network = network

    def _assemble(self, start) -> None:
        self.primary = start(HostedPostgres(self.network, "postgres"))
        store = open_store(f"postgresql+psycopg://postgres@/postgres?host={self._socket}", {})
        store.create_table()
        store.close()
        self.standby = start(Standby(self.primary, STANDBY))
        self._set(self.primary, STANDBY)
        if not until(self.is_whole, 30):
            raise RuntimeError("The standby did not find its primary.")

    @property
    def _socket(self) -> str:
        return f"{self.primary.directory}&port={PORT}"

    @staticmethod
    def _set(server: HostedPostgres, standbys: str) -> None:
        with server.connect() as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
            connection.execute("SELECT pg_reload_conf()")

    @property
    def url(self) -> str:
        hosts = "&".join(f"host={self.network.address(host)}:{PORT}" for host in self.HOSTS)
        return f"postgresql+psycopg://postgres@/postgres?{hosts}&target_session_attrs=read-write"

    def promote(self) -> None:
        self._set(self.standby, "")
        with self.standby.connect() as connection:
            connection.execute("SELECT pg_promote()")

    def replicas(self) -> list[str]:
        return [STANDBY]

    def is_whole(self) -> bool:
        with contextlib.suppress(psycopg.Error):
            with self.standby.connect() as connection:
                if not connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]:
                    return True
            with self.primary.connect() as connection:
                query = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
                return connection.execute(query).fetchall() == [("sync",)]
        return False


def taken_over(world):
    world.network.isolate(world.group.primary.host, "app1")
    time.sleep(2)
    world.group.promote()

    def fence() -> None:
        world.group.primary.kill()  # else there would be two primaries for good
        world.network.heal()

    return fence


POSTGRES_FAULTS = {
    "standby-away": Fault(lambda world: world.network.isolate(STANDBY)),
    # The primary is cut off with one application host, and the standby is promoted.
    "taken-over": Fault(taken_over),
    **{name: FAULTS[name] for name in FAULTS.keys() - {"split-brain", "no-majority"}},
}
