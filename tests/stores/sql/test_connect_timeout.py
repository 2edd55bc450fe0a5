"""A host that does not answer: connecting is limited, and the next host serves."""

import gc
import socket
import threading
import time

import pytest
from helpers.servers.processes import HOST, all_at_once, until
from helpers.sql_stores import interrupted_after, sql_store
from helpers.store_assertions import answers, claim, timed_failure
from sqlalchemy import event

from flask_idempotence.stores import open_store, process
from flask_idempotence.stores.sql import pool

CALLERS = 10
"""Fewer than the connections of SQLAlchemy's pool."""

DRIVERS = {
    "postgresql+psycopg": {"connect_timeout": 2},
    "postgresql+psycopg2": {"connect_timeout": 2},
    "postgresql+pg8000": {"timeout": 2},
    "mysql+pymysql": {"connect_timeout": 2, "read_timeout": 2},
}


@pytest.fixture
def silent():
    """The port of a host that takes connections and never says a word."""
    with socket.create_server((HOST, 0), backlog=500) as listening:
        yield listening


@pytest.fixture
def connecting():
    """Count the threads that connect, without those that other tests have left."""
    before = set(threading.enumerate())
    return lambda: sum(
        thread.name == "flask-idempotence-connecting"
        for thread in threading.enumerate()
        if thread not in before
    )


class _Arguments(Exception):
    pass


def arguments_of(uri, **options):
    store = open_store(uri, options)

    def tell(dialect, record, positional, named):
        raise _Arguments(named)

    event.listen(store.engine, "do_connect", tell)
    with pytest.raises(_Arguments) as caught:
        store.engine.connect()
    return caught.value.args[0]


@pytest.mark.parametrize(("scheme", "limits"), DRIVERS.items())
def test_connecting_is_limited_by_the_deadline(scheme, limits):
    uri = f"{scheme}://u@nowhere/app"
    assert arguments_of(uri).items() >= limits.items()
    longer = dict.fromkeys(limits, 4)
    assert arguments_of(uri, deadline=3.5).items() >= longer.items()


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql+psycopg2", "mysql+pymysql"])
def test_a_limit_of_the_applications_own_counts(scheme, monkeypatch):
    uri = f"{scheme}://u@nowhere/app"
    assert int(arguments_of(f"{uri}?connect_timeout=7")["connect_timeout"]) == 7
    named = arguments_of(uri, connect_args={"connect_timeout": 8})
    assert named["connect_timeout"] == 8
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "9")
    assert ("connect_timeout" in arguments_of(uri)) == scheme.startswith("mysql")


def test_statements_may_take_longer_than_connecting(postgres, mariadb):
    pg8000 = open_store(postgres.new_database().replace("+psycopg", "+pg8000"), {})
    with pg8000.engine.connect() as connection:
        assert connection.connection.dbapi_connection._usock.gettimeout() is None
    pymysql = open_store(mariadb.new_database(), {})
    with pymysql.engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
        assert connection.connection.dbapi_connection._sock.gettimeout() is None
    pg8000.engine.dispose()
    pymysql.engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_behind_a_first_host_that_is_silent_the_next_one_serves(
    driver, postgres, silent, connecting
):
    url = postgres.new_database()
    with sql_store(url):
        pass  # now it has the table
    database = url.rpartition("/")[2]
    hosts = f"host={HOST}:{silent.getsockname()[1]}&host={HOST}:{postgres.port}"
    store = open_store(f"postgresql+{driver}://postgres@/{database}?{hosts}", {})
    assert until(lambda: answers(store), 20)  # psycopg by itself would wait for 130 seconds
    assert all(answers(store) for _ in range(20))  # by the connection that came too late at first
    assert until(lambda: not connecting(), 8)
    store.close()
    store.engine.dispose()


@pytest.mark.database  # a silent one, for seconds
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # PyMySQL's, in a cycle
@pytest.mark.parametrize("scheme", DRIVERS)
def test_threads_that_connect_end_soon(scheme, silent, connecting):
    store = open_store(f"{scheme}://u@{HOST}:{silent.getsockname()[1]}/app", {"deadline": 0.1})
    all_at_once([lambda: timed_failure(lambda: claim(store))] * CALLERS)
    assert 0 < connecting() <= CALLERS  # those that begin late find others overdue
    assert until(lambda: not connecting(), 8)
    store.close()
    gc.collect()


def test_threads_that_connect_do_not_pile_up(silent, connecting, monkeypatch):
    """With a limit of an hour, probe after probe would wait with the first ones."""
    monkeypatch.setattr(process, "PROBE_EVERY", 0.01)
    uri = f"postgresql+psycopg://u@{HOST}:{silent.getsockname()[1]}/app?connect_timeout=3600"
    store = open_store(uri, {"deadline": 0.02})
    for _ in range(60):
        timed_failure(lambda: claim(store))
        time.sleep(0.01)
    assert connecting() == pool._MOST == 32
    silent.close()
    assert until(lambda: not connecting(), 8)
    store.close()


def test_a_connection_that_comes_too_late_serves_the_next_caller(
    tmp_path, connecting, monkeypatch
):
    gate = threading.Event()
    with sql_store(f"sqlite:///{tmp_path}/store.db", deadline=0.2) as store:
        event.listen(store.engine, "do_connect", lambda *_: gate.wait(20) and None)
        timed_failure(lambda: claim(store))
        gate.set()
        assert until(lambda: not connecting(), 5)
        monkeypatch.setattr(pool, "start_daemon", pytest.fail)
        claim(store)


def test_a_caller_that_is_interrupted_waits_no_longer(tmp_path, connecting, monkeypatch):
    """Else it would be the first to get a connection, and keep it from the callers behind it."""
    gates = [threading.Event(), threading.Event()]
    closed = list(gates)

    def wait_for_a_connection():
        claim(store)
        return not gates[1].is_set()

    def open_the_first():
        assert until(lambda: not closed, 5)  # the second caller connects, too
        gates[0].set()
        time.sleep(0.3)
        gates[1].set()
        return True

    with sql_store(f"sqlite:///{tmp_path}/store.db", deadline=10) as store:
        event.listen(store.engine, "do_connect", lambda *_: closed.pop(0).wait(20) and None)
        with interrupted_after(0.2):
            claim(store)
        assert all_at_once([wait_for_a_connection, open_the_first]) == [True, True]
        assert until(lambda: not connecting(), 5)
        monkeypatch.setattr(pool, "start_daemon", pytest.fail)
        claim(store)  # on an idle one, for which nobody waits any more
