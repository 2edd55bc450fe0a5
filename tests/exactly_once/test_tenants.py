"""The state of a connection that a `before_request` has set: it stays under the view's writes."""

import logging
from contextlib import suppress
from itertools import count

import pytest
from helpers.payment_database import Payment, PaymentApp, errors_as_text, metadata, pay
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

from flask_idempotence import SqlStore
from flask_idempotence.exactly_once import database

TENANTS = ("tenant_a", "tenant_b")
FAILURES = {
    "a failed result": lambda session: (pay(session), ("no", 422))[1],
    "a transient result": lambda session: (pay(session), ("no", 503))[1],
    "an exception": lambda session: pay(session) and {}["none"],
    "a statement that is refused": lambda session: pay(session, None),
    "a flush that is refused": lambda session: (pay(session), refused_flush(session)),
    "a savepoint left open": lambda session: (session.begin_nested(), pay(session), ("no", 422))[
        2
    ],
}


def refused_flush(session):
    session.add(Payment(id=1))  # without its amount
    session.flush()


class World:
    """Two tenants' books on one server, beside a store in neither of them.

    The idle connections of the application's pool have served the other tenant.
    """

    def __init__(self, url, use, create, engine):
        self.use, self.plain = use, create_engine(url)
        SqlStore(self.plain).create_table()
        with self.plain.begin() as connection:
            for name in TENANTS:
                connection.execute(text(f"{create} {name}"))
                there = connection.execution_options(schema_translate_map={None: name})
                metadata.create_all(there)
        self.site = PaymentApp(url, prepare=False, engine={"pool_size": 3, **engine})
        self.site.app.config["PROPAGATE_EXCEPTIONS"] = False
        self.site.app.register_error_handler(IntegrityError, lambda error: ("refused", 500))
        self.site.before = self.before
        held = [self.site.engine.connect() for _ in range(3)]
        for each in held:
            each.execute(text(use.format("tenant_b")))
            each.commit()
        for each in held:
            each.close()

    def before(self):
        self.site.session.execute(text(self.use.format("tenant_a")))
        self.site.session.execute(text("SELECT 1"))

    def paid(self):
        found = {}
        with self.plain.connect() as connection:
            for name in TENANTS:
                rows = connection.scalars(text(f"SELECT amount FROM {name}.payments ORDER BY id"))
                found[name] = list(rows)
        return found

    def close(self):
        if self.plain.dialect.name == "postgresql":  # none is left in a transaction
            idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'"
            with self.plain.connect() as connection:
                mine = text(f"{idle} AND datname = current_database()")
                assert connection.scalar(mine) == 0
        self.site.store.close()
        self.site.close()
        self.plain.dispose()


LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"]
AT_EACH_LEVEL = pytest.mark.parametrize(
    "engine", [{}, *({"isolation_level": level} for level in LEVELS)], ids=["", *LEVELS]
)


@pytest.fixture(params=["psycopg", "psycopg2", "pg8000", "pymysql"])
def tenants(request):
    """Make worlds by each driver, where the tenant is a `search_path` or a default database."""
    made = []
    if request.param == "pymysql":
        server, words = request.getfixturevalue("mariadb"), ("USE {}", "CREATE DATABASE")
        for name in TENANTS:
            server.execute(f"DROP DATABASE IF EXISTS {name}")
    else:
        server = request.getfixturevalue("postgres")
        words = ("SET search_path TO {}", "CREATE SCHEMA")
    url = server.new_database().replace("+psycopg:", f"+{request.param}:")

    def make(**engine):
        made.append(World(url, *words, engine))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.database
class TestATenant:
    @AT_EACH_LEVEL
    def test_gets_its_own_payments_and_keeps_them_on_a_replay(self, tenants, engine):
        world = tenants(**engine)
        for number in range(3):
            answers = [world.site.post(f"key-{number}", amount=number) for _ in range(2)]
            assert [each.status_code for each in answers] == [201, 201]
            assert answers[1].headers["Idempotent-Replayed"] == "true"
        assert world.paid() == {"tenant_a": [0, 1, 2], "tenant_b": []}

    @AT_EACH_LEVEL
    @pytest.mark.parametrize("way", FAILURES)
    def test_stays_for_an_after_request_that_writes_after_a_failure(self, tenants, engine, way):
        world = tenants(**engine)
        world.site._view = FAILURES[way]

        @world.site.app.after_request
        def audit(response):
            pay(world.site.session, 99)
            world.site.session.commit()
            return response

        assert world.site.post().status_code >= 400
        assert world.paid() == {"tenant_a": [99], "tenant_b": []}

    def test_stays_in_a_block_of_once(self, tenants):
        world = tenants()
        session = world.site.session
        with world.site.app.app_context():
            for first in (True, False):
                world.before()
                with world.site.idempotence.once("payments", 1, within=session) as once:
                    assert once.first is first
                    if first:
                        pay(session, 7)
            world.before()
            once = world.site.idempotence.once
            with suppress(KeyError), once("payments", 2, within=session):
                pay(session, 8)
                raise KeyError
            with world.site.idempotence.once("payments", 3, within=session):
                pay(session, 9)
        assert world.paid() == {"tenant_a": [7, 9], "tenant_b": []}

    def test_writes_before_the_guard_are_refused_behind_a_failed_guard_as_well(self, tenants):
        world = tenants()
        errors_as_text(world.site)
        session, once = world.site.session, world.site.idempotence.once

        @world.site.app.post("/")
        def attempt():
            with suppress(KeyError), once("a", 1, within=session):
                pay(session)
                raise KeyError
            pay(session, 5)
            with once("a", 1, within=session):
                pay(session, 9)

        assert "from before its guard" in world.site.app.test_client().post("/").text
        assert world.paid() == {"tenant_a": [], "tenant_b": []}


ROW_SECURITY = """
CREATE TABLE books (tenant text NOT NULL, amount int NOT NULL);
ALTER TABLE books ENABLE ROW LEVEL SECURITY;
ALTER TABLE books FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON books USING (tenant = current_setting('app.tenant', true));
CREATE ROLE {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON books, flask_idempotence TO {role}
"""


@pytest.fixture
def secured(postgres):
    """Make applications whose transactions have a role, a tenant and a lock of their own."""
    made = []

    def make(level="READ COMMITTED", *, is_local=True):
        url = postgres.new_database()
        role = url.rpartition("/")[2] + "_role"

        def view(session):
            session.execute(text("INSERT INTO books VALUES ('a', 7)"))
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            held = session.scalar(text(f"{locks} AND pid = pg_backend_pid()"))
            return f"paid, {held} held", 201

        site = PaymentApp(url, view, engine={"isolation_level": level})
        made.append((site, role))
        with site.engine.begin() as connection:
            for statement in ROW_SECURITY.format(role=role).split(";"):
                connection.execute(text(statement))

        def before():
            local = "LOCAL " if is_local else ""
            session = site.session
            session.execute(text(f"SET {local}ROLE {role}"))
            session.execute(text("SELECT set_config('app.tenant', 'a', :l)"), {"l": is_local})
            session.execute(text("SELECT pg_advisory_xact_lock(1)"))

        site.before = before
        return site

    yield make
    for site, role in made:
        with site.engine.begin() as connection:
            connection.execute(text(f"DROP OWNED BY {role}"))
            connection.execute(text(f"DROP ROLE {role}"))
        site.store.close()
        site.close()


def books(site):
    with site.engine.connect() as connection:
        connection.execute(text("SELECT set_config('app.tenant', 'a', true)"))
        return list(connection.execute(text("SELECT tenant, amount FROM books")))


@pytest.mark.database
class TestPostgreSQL:
    def test_at_read_committed_local_settings_roles_and_locks_stay(self, secured):
        site = secured()
        kept = []

        @site.app.after_request
        def look(response):
            if response.status_code == 422:
                setting = "SELECT current_setting('app.tenant', true)"
                kept.append(site.session.scalar(text(setting)))
            return response

        assert [site.post().text for _ in range(2)] == ["paid, 1 held"] * 2
        assert books(site) == [("a", 7)]
        site._view = lambda session: (session.execute(text("DELETE FROM books")), ("no", 422))[1]
        assert site.post("two").status_code == 422
        assert (books(site), kept) == ([("a", 7)], ["a"])

    @pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
    def test_above_it_settings_of_the_session_stay_and_the_log_says_once_that_local_ones_end(
        self, secured, level, caplog
    ):
        database._warn_of_level.cache_clear()
        site = secured(level, is_local=False)
        with caplog.at_level(logging.WARNING, "flask_idempotence"):
            assert [site.post(key).status_code for key in ("one", "two")] == [201, 201]
        assert books(site) == [("a", 7)] * 2
        assert len([each for each in caplog.messages if "SET LOCAL" in each]) == 1
        site.engine.dispose()  # the roles of its connections

    def test_a_replay_leaves_the_transaction_as_it_is(self, secured):
        site = secured("REPEATABLE READ")
        site.before, before = None, site.before
        site._view = lambda session: "paid"
        kept = []

        @site.app.after_request
        def look(response):
            if "Idempotent-Replayed" in response.headers:
                setting = "SELECT current_setting('app.tenant', true)"
                kept.append(site.session.scalar(text(setting)))
            return response

        assert site.post().text == "paid"
        site.before = before
        assert site.post().headers["Idempotent-Replayed"] == "true"
        assert kept == ["a"]


TRIGGER = "CREATE TRIGGER own BEFORE INSERT ON payments FOR EACH ROW SET NEW.reference = @tenant"


@pytest.mark.database
@AT_EACH_LEVEL
def test_a_trigger_on_mariadb_reads_the_tenant(mariadb, engine):
    """Its snapshot is older than a renewal, which REPEATABLE READ may refuse to overwrite."""
    checks = "SET /*M! innodb_snapshot_isolation = 1, */ @of_mariadb_alone = 1"
    engine = {**engine, "connect_args": {"init_command": checks}}
    site = PaymentApp(mariadb.new_database(), engine=engine)
    with site.engine.begin() as connection:
        connection.execute(text(TRIGGER))
        connection.execute(text("SET @tenant = 'b'"))

    def before():
        site.session.execute(text("SET @tenant = :tenant"), {"tenant": f"a{next(numbers)}"})
        site.session.execute(text("SELECT * FROM payments")).all()  # the snapshot

    def view(session):
        (key,) = list(site.store.scan(""))[-1:]
        with site.engine.connect() as keeper, keeper.begin():
            renewal = "UPDATE flask_idempotence SET expires = expires + 1 WHERE `key` = :key"
            keeper.execute(text(renewal), {"key": key.encode()})
        return site.pay(session)

    numbers = count()
    site.before, site._view = before, view
    assert [site.post(str(number)).status_code for number in range(3)] == [201] * 3
    with site.engine.connect() as connection:
        tenants = list(connection.scalars(text("SELECT reference FROM payments ORDER BY id")))
    assert tenants == ["a0", "a1", "a2"]
    site.close()


def test_a_success_and_what_follows_a_failure_are_the_tenants(tmp_path):
    """On SQLite a tenant is a file that is attached to the connection of the session."""
    files = [f"{tmp_path}/{name}.db" for name in TENANTS]
    engines = [create_engine(f"sqlite:///{file}") for file in files]
    for engine in engines:
        metadata.create_all(engine)
    site = PaymentApp(f"sqlite:///{tmp_path}/books.db", engine={"pool_size": 2})
    with site.engine.begin() as connection:
        connection.execute(text("DROP TABLE payments"))
    held = [site.engine.connect() for _ in range(2)]
    for each in held:  # they have served the other tenant
        each.execute(text(f"ATTACH '{files[1]}' AS books"))
        each.close()

    def attach():
        attached = site.session.execute(text("PRAGMA database_list")).all()
        if any(each[1] == "books" for each in attached):
            site.session.execute(text("DETACH books"))
        site.session.execute(text(f"ATTACH '{files[0]}' AS books"))

    @site.app.after_request
    def audit(response):
        if response.status_code == 503:
            pay(site.session, 99)
            site.session.commit()
        return response

    site.before = attach
    assert [site.post(amount=1).status_code for _ in range(2)] == [201, 201]
    site._view = lambda session: (pay(session), ("no", 503))[1]
    assert site.post("two").status_code == 503
    paid = []
    for engine in engines:
        with engine.connect() as connection:
            paid.append(list(connection.scalars(text("SELECT amount FROM payments"))))
        engine.dispose()
    assert paid == [[1, 99], []]
    site.close()
