"""Connections that break at any moment: a success is a commit, and a healthy database no error."""

import contextlib
from types import SimpleNamespace

import pytest
from helpers.payment_database import PaymentApp, by_driver, is_unavailable, pay
from helpers.servers.faults import Proxy
from helpers.servers.processes import until
from helpers.store_assertions import fill
from sqlalchemy import make_url

from flask_idempotence import idempotent

pytestmark = [
    pytest.mark.database,
    # pg8000 leaves the file over its socket open where its last write has failed.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

DRIVERS = ["pymysql", "mysqldb", "psycopg", "psycopg2", "pg8000"]


class Books(PaymentApp):
    """Payments by one driver, and a view of its own in plain key mode."""

    def __init__(self, server, driver, url=None):
        super().__init__(url or by_driver(server.new_database(), driver))
        self.server = server
        self.add_once()
        self.plain = None
        self.plain_runs = 0

        def run_plain():
            self.plain_runs += 1
            if self.plain is not None:
                self.plain()
            return f"run {self.plain_runs}", 201

        for name in ("reject", "allow"):
            guard = idempotent(on_store_error=name)
            self.app.add_url_rule(f"/{name}", name, guard(run_plain), methods=["POST"])

    def kill(self):

        def killed():
            found = self.server.connections(self.engine.url.database)
            for number in found:
                with contextlib.suppress(Exception):  # it may have ended meanwhile
                    self.server.execute(self.server.KILLS[0].format(number))
            return found

        assert until(lambda: not killed(), 10)

    def close(self):
        super().close()
        self.store.close()

    def send(self, path, key="plain"):
        return self.app.test_client().post(path, headers={"Idempotency-Key": key})


def books_on(request, kind=""):
    server = f"{kind}mariadb" if "mysql" in request.param else f"{kind}postgres"
    return contextlib.closing(Books(request.getfixturevalue(server), request.param))


@pytest.fixture(params=DRIVERS)
def books(request):
    with books_on(request) as books:
        yield books


@pytest.fixture(params=DRIVERS)
def fresh_books(request):
    with books_on(request, "fresh_") as books:
        yield books


class TestConnectionsDroppedInMidView:
    def test_are_503_and_nothing_is_written(self, books):
        books._view = lambda session: (pay(session), books.kill(), ("paid", 201))[2]
        for path in ("/payments", "/once"):
            assert is_unavailable(books.send(path))
            assert books.count() == 0
            assert until(lambda: list(books.store.scan("")) == [], 10)
        books._view = None
        assert [books.post(amount=5).status_code for _ in range(2)] == [201, 201]
        assert books.amounts() == [5]

    def test_cost_plain_key_mode_nothing(self, books):
        books.plain = books.kill
        answers = [books.send("/reject") for _ in range(2)]
        assert [(each.status_code, each.text) for each in answers] == [(201, "run 1")] * 2
        assert "Idempotent-Stored" not in answers[0].headers


def test_a_server_that_stops_in_mid_view_leaves_the_completion_to_the_retry_queue(fresh_books):
    fresh_books.plain = fresh_books.server.stop
    answer = fresh_books.send("/reject")
    assert (answer.status_code, answer.headers["Idempotent-Stored"]) == (201, "false")
    fresh_books.server.start()
    assert until(lambda: fresh_books.send("/reject").status_code == 201, 20)
    assert fresh_books.plain_runs == 1


def test_idle_connections_that_the_server_has_closed_give_no_errors(books):
    fill(books.store, 5)
    books.kill()
    books.store.put_token("t", b"", 60)  # which is sent once
    answers = [books.send("/reject", key=f"k{number}") for number in range(6)]
    assert [each.status_code for each in answers] == [201] * 6


def test_a_connection_that_cannot_be_given_back_changes_nothing_of_the_result(books):
    store, real = books.store, books.store._dialect.claim

    def claim(*values):
        outcome = real(*values)
        books.kill()
        return outcome

    store._dialect.claim = claim
    answer = books.send("/reject")
    del store._dialect.claim
    assert (answer.status_code, answer.text) == (201, "run 1")
    assert books.send("/reject").text == "run 1"
    assert len(store._pool._open) <= 2  # no place in the pool is lost


class TestAConnectionThatIsReset:
    """While pg8000 waits for an answer, the error is the socket's own."""

    @pytest.fixture
    def reset(self, postgres):
        direct = by_driver(postgres.new_database(), "pg8000")
        with Proxy(postgres) as proxy, contextlib.closing(PaymentApp(direct)) as behind:
            proxy.resets = True
            url = make_url(direct).set(port=proxy.port)
            with contextlib.closing(Books(postgres, "pg8000", url)) as books:
                yield SimpleNamespace(books=books, proxy=proxy, behind=behind)

    @pytest.mark.parametrize(("policy", "status"), [("reject", 503), ("allow", 201)])
    def test_each_time_is_an_outage(self, reset, policy, status):
        reset.proxy.drop_next_replies(99, after=b"granted")
        assert reset.books.send(f"/{policy}").status_code == status
        reset.proxy.drop_next_replies(0)

    def test_each_time_leaves_a_completion_to_the_retry_queue(self, reset):
        reset.books.plain = lambda: reset.proxy.drop_next_replies(99, after=b"record")
        answer = reset.books.send("/reject")
        assert (answer.status_code, answer.headers["Idempotent-Stored"]) == (201, "false")
        reset.proxy.drop_next_replies(0)
        assert until(lambda: reset.books.send("/reject").text == "run 1", 10)

    def test_at_the_begin_of_a_transaction_is_503(self, reset):
        reset.books.post(key="warm", amount=1)
        begin = b"transaction_isolation"
        reset.books.before = lambda: reset.proxy.drop_next_replies(99, after=begin)
        assert reset.books.post(amount=2).status_code == 503
        reset.proxy.drop_next_replies(0)
        assert reset.behind.amounts() == [1]

    @pytest.mark.parametrize(
        ("statement", "status", "paid"), [(b"INSERT", 503, [1]), (b"COMMIT", 201, [1, 2])]
    )
    def test_in_the_commit_is_no_success_without_one(self, reset, statement, status, paid):
        reset.books.post(key="warm", amount=1)

        def view(session):
            made = reset.books.pay(session)
            reset.proxy.drop_next_replies(99, after=statement)
            return made

        reset.books._view = view
        assert reset.books.post(amount=2).status_code == status
        reset.proxy.drop_next_replies(0)
        assert reset.behind.amounts() == paid
