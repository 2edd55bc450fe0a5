"""A database server that is down, killed, cut off or locked, of both products alike."""

import time
from types import SimpleNamespace

import pytest
from helpers.servers.faults import Proxy
from helpers.servers.processes import until
from helpers.sql_stores import sql_store
from helpers.store_assertions import (
    answers,
    claim,
    complete_until_it_is_killed,
    fill,
    owner,
    timed_failure,
    works,
)
from sqlalchemy import NullPool, make_url, text

from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Done, Outcome, Renewal, Running
from flask_idempotence.stores.base import TokenOutcome as Token

pytestmark = pytest.mark.database

DEADLINE = 1
PATIENCE = DEADLINE + 1.5  # the machine may be busy
OF_CLAIMS = {"postgres": b"owner", "mariadb": b"INSERT"}
"""What stands in the statement of a claim."""

IN_THE_CLEAR = {"postgres": {"sslmode": "disable", "gssencmode": "disable"}, "mariadb": {}}


@pytest.fixture(params=["postgres", "mariadb"])
def product(request):
    return request.param


@pytest.fixture
def url(request, product):
    return request.getfixturevalue(product).new_database()


@pytest.fixture
def fresh(request, product):
    server = request.getfixturevalue(f"fresh_{product}")
    with sql_store(server.new_database(), deadline=DEADLINE, poolclass=NullPool) as store:
        yield SimpleNamespace(server=server, store=store)


@pytest.fixture
def far(request, product, url, store):
    with Proxy(request.getfixturevalue(product)) as proxy:
        there = make_url(url).set(port=proxy.port).update_query_dict(IN_THE_CLEAR[product])
        with sql_store(there, create=False, deadline=DEADLINE) as store:
            store.ping()
            yield SimpleNamespace(store=store, proxy=proxy)


class TestAServer:
    def test_that_is_down_is_told_at_once_and_found_again(self, fresh):
        claim(fresh.store, "before", 60)
        fresh.server.stop()
        error, took = timed_failure(lambda: claim(fresh.store))
        assert not error.sent
        assert took < PATIENCE
        fresh.server.start()
        works(fresh.store)
        assert isinstance(claim(fresh.store, "before"), Running)

    def test_that_is_killed_forgets_nothing_that_it_has_confirmed(self, fresh):
        confirmed = complete_until_it_is_killed(fresh.server, fresh.store, 50)
        fresh.server.start()
        assert until(lambda: answers(fresh.store), 10)
        lost = [key for key in confirmed if claim(fresh.store, key) != Done(True, key.encode())]
        assert lost == []

    def test_that_has_forgotten_its_connections_costs_one_deadline(self, far):
        """As behind a firewall that was restarted."""
        fill(far.store)
        far.proxy.forget_connections()
        timed_failure(lambda: claim(far.store))
        assert claim(far.store, "other") == Claimed()  # on none of the older connections

    def test_whose_answer_was_lost_is_asked_again(self, product, store, far):
        far.proxy.drop_next_replies(1, after=OF_CLAIMS[product])
        assert claim(far.store) == Claimed()
        assert far.proxy.drops_left == 0
        assert isinstance(claim(store), Running)

    def test_whose_answer_about_a_token_was_lost_is_not_asked_again(self, store, far):
        store.put_token("t", b"", 60)
        far.proxy.drop_next_replies(1, after=b"DELETE")
        error, _ = timed_failure(lambda: far.store.take_token("t", b""))
        assert error.sent
        assert until(lambda: store.take_token("t", b"") is Token.ABSENT)

    def test_that_answers_nothing_any_more_leaves_it_open_whether_it_was_sent(
        self, product, store, far
    ):
        far.proxy.drop_next_replies(1, after=OF_CLAIMS[product])
        far.proxy.lead_to(SimpleNamespace(port=1))  # the second attempt does not even connect
        error, _ = timed_failure(lambda: claim(far.store))
        assert error.sent
        assert until(lambda: store.peek("k"))  # it did arrive


class TestALock:
    """Of a transaction that has completed a claim, and is open."""

    @pytest.fixture
    def completing(self, store):
        mine = owner()
        store.claim("k", mine, NO_FINGERPRINT, 60, 0)
        with store.engine.begin() as connection:
            assert store.complete_in(connection, "k", mine, NO_FINGERPRINT, b"r", 60) is Outcome.OK
            yield mine, connection

    def test_on_the_row_is_waited_for_within_the_deadline(self, store, completing):
        mine, connection = completing
        error, took = timed_failure(lambda: store.release("k", mine))
        assert not error.sent
        assert 0.4 * DEADLINE < took < PATIENCE
        connection.rollback()
        assert store.release("k", mine) is Outcome.OK

    def test_does_not_keep_rivals_from_their_answer(self, store, completing):
        _, connection = completing
        started = time.monotonic()
        assert isinstance(claim(store), Running)
        assert time.monotonic() - started < 0.5
        connection.commit()
        assert claim(store) == Done(True, b"r")

    def test_on_a_record_does_not_keep_replays_waiting(self, store):
        mine = owner()
        store.complete("k", mine, NO_FINGERPRINT, b"r", 60)
        with store.engine.begin() as connection:
            connection.execute(text("SELECT * FROM flask_idempotence FOR UPDATE")).all()
            started = time.monotonic()
            assert claim(store) == Done(True, b"r")
            assert time.monotonic() - started < DEADLINE / 2


ATTEMPTS = {
    "postgres": (
        "CREATE SEQUENCE attempts",
        """CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN
             IF nextval('attempts') <= {times} THEN
               RAISE EXCEPTION 'a conflict' USING ERRCODE = '{error}';
             END IF;
             RETURN NEW;
           END $$""",
        """CREATE TRIGGER raises BEFORE {event} ON flask_idempotence
           FOR EACH ROW EXECUTE FUNCTION raises()""",
        "SELECT last_value FROM attempts",
    ),
    "mariadb": (
        "CREATE TABLE attempts (number INT) ENGINE=MyISAM",  # which no rollback undoes
        "INSERT INTO attempts VALUES (0)",
        """CREATE TRIGGER raises BEFORE {event} ON flask_idempotence FOR EACH ROW BEGIN
             UPDATE attempts SET number = number + 1;
             IF (SELECT number FROM attempts) <= {times} THEN
               SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {error};
             END IF;
           END""",
        "SELECT number FROM attempts",
    ),
}
"""What makes the first attempts to write a row fail, and what counts them all."""

OPERATIONS = {
    "claim": ("INSERT", lambda store, mine: claim(store, "new"), Claimed()),
    "complete": (
        "UPDATE",
        lambda store, mine: store.complete("k", mine, NO_FINGERPRINT, b"r", 60),
        Outcome.OK,
    ),
    "release": ("DELETE", lambda store, mine: store.release("k", mine), Outcome.OK),
    "renew": ("UPDATE", lambda store, mine: store.renew([Renewal("k", mine, 60)]), [Outcome.OK]),
}


class TestAConflict:
    @pytest.fixture
    def store(self, url):
        """One with time for all attempts, on a busy machine, too."""
        with sql_store(url, deadline=10, poolclass=NullPool) as store:
            yield store

    @pytest.fixture
    def attempts(self, store, product):
        *arranging, counting = ATTEMPTS[product]

        def attempts(error, times, event="INSERT"):
            with store.engine.begin() as connection:
                for statement in arranging:
                    connection.exec_driver_sql(
                        statement.format(error=error, times=times, event=event)
                    )
            return lambda: store._run(lambda c: c.sqlalchemy.scalar(text(counting)))

        return attempts

    @pytest.mark.parametrize(
        ("product", "error", "operation"),
        [
            ("postgres", "40001", "claim"),
            ("postgres", "40P01", "claim"),
            *(("mariadb", 1213, operation) for operation in OPERATIONS),
        ],
        indirect=["product"],
    )
    def test_of_transactions_is_tried_again(self, store, attempts, error, operation):
        mine = owner()
        store.claim("k", mine, NO_FINGERPRINT, 60, 0)
        event, call, outcome = OPERATIONS[operation]
        count = attempts(error, 3, event)
        assert call(store, mine) == outcome
        assert count() == 4

    @pytest.mark.parametrize(
        ("product", "error", "tried"),
        [
            ("postgres", "40001", 6),
            ("postgres", "23514", 1),
            ("mariadb", 1213, 6),
            ("mariadb", 1205, 1),
            ("mariadb", 1644, 1),
        ],
        indirect=["product"],
    )
    def test_that_does_not_end_is_not_tried_for_ever(self, store, attempts, error, tried):
        count = attempts(error, 1000)
        failure, _ = timed_failure(lambda: claim(store))
        assert not failure.sent
        assert count() == tried
