"""The SQL store on MariaDB: what is InnoDB's own, and the settings that sessions come with."""

import json
import re
import threading
import time

import pymysql
import pytest
from helpers.servers.processes import HOST
from helpers.sql_stores import sql_store
from helpers.store_assertions import claim, owner
from sqlalchemy import text
from sqlalchemy.dialects.mysql.pymysql import dialect as MySQLDialect  # noqa: N812 - a class

from flask_idempotence import StoreError
from flask_idempotence.errors import StoreNotReady
from flask_idempotence.stores.base import (
    NO_FINGERPRINT,
    Claimed,
    Done,
    Outcome,
    Renewal,
    Running,
    TokenOutcome,
)
from flask_idempotence.stores.sql import statements
from flask_idempotence.stores.sql.dialect import Trouble
from flask_idempotence.stores.sql.mysql import MySQL, error_number, is_outage

INSENSITIVE = "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"


def session(*settings):
    return {"connect_args": {"init_command": f"SET SESSION {', '.join(settings)}"}}


@pytest.fixture
def url(mariadb):
    return mariadb.new_database(INSENSITIVE)


@pytest.fixture
def store(url):
    with sql_store(url) as store:
        yield store


def every_state(store, key):
    mine, other = owner(), owner()
    assert store.claim(key, mine, NO_FINGERPRINT, 60, 0) == Claimed()
    assert isinstance(store.claim(key, other, NO_FINGERPRINT, 60, 0), Running)
    assert store.renew([Renewal(key, mine, 60), Renewal(key, other, 60)]) == [
        Outcome.OK,
        Outcome.STALE,
    ]
    assert store.complete(key, other, NO_FINGERPRINT, b"no", 60) is Outcome.STALE
    assert store.complete(key, mine, NO_FINGERPRINT, b"\0%\xff'", 60) is Outcome.OK
    assert store.claim(key, other, NO_FINGERPRINT, 60, 0) == Done(True, b"\0%\xff'")
    assert store.release(key, mine) is Outcome.STALE
    store.put_token(f"{key}:token", b"", 60)
    assert store.take_token(f"{key}:token", b"anybody") is TokenOutcome.TAKEN
    assert store.take_token(f"{key}:token", b"anybody") is TokenOutcome.ABSENT
    assert list(store.scan(key)) == [key]


class TestKeys:
    KEYS = ("key", "KEY", "kéy", "key ", "key\t", "ключ", "Ключ", "key\\", "k%", "🔑")

    @pytest.mark.parametrize("charset", ["utf8mb4", "latin1"])
    def test_are_compared_byte_by_byte(self, url, charset):
        keys = self.KEYS[:5] if charset == "latin1" else self.KEYS
        with sql_store(url, connect_args={"charset": charset}) as store:
            assert [claim(store, key) for key in keys] == [Claimed()] * len(keys)
            assert sorted(store.scan("")) == sorted(keys)
            assert list(store.scan("key"))[:3] == ["key", "key\t", "key "]
            with sql_store(url) as another:
                assert isinstance(claim(another, "kéy"), Running)

    def test_that_are_too_long_are_refused_whatever_the_mode(self, url):
        with sql_store(url, **session("sql_mode = ''")) as store:
            with pytest.raises(StoreError, match="too long"):
                claim(store, "k" * 768)
            assert claim(store, "k" * 767) == Claimed()
            assert list(store.scan("")) == ["k" * 767]


MODES = (
    *("", "ANSI", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"),
    *("ORACLE,EMPTY_STRING_IS_NULL", "TRADITIONAL"),
)


@pytest.mark.parametrize(
    "options",
    [*(session(f"sql_mode = '{mode}'") for mode in MODES), {"isolation_level": "SERIALIZABLE"}],
)
def test_the_settings_of_a_session_change_nothing(url, options):
    with sql_store(url, **options) as store:
        every_state(store, "k'\\\"")
        isolation = text("SELECT @@tx_isolation")
        found = store._run(lambda connection: connection.sqlalchemy.scalar(isolation))
        assert found == "READ-COMMITTED"


def test_the_scheme_of_mariadb_is_the_same(url):
    with sql_store(url.replace("mysql+", "mariadb+")) as store:
        every_state(store, "k")


def test_statements_are_those_of_mysql_8_as_well():
    """It has no RETURNING, and names the new row in an upsert since 8.0.19."""
    dialect = MySQLDialect()
    dialect._requires_alias_for_on_duplicate_key = True  # from its version, once connected
    ours = MySQL()
    shared = (statements.IN_THE_WAY, statements.RELEASE, statements.REMOVE, statements.LOOK_UP)
    parts = (*shared, ours._claim, ours._complete, ours.put_token, statements.TAKE)
    texts = [str(each.compile(dialect=dialect)) for each in parts]
    assert not any("RETURNING" in text for text in texts)
    upserts = [text for text in texts if "ON DUPLICATE" in text]
    assert len(upserts) == 3
    if hasattr(MySQLDialect, "_requires_alias_for_on_duplicate_key"):  # not in SQLAlchemy 2.0.0
        assert all("AS new ON DUPLICATE KEY UPDATE" in text for text in upserts)
    # Without its table's name, a column would be ambiguous.
    assert not any(re.search(r"WHEN \(?(expires|kind|owner)", text) for text in upserts)


def test_the_clock_is_the_servers_whatever_the_time_zones(url):
    zones = [session(f"time_zone = '{zone}'") for zone in ("+13:00", "-08:00")]
    with sql_store(url, **zones[0]) as east, sql_store(url, **zones[1]) as west:
        assert claim(east, lease=10) == Claimed()
        found = claim(west)
        assert isinstance(found, Running)
        assert 8 < found.remaining <= 10
        for each in (east, west):
            assert abs(each.facts()[0].clock_ahead) < 1


FLAGS = {"rows found": pymysql.constants.CLIENT.FOUND_ROWS, "rows changed": 0}


@pytest.fixture(params=FLAGS)
def counting(request, mariadb, url):
    """A store whose driver counts rows in one way, at a clock that does not move."""
    options = {"host": HOST, "port": mariadb.port, "user": "root"}
    options |= {"database": url.rpartition("/")[2], "client_flag": FLAGS[request.param]}
    options |= {"init_command": "SET SESSION timestamp = 1900000000.5"}
    with sql_store(url, creator=lambda: pymysql.connect(**options)) as store:
        yield store


class TestRowCounts:
    def test_of_either_kind_lead_to_the_same_where_nothing_changes(self, counting):
        every_state(counting, "another")
        mine = owner()
        for _ in range(2):
            assert counting.claim("k", mine, NO_FINGERPRINT, 60, 0) == Claimed()
            assert counting.renew([Renewal("k", mine, 60)] * 2) == [Outcome.OK] * 2
        for _ in range(2):
            assert counting.complete("k", mine, NO_FINGERPRINT, b"r", 60) is Outcome.OK
        assert counting.complete("k", owner(), NO_FINGERPRINT, b"r", 60) is Outcome.STALE

    def test_of_a_claim_that_came_second_behind_the_look(self, counting, monkeypatch):
        counting.claim("k", owner(), NO_FINGERPRINT, 60, 0)
        with monkeypatch.context() as patch:
            never = statements.IN_THE_WAY.where(text("1 = 0"))
            patch.setattr(statements, "IN_THE_WAY", never)
            with pytest.raises(StoreError, match="changed owners"):
                claim(counting)
        assert claim(counting, "another") == Claimed()


WRONG = {
    "MyISAM": "ENGINE=MyISAM",
    "VARCHAR(200)": f"MODIFY `key` VARCHAR(200) {INSENSITIVE}",
    "VARBINARY(64)": "MODIFY `key` VARBINARY(64)",
    "no primary key": "DROP PRIMARY KEY",
}


@pytest.mark.parametrize("what", WRONG)
def test_another_layout_is_refused_with_the_remedy(mariadb, url, what):
    with sql_store(url) as maker:
        mariadb.execute(
            f"ALTER TABLE flask_idempotence {WRONG[what]}", database=url.rpartition("/")[2]
        )
        [lacking] = maker.facts()[0].missing
        assert lacking in ("ENGINE=InnoDB", "key VARBINARY(767) PRIMARY KEY")
    with sql_store(url, create=False) as store:
        for use in (lambda: claim(store), store.know_schema):
            with pytest.raises(StoreNotReady) as caught:
                use()
            assert lacking in str(caught.value)
            assert "init-db --sql" in caught.value.remedy
        assert list(store.scan("")) == []


def test_a_table_that_is_made_after_the_first_claim_is_checked_as_well(mariadb, url):
    with sql_store(url, create=False) as store:
        with pytest.raises(StoreNotReady, match="doesn't exist"):
            claim(store)
        store.create_table()
        database = url.rpartition("/")[2]
        mariadb.execute("ALTER TABLE flask_idempotence ENGINE=MyISAM", database=database)
        with pytest.raises(StoreNotReady, match="ENGINE=InnoDB"):
            claim(store)


def test_a_table_of_another_application_is_not_written_to(mariadb, url):
    mariadb.execute(
        "CREATE TABLE flask_idempotence (`key` VARBINARY(767) PRIMARY KEY) ENGINE=InnoDB",
        database=url.rpartition("/")[2],
    )
    with sql_store(url, create=False) as store:
        with pytest.raises(StoreNotReady, match="Unknown column"):
            claim(store)
        assert "kind" in store.facts()[0].missing


def test_a_user_with_the_documented_rights_will_do(mariadb, url, store):
    database = url.rpartition("/")[2]
    mariadb.execute(
        f"CREATE USER {database} IDENTIFIED BY 'password'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.flask_idempotence TO {database}",
    )
    with sql_store(url.replace("root@", f"{database}:password@"), create=False) as theirs:
        every_state(theirs, "k")
        theirs.know_schema()
        [facts] = theirs.facts()
        assert (facts.product, facts.missing) == ("MariaDB", ())
        assert theirs.prune() == 0
        assert theirs.clear("") == 1


class WithNumber(Exception):
    """As mysql-connector and MariaDB's own driver raise them."""

    def __init__(self, errno):
        super().__init__(f"{errno}: text")
        self.errno = errno


@pytest.mark.parametrize("error", [pymysql.OperationalError, WithNumber])
@pytest.mark.parametrize(
    ("number", "trouble", "outage"),
    [
        (1213, Trouble.CONFLICT, True),
        (1205, Trouble.REFUSED, True),
        (1290, Trouble.REFUSED, True),
        (1114, Trouble.REFUSED, True),
        (1040, Trouble.REFUSED, True),
        (1142, Trouble.REFUSED, False),
        (1406, Trouble.REFUSED, False),
        (1146, Trouble.NOT_READY, False),
        (1054, Trouble.NOT_READY, False),
        (2006, Trouble.UNKNOWN, True),
        (2013, Trouble.UNKNOWN, True),
        (4031, Trouble.UNKNOWN, True),
    ],
)
def test_errors_are_known_by_their_numbers(error, number, trouble, outage):
    assert MySQL().trouble(error(number)) is trouble
    assert error_number(error(number)) == number
    assert is_outage(number) is outage


@pytest.mark.parametrize("error", [pymysql.InterfaceError(0, ""), ValueError("text"), OSError()])
def test_an_error_without_a_number_leaves_the_effect_unknown(error):
    assert error_number(error) is None
    assert MySQL().trouble(error) is Trouble.UNKNOWN


def test_claims_of_other_keys_do_not_wait_for_a_transaction(store):
    """A lock of the gap that a new row leaves would hold the keys beside it up."""
    mine = owner()
    store.claim("m", mine, NO_FINGERPRINT, 60, 0)
    with store.engine.connect() as connection:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        store.complete_in(connection, "m", mine, NO_FINGERPRINT, b"r", 60)
        store.complete_in(connection, "absent", mine, NO_FINGERPRINT, b"r", 60)
        for key in ("a", "absenta", "absenu", "l", "ma", "n", "z"):
            assert claim(store, key) == Claimed()
        connection.rollback()


def test_pruning_locks_no_gaps(store):
    for number in range(10):
        store.claim(f"k{number}", owner(), NO_FINGERPRINT, 0.001, 0)
    time.sleep(0.01)
    begun, go_on = threading.Event(), threading.Event()

    def lock_five(connection):
        with connection.transaction("START TRANSACTION"):
            connection.sqlalchemy.execute(statements.DOOMED, {"most": 5}).all()
            begun.set()
            assert go_on.wait(10)

    thread = threading.Thread(target=lambda: store._run(lock_five))
    thread.start()
    try:
        assert begun.wait(5)
        assert [claim(store, key) for key in ("k00", "k3a", "a", "z")] == [Claimed()] * 4
        assert store.prune() == 5  # those that are not locked
    finally:
        go_on.set()
        thread.join()
    assert store.prune() == 5


def test_the_claims_look_uses_the_index(store):
    for number in range(50):
        claim(store, f"k{number}")
    values = {"this_key": "k7", "this_owner": b"o"}

    def explain(connection):
        look = statements.IN_THE_WAY.params(**values)
        query = str(look.compile(connection.sqlalchemy, compile_kwargs={"literal_binds": False}))
        compiled = look.compile(connection.sqlalchemy)
        found = connection.sqlalchemy.exec_driver_sql(
            f"EXPLAIN FORMAT=JSON {query}", compiled.construct_params(escape_names=False)
        )
        return json.loads(found.scalar())

    plan = json.dumps(store._run(explain))
    assert '"access_type": "const"' in plan
