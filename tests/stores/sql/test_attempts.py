"""One operation: how often it is tried, what its error says, and what ends it at the deadline."""

import socket
import time
from types import SimpleNamespace

import pytest
from helpers.sql_stores import sql_store
from helpers.store_assertions import claim
from sqlalchemy.exc import ArgumentError, DataError, OperationalError, ProgrammingError

from flask_idempotence import StoreError
from flask_idempotence.errors import StoreNotReady
from flask_idempotence.stores.base import CLAIMED
from flask_idempotence.stores.process import start_daemon
from flask_idempotence.stores.sql import pool
from flask_idempotence.stores.sql import store as store_module
from flask_idempotence.stores.sql.dialect import Trouble

UNKNOWN, REFUSED, CONFLICT, NOT_READY = Trouble
PAUSES = [0.005, 0.01, 0.02, 0.04, 0.08]


class OfDriver(Exception):
    """An error of the driver, whose text has several lines."""

    def __init__(self, trouble):
        super().__init__("\n the first line\nDETAIL: a value")
        self.trouble = trouble


@pytest.fixture
def store(tmp_path):
    with sql_store(f"sqlite:///{tmp_path}/app.db", deadline=60) as store:
        store.ping()  # from now on, a connection is idle
        yield store


@pytest.fixture
def run(store, monkeypatch):
    store._dialect.trouble = lambda error: error.trouble
    pauses = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append)
    monkeypatch.setattr(store_module, "time", clock)  # of this module: other threads may sleep

    def run(*troubles, kind=OperationalError, seconds=60, **options):
        store._deadline = seconds
        left = list(troubles)
        run.pauses, run.attempts = pauses, 0

        def work(_):
            run.attempts += 1
            if left:
                raise kind("INSERT", {"key": "a value"}, OfDriver(left.pop(0)))
            return "done"

        return store._run(work, **options)

    return run


@pytest.mark.parametrize(
    ("troubles", "repeatable", "pauses"),
    [
        ([UNKNOWN], True, [0]),
        ([CONFLICT] * 5, True, PAUSES),
        ([CONFLICT] * 5, False, PAUSES),
        ([CONFLICT, UNKNOWN, CONFLICT], True, [0.005, 0, 0.01]),
    ],
)
def test_it_is_tried_again_where_that_is_safe(run, troubles, repeatable, pauses):
    assert run(*troubles, repeatable=repeatable) == "done"
    assert (run.pauses, run.attempts) == (pauses, len(troubles) + 1)


@pytest.mark.parametrize(
    ("troubles", "options", "sent", "attempts"),
    [
        ([UNKNOWN] * 2, {}, True, 2),
        ([UNKNOWN], {"repeatable": False}, True, 1),
        ([REFUSED], {}, False, 1),
        ([UNKNOWN, REFUSED], {}, True, 2),
        ([CONFLICT] * 6, {}, False, 6),
        ([CONFLICT], {"seconds": 0}, False, 1),
        ([UNKNOWN], {"seconds": 0}, True, 1),
        ([UNKNOWN], {"kind": DataError}, False, 1),
        ([UNKNOWN], {"kind": ProgrammingError}, False, 1),
    ],
)
def test_its_error_says_whether_it_may_have_taken_effect(run, troubles, options, sent, attempts):
    with pytest.raises(StoreError) as caught:
        run(*troubles, **options)
    assert (caught.value.sent, run.attempts) == (sent, attempts)
    assert str(caught.value) == "OfDriver: the first line"
    assert isinstance(caught.value.__cause__, OfDriver)


def test_an_error_about_the_table_names_the_remedy(run):
    with pytest.raises(StoreNotReady) as caught:
        run(NOT_READY)
    assert str(caught.value).startswith("OfDriver: the first line.")
    assert caught.value.remedy == (
        "The table flask_idempotence is missing, or does not fit this release: run "
        "'flask idempotence init-db', or your migration."
    )
    assert run.attempts == 1


def test_an_error_of_sqlalchemys_says_whether_anything_was_sent(store, monkeypatch):
    def work(_):
        raise ArgumentError("the first line\na value")

    with pytest.raises(StoreError) as caught:
        store._run(work)
    assert (str(caught.value), caught.value.sent) == ("ArgumentError: the first line", True)
    monkeypatch.setattr(pool, "start_daemon", lambda *_: False)
    with pytest.raises(StoreError) as caught:
        store.ping()  # the failure has closed the only connection
    text = "TimeoutError: The process cannot start a thread to connect in."
    assert (str(caught.value), caught.value.sent) == (text, False)


@pytest.mark.parametrize("lost", [9, 10])
def test_a_claim_gives_up_on_a_key_that_changes_all_the_time(store, lost):
    outcomes = [None] * lost + [CLAIMED]
    store._dialect._claim_once = lambda *_: outcomes.pop(0)
    if lost < 10:
        assert claim(store) is CLAIMED
    else:
        with pytest.raises(StoreError) as caught:
            claim(store)
        text = "The key changed owners too often."
        assert (str(caught.value), caught.value.sent) == (text, False)


class TestTheSocketTimer:
    @pytest.fixture
    def threads(self, monkeypatch):
        started = []

        def start(work, name):
            started.append(name)
            return start_daemon(work, name)

        monkeypatch.setattr(pool, "start_daemon", start)
        return started

    @pytest.fixture
    def timed(self, threads):
        timer, opened = pool.SocketTimer(), []

        def timed(seconds):
            ours, other = socket.socketpair()
            opened.extend([ours, other])
            other.settimeout(30)
            timer.begin(ours, ours.fileno(), time.monotonic() + seconds)
            return ours, other

        timed.timer = timer
        yield timed
        for each in opened:
            timer.end(each)
            each.close()

    def test_shuts_down_the_sockets_of_overdue_operations_alone(self, timed, threads):
        (_, late), (_, early) = timed(600), timed(0.1)
        ended, in_time = timed(0.2)
        timed.timer.end(ended)
        assert early.recv(1) == b""  # though the thread was asleep for another ten minutes
        (_, last) = timed(0)
        assert last.recv(1) == b""
        time.sleep(0.2)
        for each in (late, in_time):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)
        assert len(threads) == 1

    def test_starts_with_the_next_operation_where_there_was_no_thread(
        self, timed, threads, monkeypatch
    ):
        with monkeypatch.context() as patch:
            patch.setattr(pool, "start_daemon", lambda *_: False)
            _, first = timed(0)
        assert threads == []
        _, second = timed(0)
        assert [first.recv(1), second.recv(1)] == [b"", b""]
        assert len(threads) == 1
