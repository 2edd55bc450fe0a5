"""Why a store does not answer: one row a cause and a store, on real servers."""

import re
import socket
from contextlib import ExitStack

import pytest
from helpers.applications.doctor_apps import names_of, production_app
from helpers.cli_shell import invoke
from helpers.servers.processes import HOST
from helpers.servers.topologies import has_tls

from flask_idempotence.cli.causes import cause_of
from flask_idempotence.cli.checks import APP_CHECKS
from flask_idempotence.cli.doctor import collect, examine
from flask_idempotence.errors import StoreError
from flask_idempotence.stores import open_store

LOGIN = "The server refuses the user or the password"
HOST_NAME = "The server's host name is not found"
REFUSED = "The server's host refuses the connection"
SILENT = "The server does not answer in time"
DATABASE = "The server has no such database"
TABLE = "Missing in the database: flask_idempotence."
RIGHTS = "The user of the store lacks a permission"
READ_ONLY = "The server takes no writes"
TLS = "The TLS connection to the server fails"
LIMIT = "The server takes no more connections"
FULL = "The server is full"

SECRETS = f"me: vendor a-password wrong-one {HOST} no-such-host nowhere mysql+".split()


@pytest.fixture
def silent():
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen(8)
        yield listener.getsockname()[1]


def check(url, cause, *, by_init_db=False):
    """Check what the doctor says; and init-db, where it does not work, either."""
    app = production_app(IDEMPOTENCE_STORAGE_URI=url)
    found = list(examine(collect(app)))
    faults = [each for each in found if each.severity == "error"]
    assert faults[0].finding.startswith(cause), faults
    assert {each.check for each in faults[1:]} <= {"memory"}  # of a server that is full
    assert faults[0].reason
    assert faults[0].remedy
    if cause == TABLE:
        assert "init-db" in faults[0].remedy
        assert "tart the server" not in str(found)
    elif cause not in (READ_ONLY, RIGHTS, FULL):  # the server tells nothing about itself
        assert {each.check for each in found} == {"store", *names_of(APP_CHECKS)}
    shown = str(found)
    if by_init_db:
        done = invoke(app, "init-db")
        assert (done.exit_code, len(done.stderr.splitlines())) == (1, 1)
        told = [done.stderr, f"Error: {faults[0].finding} {faults[0].remedy}\n"]
        if cause == SILENT:  # which the driver's limit or the store's deadline may find first
            told = [re.sub(r" \(\w+\)", "", text) for text in told]
        assert told[0] == told[1]
        shown += done.output
    assert [secret for secret in SECRETS if secret in shown] == []
    store = app.extensions["idempotence"].store
    if hasattr(store, "engine"):
        store.close()
        store.engine.dispose()


@pytest.mark.parametrize(
    ("change", "user", "cause"),
    [
        ("PING", "vendor:wrong-one@", LOGIN),
        ("CONFIG SET requirepass a-password", "", LOGIN),
        ("CONFIG SET requirepass a-password", ":wrong-one@", LOGIN),
        ("ACL SETUSER vendor -evalsha", "vendor:a-password@", RIGHTS),
        ("ACL SETUSER vendor resetkeys ~other:*", "vendor:a-password@", RIGHTS),
        (f"REPLICAOF {HOST} 1", "vendor:a-password@", READ_ONLY),
        ("CONFIG SET maxmemory 1", "vendor:a-password@", FULL),
    ],
)
def test_a_server_of_redis_that_refuses(fresh_redis, change, user, cause):
    for command in ("ACL SETUSER vendor on >a-password ~* &* +@all", change):
        fresh_redis.client().execute_command(*command.split())
    check(fresh_redis.url.replace("//", f"//{user}"), cause)


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("redis://me:a-password@no-such-host.invalid/0", HOST_NAME),
        ("redis://me:a-password@127.0.0.1:1/0", REFUSED),
        ("redis://me:a-password@127.0.0.1:{silent}/0?deadline=1", SILENT),
        ("rediss://127.0.0.1:{redis}/0?deadline=1", SILENT),
        ("redis://127.0.0.1:{redis}/99", DATABASE),
        pytest.param("rediss://127.0.0.1:{tls}/0", TLS, marks=pytest.mark.servers),
    ],
)
def test_a_server_of_redis_that_is_not_there(request, redis_server, silent, address, cause):
    tls = 0
    if "{tls}" in address:
        if not has_tls():
            pytest.skip("the server was built without TLS")
        tls = request.getfixturevalue("tls_server").port
    check(address.format(redis=redis_server.port, silent=silent, tls=tls), cause)


@pytest.mark.parametrize(
    ("file", "cause"), [("none/app.db", DATABASE), ("text.db", DATABASE), ("app.db", TABLE)]
)
def test_a_file_of_sqlite(tmp_path, file, cause):
    pytest.importorskip("sqlalchemy")
    (tmp_path / "text.db").write_text("no database" * 100)
    check(f"sqlite:///{tmp_path}/{file}", cause, by_init_db=cause is DATABASE)


GUEST = "vendor:a-password@127.0.0.1:{port}/{database}"
ROWS = {
    "host": ("me:a-password@no-such-host.invalid/x", HOST_NAME),
    "refused": ("me:a-password@127.0.0.1:1/x", REFUSED),
    "silent": ("me:a-password@127.0.0.1:{silent}/x", SILENT),
    "wrong password": ("vendor:wrong-one@127.0.0.1:{port}/{database}", LOGIN),
    "no password": ("vendor@127.0.0.1:{port}/{database}", LOGIN),
    "no such user": ("me:a-password@127.0.0.1:{port}/{database}", LOGIN),
    "database": (GUEST.replace("{database}", "nowhere"), DATABASE),
    "table": (GUEST, TABLE),
    "rights": (GUEST, RIGHTS),
    "read only": (GUEST, READ_ONLY),
    "connections": (GUEST, LIMIT),
    "TLS": (GUEST, TLS),
}
QUERIES = {("postgres", "TLS"): "?sslmode=require", ("mariadb", "TLS"): "?ssl_ca=/etc/hosts"}
CHANGES = {
    ("postgres", "rights"): ["GRANT SELECT ON flask_idempotence TO vendor"],
    ("postgres", "read only"): [
        "GRANT ALL ON flask_idempotence TO vendor",
        "ALTER ROLE vendor SET default_transaction_read_only = on",
    ],
    ("postgres", "connections"): ["ALTER ROLE vendor CONNECTION LIMIT 0"],
    ("mariadb", "rights"): [
        "REVOKE ALL ON {database}.* FROM vendor@'127.0.0.1'",
        "GRANT SELECT ON {database}.* TO vendor@'127.0.0.1'",
    ],
    ("mariadb", "read only"): ["SET GLOBAL read_only = 1"],
}
WITH_TABLE = {"rights", "read only"}
"""There, init-db finds the table."""


@pytest.fixture
def vendor_on():
    """Return a function that makes a user and a database on a server, and names the latter."""
    with ExitStack() as undo:

        def prepare(name, server):
            database = server.new_database().rpartition("/")[2]
            if name == "mariadb":
                server.execute(
                    "CREATE USER vendor@'127.0.0.1' IDENTIFIED BY 'a-password'",
                    *(
                        f"GRANT ALL ON {each}.* TO vendor@'127.0.0.1'"
                        for each in (database, "nowhere")
                    ),
                )
                undo.callback(
                    server.execute, "DROP USER vendor@'127.0.0.1'", "SET GLOBAL read_only = 0"
                )
                return database, server.execute
            connection = undo.enter_context(server.connect(database))
            connection.execute("CREATE ROLE vendor LOGIN PASSWORD 'a-password'")
            connection.execute("GRANT ALL ON SCHEMA public TO vendor")
            rules = server.directory / "data" / "pg_hba.conf"
            rules.write_text("host all vendor all scram-sha-256\n" + rules.read_text())
            connection.execute("SELECT pg_reload_conf()")
            undo.callback(connection.execute, "DROP OWNED BY vendor; DROP ROLE vendor")
            return database, connection.execute

        yield prepare


@pytest.mark.parametrize(
    ("name", "row"),
    [(name, row) for name in ("postgres", "mariadb") for row in ROWS if row != "connections"]
    + [("postgres", "connections")],
)
def test_a_database(request, name, row, silent, vendor_on):
    server = request.getfixturevalue(name)
    address, cause = ROWS[row]
    database, execute = vendor_on(name, server)
    if row in WITH_TABLE:
        store = open_store(server.url(database), {})
        store.create_table()
        store.close()
        store.engine.dispose()
    for statement in CHANGES.get((name, row), ()):
        execute(statement.format(database=database))
    scheme = {"postgres": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[name]
    place = address.format(port=server.port, silent=silent, database=database)
    url = f"{scheme}://{place}{QUERIES.get((name, row), '')}"
    check(url, cause, by_init_db=row not in {*WITH_TABLE, "table"})


def test_what_nobody_knows_is_named_by_its_class():
    cause = cause_of(StoreError("StrangeError: me at 127.0.0.1"))
    assert cause.sentence == "The store does not answer (StrangeError)."
    assert cause_of(StoreError("me@127.0.0.1: what?")).sentence.endswith("(StoreError).")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('OperationalError: connection to "db", port 28000 failed: Connection refused', REFUSED),
        ("InterfaceError: {'S': 'FATAL', 'C': '28P01', 'M': 'Passwort falsch'}", LOGIN),
        ("ProgrammingError: {'S': 'FATAL', 'C': '3D000', 'M': 'Datenbank fehlt'}", DATABASE),
        ('OperationalError: FATAL: no pg_hba.conf entry for host "h", SSL encryption', LOGIN),
        ("OperationalError: (1205, 'Lock wait timeout exceeded')", SILENT),
        ("OperationalError: (1040, 'Too many connections')", LIMIT),
        ("ConnectionError: max number of clients reached", LIMIT),
        ("OperationalError: (1044, 'Access denied to database')", "The user of the store has no"),
    ],
)
def test_other_drivers_and_other_languages(text, sentence):
    assert cause_of(StoreError(text)).sentence.startswith(sentence)
