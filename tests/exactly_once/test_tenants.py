"""The state of a connection that a `before_request` has set: it stays under the view's writes."""

import logging
from contextlib import suppress
from itertools import count

import pytest
from helpers.payment_database import Payment, PaymentApp, errors_as_text, metadata, pay
from sqlalchemy import create_engine, select, text
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

    def __init__(self, url, *, use, schema="CREATE SCHEMA", **options):
        self.use = use
        plain = create_engine(url)
        SqlStore(plain).create_table()
        self.plain = plain
        for name in TENANTS:
            with plain.begin() as connection:
                self.schema(connection, name, schema)
        options.setdefault("pool_size", 3)
        self.site = PaymentApp(url, prepare=False, engine=options)
        self.site.app.config["PROPAGATE_EXCEPTIONS"] = False
        self.site.app.register_error_handler(IntegrityError, lambda error: ("refused", 500))
        self.site.before = self.before
        held = [self.site.engine.connect() for _ in range(3)]
        for each in held:
            each.execute(text(use.format("tenant_b")))
            each.commit()
        for each in held:
            each.close()

    def schema(self, connection, name, create):
        connection.execute(text(f"{create} {name}"))
        metadata.create_all(connection.execution_options(schema_translate_map={None: name}))

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
        self.site.store.close()
        self.site.close()
        self.plain.dispose()


@pytest.fixture
def worlds():
    made = []

    def make(url, **options):
        made.append(World(url, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


LEVELS = [None, "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"]


@pytest.fixture(params=["postgresql", "mysql"])
def tenants(request, worlds):
    """Make worlds on both servers, where the tenant is a `search_path` or a default database."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
        use = "SET search_path TO {}"
        return lambda **options: worlds(url, use=use, **options)
    server = request.getfixturevalue("mariadb")
    url = server.new_database()
    for name in TENANTS:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
    return lambda **options: worlds(url, use="USE {}", schema="CREATE DATABASE", **options)


@pytest.mark.database
class TestATenant:
    @pytest.mark.parametrize("level", LEVELS)
    def test_gets_its_own_payments_and_keeps_them_on_a_replay(self, tenants, level):
        world = tenants(**({} if level is None else {"isolation_level": level}))
        for number in range(3):
            answers = [world.site.post(f"key-{number}", amount=number) for _ in range(2)]
            assert [each.status_code for each in answers] == [201, 201]
            assert answers[1].headers["Idempotent-Replayed"] == "true"
        assert world.paid() == {"tenant_a": [0, 1, 2], "tenant_b": []}

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("way", FAILURES)
    def test_stays_for_an_after_request_that_writes_after_a_failure(self, tenants, level, way):
        world = tenants(**({} if level is None else {"isolation_level": level}))
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

    def test_stays_where_the_view_fails_and_is_tried_again(self, tenants):
        world, runs = tenants(), count(1)

        def view(session):
            pay(session, number := next(runs))
            return ("no", 503) if number == 1 else ("yes", 201)

        world.site._view = view
        assert [world.site.post().status_code for _ in range(2)] == [503, 201]
        assert world.paid() == {"tenant_a": [2], "tenant_b": []}

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

    def make(level=None, *, is_local=True):
        url = postgres.new_database()
        role = url.rpartition("/")[2] + "_role"
        engine = {} if level is None else {"isolation_level": level}

        def view(session):
            session.execute(text("INSERT INTO books VALUES ('a', 7)"))
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            return session.scalar(text(f"{locks} AND pid = pg_backend_pid()")) and "paid", 201

        site = PaymentApp(url, lambda session: (str(view(session)[0]), 201), engine=engine)
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

        assert [site.post().text for _ in range(2)] == ["paid", "paid"]
        assert books(site) == [("a", 7)]
        site._view = lambda session: (session.execute(text("DELETE FROM books")), ("no", 422))[1]
        assert site.post("two").status_code == 422
        assert (books(site), kept) == ([("a", 7)], ["a"])

    @pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
    def test_above_it_local_settings_end_and_the_log_says_so_once(self, secured, level, caplog):
        database._warn_of_level.cache_clear()
        site = secured(level)
        with caplog.at_level(logging.WARNING, "flask_idempotence"):
            for number in range(2):
                site.post(str(number))
        said = [each for each in caplog.messages if "SET LOCAL" in each]
        assert len(said) == 1

    @pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
    def test_above_it_the_settings_of_the_session_stay(self, secured, level):
        site = secured(level, is_local=False)
        assert site.post().status_code == 201
        assert books(site) == [("a", 7)]
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

    @pytest.mark.parametrize("driver", ["psycopg2", "pg8000"])
    @pytest.mark.parametrize("level", LEVELS)
    def test_is_the_same_with_other_drivers(self, worlds, postgres, driver, level):
        url = postgres.new_database().replace("+psycopg:", f"+{driver}:")
        options = {} if level is None else {"isolation_level": level}
        world = worlds(url, use="SET search_path TO {}", **options)
        assert [world.site.post(amount=5).status_code for _ in range(2)] == [201, 201]
        world.site._view = lambda session: (pay(session), ("no", 503))[1]
        assert world.site.post("two").status_code == 503
        assert world.paid() == {"tenant_a": [5], "tenant_b": []}
        with world.site.engine.connect() as connection:  # and none is left in a transaction
            idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'"
            assert connection.scalar(text(idle)) == 0


TRIGGER = "CREATE TRIGGER own BEFORE INSERT ON payments FOR EACH ROW SET NEW.reference = @tenant"


@pytest.mark.database
@pytest.mark.parametrize("level", LEVELS)
def test_a_trigger_on_mariadb_reads_the_tenant(mariadb, level):
    url = mariadb.new_database()
    checks = "SET /*M! innodb_snapshot_isolation = 1, */ @of_mariadb_alone = 1"
    engine = {"connect_args": {"init_command": checks}}
    if level is not None:
        engine["isolation_level"] = level
    site = PaymentApp(url, engine=engine)
    with site.engine.begin() as connection:
        connection.execute(text(TRIGGER))
        connection.execute(text("SET @tenant = 'b'"))

    def before():
        site.session.execute(text("SET @tenant = :tenant"), {"tenant": f"a{next(numbers)}"})
        site.session.execute(text("SELECT * FROM payments")).all()  # the snapshot

    def view(session):
        (key,) = list(site.store.scan(""))[-1:]
        site.store.renew([])
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


class TestSQLite:
    """The tenant is a file that is attached to the connection of the session."""

    @pytest.fixture
    def site(self, tmp_path):
        for name in TENANTS:
            engine = create_engine(f"sqlite:///{tmp_path}/{name}.db")
            metadata.create_all(engine)
            engine.dispose()
        site = PaymentApp(f"sqlite:///{tmp_path}/books.db", engine={"pool_size": 2})
        with site.engine.begin() as connection:
            connection.execute(text("DROP TABLE payments"))

        def attach(name):
            site.session.connection().exec_driver_sql("SELECT 1")
            attached = site.session.execute(text("PRAGMA database_list")).all()
            if any(each[1] == "books" for each in attached):
                site.session.execute(text("DETACH books"))
            site.session.execute(text(f"ATTACH '{tmp_path}/{name}.db' AS books"))

        site.before = lambda: attach("tenant_a")
        held = [site.engine.connect() for _ in range(2)]
        for each in held:
            each.execute(text(f"ATTACH '{tmp_path}/tenant_b.db' AS books"))
            each.close()
        yield site
        site.close()

    def paid(self, tmp_path):
        found = []
        for name in TENANTS:
            engine = create_engine(f"sqlite:///{tmp_path}/{name}.db")
            with engine.connect() as connection:
                found.append(
                    list(connection.scalars(select(metadata.tables["payments"].c.amount)))
                )
            engine.dispose()
        return found

    def test_a_success_and_what_follows_a_failure_are_the_tenants(self, site, tmp_path):
        @site.app.after_request
        def audit(response):
            if response.status_code == 503:
                pay(site.session, 99)
                site.session.commit()
            return response

        assert [site.post(amount=1).status_code for _ in range(2)] == [201, 201]
        site._view = lambda session: (pay(session), ("no", 503))[1]
        assert site.post("two").status_code == 503
        assert self.paid(tmp_path) == [[1, 99], []]
