"""A database's URL as the storage URI: what it makes, and what is said where it cannot."""

import sys
from types import SimpleNamespace

import pytest
from sqlalchemy import URL, create_engine

from flask_idempotence import ConfigurationError, SqlStore
from flask_idempotence.stores import open_store


def refusal(uri, **options):
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri, options)
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:///{}/app.db",
        "SQLite:///{}/app.db",
        "postgresql+psycopg://u:p@nowhere/app",
        "mysql+pymysql://u:p@nowhere/app",
        "mariadb+pymysql://u:p@nowhere/app",
    ],
)
def test_a_scheme_names_a_store_in_a_table_without_connecting(uri, tmp_path):
    assert isinstance(open_store(uri.format(tmp_path), {"deadline": 3}), SqlStore)
    assert list(tmp_path.iterdir()) == []


def test_options_are_those_of_the_engine(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/app.db", {"pool_size": 3})
    assert store.engine.pool.size() == 3


def test_without_sqlalchemy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    assert 'pip install "flask-idempotence[sql]"' in refusal("sqlite:////tmp/app.db")


def test_a_driver_that_is_not_installed_is_named_with_one_that_can_be(monkeypatch):
    monkeypatch.setitem(sys.modules, "pg8000", None)
    told = refusal("postgresql+pg8000://u:hunter2@h/app")
    assert "not installed (no module 'pg8000')" in told
    assert "pip install 'psycopg[binary]'" in told
    assert "postgresql+psycopg://" in told


@pytest.mark.parametrize("scheme", ["mysql", "mysql+mysqldb", "mariadb", "mariadb+mysqldb"])
def test_a_driver_of_mysql_that_is_not_installed_is_named_with_one_that_can_be(
    monkeypatch, scheme
):
    monkeypatch.setitem(sys.modules, "MySQLdb", None)
    told = refusal(f"{scheme}://u:hunter2@h/app")
    assert "not installed (no module 'MySQLdb')" in told
    assert "pip install pymysql" in told
    assert "mysql+pymysql://" in told


def test_a_driver_that_nobody_knows_is_told_with_one_that_is_known():
    told = refusal("postgresql+unheardof://u:hunter2@h/app")
    assert "does not know the driver" in told
    assert "postgresql+psycopg://" in told


@pytest.mark.filterwarnings("ignore:Selection of the SingletonThreadPool")  # made, and refused
@pytest.mark.parametrize(
    "uri", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:app?mode=memory&uri=true"]
)
def test_sqlite_in_memory_is_refused_with_what_does_it_instead(uri):
    told = refusal(uri)
    assert "SQLite in a file" in told
    assert "idempotence_database" in told
    assert "use memory://" in told


def test_sqlite_in_memory_by_the_name_of_its_file_is_refused():
    url = URL.create("sqlite", database="file:app?mode=memory")
    engine = create_engine(url, connect_args={"uri": True})
    with pytest.raises(ConfigurationError, match="needs SQLite in a file"):
        SqlStore(engine)


@pytest.mark.parametrize(
    "uri", ["sqlite:////tmp/app.db", "postgresql+psycopg://u:hunter2@nowhere/app"]
)
def test_an_unknown_option_is_named_with_its_setting(uri):
    told = refusal(uri, unheard_of=1)
    assert told.startswith("IDEMPOTENCE_STORAGE_OPTIONS: ")
    assert "unheard_of" in told


@pytest.mark.parametrize("deadline", [0, -1, True, "1", float("inf"), float("nan")])
def test_a_deadline_that_is_no_time_is_refused(deadline):
    assert "deadline must be" in refusal("sqlite:////tmp/app.db", deadline=deadline)


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql+psycopg://u:hunter2@h:port/app",
        "postgresql+psycopg:/u:hunter2@h/app",
        "postgresql+psycopg://u:p@hunter2@h/app",  # the host would be hunter2@h
    ],
)
def test_a_url_that_cannot_be_read_is_told_without_the_password(uri):
    assert "cannot be read" in refusal(uri)


@pytest.mark.parametrize(
    "uri", ["sqlite://hunter2.db", "sqlite:hunter2.db", "sqlite+pysqlite://h/hunter2.db"]
)
def test_a_path_of_sqlite_that_would_be_a_host_is_told_with_the_right_form(uri):
    assert "sqlite:////var/lib/app/app.db" in refusal(uri)


def test_a_password_may_hold_what_sqlalchemy_can_tell_apart():
    store = open_store("postgresql+psycopg://u:p#s/s?s@h/app", {})
    assert (store.engine.url.password, store.engine.url.host) == ("p#s/s?s", "h")


def test_another_database_is_refused_with_those_that_are_known():
    told = refusal("oracle+oracledb://u:hunter2@h/app")
    assert "sqlite://" in told
    assert "postgresql://" in told
    assert "mysql://" in told


@pytest.mark.parametrize("scheme", ["mysql+mysqlconnector", "mariadb+mariadbconnector"])
def test_a_driver_without_a_socket_is_refused_with_those_that_have_one(scheme):
    dbapi = SimpleNamespace(paramstyle="qmark", __version__="1.1.14", version_info=(9, 0, 0))
    engine = create_engine(f"{scheme}://u:hunter2@h/app", module=dbapi)
    with pytest.raises(ConfigurationError) as caught:
        SqlStore(engine)
    assert "mysql+pymysql://" in str(caught.value)
    assert "mysql+mysqldb://" in str(caught.value)
