"""Every wait has an end: each driver in each place where a call can hang, with 32 callers at once.

No request takes longer than its deadline and half a second, the circuit opens, the first request
after the cure succeeds, and within a second all do.
"""

import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.fault_soak import SECONDS
from helpers.servers.mariadb import MariaDbServer
from helpers.servers.pgbouncer import PgBouncer
from helpers.servers.postgres import PostgresServer, open_to_nobody
from helpers.servers.processes import HOST, environment, run_to_end
from helpers.servers.topologies import make_certificate
from helpers.sql_stores import sql_store
from sqlalchemy import make_url

pytestmark = pytest.mark.database

DRIVERS = {"psycopg": "postgres", "pg8000": "postgres", "pymysql": "mariadb"}
IN_C = {"psycopg2": "postgres"}
"""Drivers that wait and look names up in C: gevent's greenlets, and our resolver, have no part."""

HANGS = ("resolving", "addresses", "handshake", "TLS", "AUTH", "sending", "reading", "commit")
CELLS = [(driver, place, gevent) for driver in DRIVERS for place in HANGS for gevent in (0, 1)]
CELLS += [(driver, place, 0) for driver in IN_C for place in HANGS[2:]]

LONGEST = 2.0 + 0.5
"""Seconds, beside those for which the machine was too busy to run a thread."""


@pytest.fixture(scope="module")
def certificate():
    with tempfile.TemporaryDirectory() as name:  # one of pytest's is closed to other users
        files = make_certificate(name)
        open_to_nobody(Path(name), *files)
        yield files


@pytest.fixture(scope="module")
def postgresql():
    with PostgresServer() as server:
        server.execute("CREATE ROLE app SUPERUSER LOGIN PASSWORD 'secret'")
        rules = server.directory / "data" / "pg_hba.conf"
        # In the clear: what SCRAM computes takes longer than all else.
        rules.write_text(f"host all app {HOST}/32 password\n{rules.read_text()}")
        server.execute("SELECT pg_reload_conf()")
        yield server


@contextmanager
def mariadb_with_user(**settings):
    with MariaDbServer(**settings) as server:
        server.execute(f"CREATE USER app@'{HOST}' IDENTIFIED BY 'secret'")
        server.execute(f"GRANT ALL ON *.* TO app@'{HOST}'")
        yield server


@pytest.fixture(scope="module")
def mysql():
    with mariadb_with_user() as server:
        yield server


@pytest.fixture(scope="module")
def mysql_with_tls(certificate):
    """One that the driver meets in secret wherever it can: no proxy reads along."""
    with mariadb_with_user(ssl_cert=certificate[0], ssl_key=certificate[1]) as server:
        yield server


@pytest.fixture
def url(request, driver):
    kind = "mysql" if driver == "pymysql" else "postgresql"
    has_tls = kind == "mysql" and "TLS" in request.node.callspec.params.values()
    server = request.getfixturevalue("mysql_with_tls" if has_tls else kind)
    plain = server.new_database()
    with sql_store(plain):
        pass
    return make_url(plain).set(drivername=f"{kind}+{driver}", username="app", password="secret")


@pytest.fixture
def pooled(request, driver, url, certificate):
    """The same by way of a pooler, where each operation ends with a COMMIT, and with TLS.

    MariaDB needs none: its pruning commits, and it has TLS, as the PostgreSQL of a wheel has not.
    """
    if driver == "pymysql":
        yield url
        return
    server, (certificate, key) = request.getfixturevalue("postgresql"), certificate
    tls = {"client_tls_cert_file": certificate, "client_tls_key_file": key}
    mode = "allow" if "TLS" in request.node.callspec.params.values() else "disable"
    with PgBouncer(server, client_tls_sslmode=mode, **tls) as pooler:
        yield url.set(username="postgres", password=None, port=pooler.port)


def played(url, place, *, gevent=False, timeout=60, **plan):
    plan |= {"url": url.render_as_string(hide_password=False), "place": place}
    code = "from proofs.databases.stores.sql_waits import main; main()"
    if gevent:
        code = f"from gevent import monkey; monkey.patch_all(); {code}"
    command = [sys.executable, "-c", code, json.dumps(plan)]
    done = run_to_end(command, env=environment(), timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("driver", "place", "gevent"), CELLS)
def test_a_call_that_hangs_ends_and_the_store_recovers(request, driver, place, gevent, url):
    if place in ("commit", "TLS"):
        url = request.getfixturevalue("pooled")
    found = played(url, place, gevent=gevent)
    assert found["longest"] < LONGEST + found["lag"], found
    assert found["succeeded"] == 0, found
    assert found["second"] < 0.2, found  # the circuit is open
    assert found["after"] == [], found
    assert found["within"] < 1 + found["lag"], found


@pytest.mark.parametrize("gevent", [False, True], ids=["threads", "gevent"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_below_its_threads_a_pool_serves_all_of_them_after_a_hiccup(driver, gevent, url):
    """The helpers that waited for the full pool counted as connecting, for half a minute."""
    found = played(url, "full pool", gevent=gevent)
    assert found["longest"] < LONGEST + found["lag"], found
    assert found["after"] == [], found
    assert found["within"] < 1 + found["lag"], found


@pytest.mark.parametrize("driver", [*DRIVERS, *IN_C])
def test_giving_back_sends_nothing(driver, url):
    """A ROLLBACK after an operation that has succeeded had no deadline."""
    found = played(url, "give-back")
    assert found["succeeded"] == 64, found
    assert found["longest"] < LONGEST + found["lag"], found


@pytest.mark.parametrize("driver", ["sqlite"])
def test_another_writer_of_sqlite_keeps_nobody_beyond_the_deadline(tmp_path, driver):
    """The circuit stays closed, since the database answers: whoever only reads need not wait."""
    with sql_store(f"sqlite:///{tmp_path}/app.db") as store:
        found = played(store.engine.url, "lock")
    assert found["succeeded"] == 0, found
    assert found["longest"] < LONGEST + found["lag"], found
    assert found["after"] == [], found
    assert found["within"] < 1 + found["lag"], found


class TestASoak:
    """Sixteen callers while faults come and go: what is acknowledged was done once."""

    def soak(self, url, places, *, gevent, record_property):
        found = played(
            url, "soak", gevent=gevent, seconds=SECONDS, places=places, timeout=4 * SECONDS + 120
        )
        record_property("report", f"{url.drivername}, gevent {gevent}: {found}")
        assert found["lost"] == [], found
        assert found["doubled"] == [], found
        assert found["acknowledged"] > 16, found
        assert found["longest"] < LONGEST + found["lag"], found

    @pytest.mark.parametrize("gevent", [False, True], ids=["threads", "gevent"])
    @pytest.mark.parametrize("driver", DRIVERS)
    def test_on_a_server(self, driver, gevent, url, record_property):
        places = ["resolving", "addresses", "handshake", "AUTH", "reading"]
        self.soak(url, places, gevent=gevent, record_property=record_property)

    def test_on_sqlite(self, tmp_path, record_property):
        with sql_store(f"sqlite:///{tmp_path}/app.db") as store:
            self.soak(store.engine.url, ["lock"], gevent=False, record_property=record_property)
