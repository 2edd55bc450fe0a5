"""Storage URIs: the store that each names, and the remedy for a mistake, without its password."""

import sys
from types import SimpleNamespace

import pytest
from sqlalchemy import URL, create_engine

from flask_idempotence import ConfigurationError, MemoryStore, RedisStore, SqlStore
from flask_idempotence.stores import open_store

A_NUMBER = "the database of Redis is a number"
ENDS_EARLY = "the host ends before the last '@'"
A_BARE_HASH = "a bare '#' ends a URI. Write it as %23"
UNKNOWN = "the scheme must be one of memory://, redis://, rediss://"
UNREADABLE = "cannot be read. Check its port and options, and percent-encode"
THREE_SLASHES = "sqlite:////var/lib/app/app.db"
IN_MEMORY = "needs SQLite in a file"


def refusal(uri, options=None):
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri, options or {})
    error, text = caught.value, str(caught.value)
    assert text.startswith("IDEMPOTENCE_STORAGE_")
    assert not any(piece in text for piece in ("hun", "ter2"))
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    return text


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        *(
            (uri, UNKNOWN)
            for uri in ("", "redis", "1redis://h", "redis+tls://h", "//h", "hunter2")
        ),
        *((f"{name}://u:hunter2@h/app", UNKNOWN) for name in ("mongodb", "oracle+oracledb")),
        ("memory://hunter2", "IDEMPOTENCE_STORAGE_OPTIONS"),
        ("memory://?max_entries=5", "IDEMPOTENCE_STORAGE_OPTIONS"),
        ("redis://:hunter2@h/zero", A_NUMBER),
        ("redis://:hunter2@h/0/1", A_NUMBER),
        ("redis://:hunter2@h/-1", A_NUMBER),
        ("redis+sentinel://:hunter2@h1,h2/service/zero", A_NUMBER),
        ("redis+cluster://:hunter2@h1,h2/zero", A_NUMBER),
        ("redis+cluster://h/1", "only database 0"),
        ("redis://user#hunter2@h/0", A_BARE_HASH),  # would be the host "user"
        ("redis://:12#hunter2@h/0", A_BARE_HASH),  # would be the port 12 of localhost
        ("redis+cluster://:pa#hunter2@h/0", A_BARE_HASH),
        ("unix://:hun#ter2@/tmp/redis.sock", A_BARE_HASH),
        ("redis://:hun/ter2@h/0", ENDS_EARLY),
        ("redis://user:1?hunter2=x@h/0", ENDS_EARLY),
        ("redis+cluster://:hunter2/x@a", ENDS_EARLY),
        ("redis:hunter2@h/0", "two slashes follow the scheme"),
        ("redis://a:hunter2", UNREADABLE),
        ("redis://a/0?wait_replicas=hunter2", UNREADABLE),
        ("redis://a/0?deadline=hunter2", UNREADABLE),
        ("redis+sentinel://hunter2", UNREADABLE),
        ("redis+sentinel:///shop", UNREADABLE),
        ("redis+sentinel://a,,b/shop", UNREADABLE),
        ("redis+sentinel://a:hunter2/shop", UNREADABLE),
        ("redis+cluster://", UNREADABLE),
        ("sqlite://hunter2.db", THREE_SLASHES),
        ("sqlite:hunter2.db", THREE_SLASHES),
        ("sqlite+pysqlite://h/hunter2.db", THREE_SLASHES),
        ("postgres+psycopg://u:hunter2@h/app", "Begin it with postgresql+psycopg://"),
        ("postgresql+psycopg://u:hunter2@h:port/app", UNREADABLE),
        ("postgresql+psycopg:/u:hunter2@h/app", UNREADABLE),
        ("postgresql+psycopg://u:p@hunter2@h/app", UNREADABLE),  # the host would be hunter2@h
        ("postgresql+unheardof://u:hunter2@h/app", "does not know the driver"),
        ("mysql+pymysql://u:hunter2@h", "mysql+pymysql://user@host/shop"),
        ("mysql+pymysql://u:hunter2@h/?charset=utf8mb4", "mysql+pymysql://user@host/shop"),
    ],
)
def test_a_mistake_is_told_with_its_remedy_and_without_the_value(uri, remedy):
    assert remedy in refusal(uri)


@pytest.mark.filterwarnings("ignore:Selection of the SingletonThreadPool")  # made, and refused
@pytest.mark.parametrize(
    "uri", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:app?mode=memory&uri=true"]
)
def test_sqlite_in_memory_is_refused_with_what_does_it_instead(uri):
    told = refusal(uri)
    assert all(word in told for word in (IN_MEMORY, "idempotence_database", "use memory://"))


@pytest.mark.parametrize(
    ("uri", "options", "named"),
    [
        ("memory://", {"max_entries": "5"}, "max_entries"),
        ("memory://", {"max_entries": 0}, "max_entries"),
        ("memory://", {"clock": 5}, "clock"),
        ("rediss://h", {"ssl_cert_reqs": "hunter2"}, "cannot be set up (RedisError)"),
        ("redis://h?wait_replicas=1001", {}, "wait_replicas must be a number of replicas"),
        ("redis+cluster://h", {"db": 2}, "only database 0"),
        ("sqlite:////tmp/app.db", {"echo": "hunter2"}, "KeyError"),
        ("sqlite:////tmp/app.db", {"poolclass": "hunter2"}, "AttributeError"),
        *(
            (uri, {"unheard_of": 1}, "unheard_of")
            for uri in (
                *("memory://", "redis://h", "redis+sentinel://h/shop", "redis+cluster://h"),
                *("sqlite:////tmp/app.db", "postgresql+psycopg://u:hunter2@nowhere/app"),
            )
        ),
        *(
            (uri, {"deadline": wrong}, "deadline must be a number of seconds greater than 0")
            for uri in ("redis://h", "sqlite:////tmp/app.db")
            for wrong in (0, -1, True, "1", float("nan"), float("inf"), 10**400)
        ),
    ],
)
def test_an_option_that_will_not_do_is_refused_with_the_name_of_the_setting(uri, options, named):
    assert named in refusal(uri, options)


@pytest.mark.parametrize(
    ("module", "uri", "remedies"),
    [
        ("sqlalchemy", "sqlite:////tmp/app.db", ['pip install "flask-idempotence[sql]"']),
        (
            "pg8000",
            "postgresql+pg8000://u:hunter2@h/app",
            ["no module 'pg8000'", "pip install 'psycopg[binary]'", "postgresql+psycopg://"],
        ),
        *(
            (
                "MySQLdb",
                f"{scheme}://u:hunter2@h/app",
                ["no module 'MySQLdb'", "pip install pymysql", "mysql+pymysql://"],
            )
            for scheme in ("mysql", "mariadb+mysqldb")
        ),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_one_that_can_be(
    monkeypatch, module, uri, remedies
):
    monkeypatch.setitem(sys.modules, module, None)
    told = refusal(uri)
    assert all(remedy in told for remedy in remedies)


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("memory://", MemoryStore),
        ("memory:", MemoryStore),
        ("redis://h/0/", RedisStore),
        ("redis://user:p%23%2F%3Fss@h:6379/15?deadline=2", RedisStore),
        ("redis://:p@ss@h/0", RedisStore),
        ("redis+sentinel://user:pass@h1,h2/service", RedisStore),
        ("SQLite:////tmp/no-such-directory/app.db", SqlStore),
        ("postgresql+psycopg://u:p#s/s?s@h/app", SqlStore),
        ("mariadb+pymysql://u:p@nowhere/app", SqlStore),
    ],
)
def test_a_scheme_names_a_store_without_connecting(uri, kind):
    assert isinstance(open_store(uri, {}), kind)


def test_options_of_a_database_are_those_of_the_engine(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/app.db", {"pool_size": 3, "deadline": 3})
    assert (store.engine.pool.size(), store._deadline) == (3, 3)
    store = open_store("postgresql+psycopg://u:p#s/s?s@h/app", {})
    assert (store.engine.url.password, store.engine.url.host) == ("p#s/s?s", "h")


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (
            lambda: create_engine(
                URL.create("sqlite", database="file:app?mode=memory"), connect_args={"uri": True}
            ),
            IN_MEMORY,
        ),
        # It does not expose its socket, on which a frozen server would be waited for for ever.
        (
            lambda: create_engine(
                "mariadb+mariadbconnector://u:hunter2@h/app",
                module=SimpleNamespace(
                    paramstyle="qmark", __version__="1.1.14", version_info=(9, 0, 0)
                ),
            ),
            "begin the URL with mysql+pymysql://",
        ),
    ],
)
def test_an_engine_that_will_not_do_is_refused_with_the_remedy(make, remedy):
    engine = make()
    with pytest.raises(ConfigurationError) as caught:
        SqlStore(engine)
    assert remedy in str(caught.value)
