"""The store does not answer: what each path costs, and what it does."""

import time

import pytest
import redis
from flask import request
from helpers.apps import make_app
from helpers.servers.faults import Proxy, SilentServer
from helpers.servers.processes import all_at_once, until
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from flask_idempotence import (
    Idempotence,
    MemoryStore,
    RedisStore,
    StoreError,
    current_guard,
    idempotent,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.stores import open_store
from flask_idempotence.testing import record_signals

PATIENCE = 1.5  # seconds that a request may wait for a store that is away


class Shop:
    """An application on a store that can be taken away, with one view of each mode."""

    def __init__(self, url, **settings):
        self.idempotence = Idempotence()
        settings = {"TESTING": False, "IDEMPOTENCE_STORAGE_URI": url, **settings}
        self.app = make_app(idempotence=self.idempotence, **settings)
        self.client = self.app.test_client()
        self.runs = []
        self.in_view = lambda: None
        self.status = 200

        @self.app.post("/lock")
        @no_repeat_submit(interval=20)
        def lock():
            return self.run("lock")

        @self.app.post("/token")
        @one_time_token(restore_on_failure=True)
        def token():
            return self.run("token")

    def run(self, mode):
        self.runs.append(mode)
        self.in_view()
        return {"runs": len(self.runs)}, self.status

    def post_token(self, token):
        return self.client.post("/token", headers={"Idempotence-Token": token})

    def timed(self, call):
        started = time.monotonic()
        answer = call()
        return answer, time.monotonic() - started


@pytest.mark.parametrize(
    ("operation", "status", "request_"),
    [
        ("claim", 200, "/lock"),
        ("renew", 200, "/lock?ensure"),
        ("release", 422, "/lock"),
        ("complete", 200, "/key"),
        ("put_token", 200, "/token"),
        ("take_token", 200, "/spend"),
        ("put_token", 422, "/spend"),
    ],
)
def test_every_operation_that_fails_is_told_by_the_signal(operation, status, request_):
    class Failing(MemoryStore):
        broken = ""

    def failing(name):
        def call(store, *arguments, **options):
            if store.broken == name:
                raise StoreError("away")
            return getattr(MemoryStore, name)(store, *arguments, **options)

        return call

    for name in ("claim", "renew", "release", "complete", "put_token", "take_token"):
        setattr(Failing, name, failing(name))
    store = Failing()
    app = make_app(store=store, TESTING=False)

    def view():
        if "ensure" in request.args:
            store.broken = operation
            current_guard.ensure_held()
        return "done", status

    app.add_url_rule("/lock", "lock", no_repeat_submit(60)(view), methods=["POST"])
    app.add_url_rule("/key", "key", idempotent()(view), methods=["POST"])
    spend = one_time_token(restore_on_failure=True)(view)
    app.add_url_rule("/spend", "spend", spend, methods=["POST"])
    client = app.test_client()
    headers = {"Idempotency-Key": "k", "Idempotence-Token": client.get("/token").json["token"]}
    store.broken = "" if "ensure" in request_ else operation
    with record_signals(app) as signals:
        client.open(request_, method="GET" if request_ == "/token" else "POST", headers=headers)
        store.broken = ""
    failed = [sent["operation"] for name, sent in signals.events if name == "store_failed"]
    assert failed[:1] == [operation]


def refuse(proxy):
    proxy.refuse()


def fall_silent(proxy):
    proxy.black_hole = True
    proxy.refuse()  # cuts what is connected
    proxy.accept()


TROUBLES = pytest.mark.parametrize("trouble", [refuse, fall_silent])


@pytest.fixture
def proxy(redis_server, redis_url):
    with Proxy(redis_server) as proxy:
        yield proxy


@TROUBLES
def test_a_claim_without_an_answer_is_refused_in_time_and_the_view_does_not_run(proxy, trouble):
    shop = Shop(proxy.url)
    trouble(proxy)
    with record_signals(shop.app) as signals:
        answer, took = shop.timed(lambda: shop.client.post("/lock"))
    assert answer.status_code == 503
    assert answer.json["type"] == "urn:flask-idempotence:store-unavailable"
    assert answer.headers["Retry-After"] == "1"
    assert took < PATIENCE
    assert shop.runs == []
    assert signals.names[:2] == ["store_failed", "rejected"]


@TROUBLES
def test_a_claim_without_an_answer_is_let_through_where_the_policy_is_to_allow(proxy, trouble):
    shop = Shop(proxy.url, IDEMPOTENCE_ON_STORE_ERROR="allow")
    trouble(proxy)
    answer, took = shop.timed(lambda: shop.client.post("/lock"))
    assert answer.status_code == 200
    assert took < PATIENCE
    assert shop.runs == ["lock"]


@TROUBLES
def test_a_token_is_neither_issued_nor_spent_without_an_answer(proxy, trouble):
    shop = Shop(proxy.url)
    token = shop.client.get("/token").json["token"]
    trouble(proxy)
    issued, took = shop.timed(lambda: shop.client.get("/token"))
    assert (issued.status_code, took < PATIENCE) == (503, True)
    spent, took = shop.timed(lambda: shop.post_token(token))
    assert (spent.status_code, took < PATIENCE) == (503, True)
    assert shop.runs == []


@TROUBLES
def test_tokens_go_on_working_where_the_policy_is_to_allow(proxy, trouble):
    shop = Shop(proxy.url, IDEMPOTENCE_ON_STORE_ERROR="allow")
    trouble(proxy)
    token = shop.client.get("/token").json["token"]
    assert shop.post_token(token).status_code == 200
    assert shop.runs == ["token"]


@TROUBLES
def test_an_answer_goes_out_when_settling_is_not_answered_and_the_keeper_settles(proxy, trouble):
    shop = Shop(proxy.url)
    shop.status = 422
    shop.in_view = lambda: trouble(proxy)
    answer, took = shop.timed(lambda: shop.client.post("/lock"))
    assert answer.status_code == 422
    assert took < PATIENCE
    proxy.black_hole = False
    proxy.refuse()
    proxy.accept()
    shop.in_view = lambda: None
    assert until(lambda: shop.client.post("/lock").status_code == 422)
    assert shop.runs == ["lock", "lock"]


def test_a_token_whose_spending_was_not_answered_is_never_spent_twice(proxy):
    shop = Shop(proxy.url)
    tokens = [shop.client.get("/token").json["token"] for _ in range(2)]
    assert shop.post_token(tokens[0]).status_code == 200  # now the server knows the script
    proxy.drop_next_replies(1, after=b"EVALSHA")
    assert shop.post_token(tokens[1]).status_code == 503
    assert shop.post_token(tokens[1]).status_code == 409
    assert shop.runs == ["token"]


def test_a_token_is_not_put_back_twice(proxy):
    shop = Shop(proxy.url)
    shop.status = 422
    token = shop.client.get("/token").json["token"]
    proxy.drop_next_replies(1, after=b"SET")
    assert shop.post_token(token).status_code == 422
    shop.status = 200
    assert shop.post_token(token).status_code == 200
    assert shop.post_token(token).status_code == 409
    assert shop.runs == ["token", "token"]


def test_a_ready_client_that_retries_for_long_costs_no_more_than_the_deadline():
    with SilentServer() as server:
        client = redis.Redis.from_url(
            server.url, socket_timeout=30, retry=Retry(ConstantBackoff(1), 10)
        )
        app = make_app(store=RedisStore(client), TESTING=False)

        @app.post("/")
        @no_repeat_submit
        def view():
            return {}

        started = time.monotonic()
        assert app.test_client().post("/").status_code == 503
        assert time.monotonic() - started < PATIENCE
        client.close()


def test_connections_that_are_dead_and_look_alive_cost_one_operation(proxy):
    """A firewall that was restarted, say: nothing closes them, and nothing comes back."""
    store = open_store(proxy.url, {"deadline": 0.5})
    proxy.delay = 0.01
    all_at_once([store.ping] * 4)
    proxy.delay = 0
    assert len(store._deployment._node._idle) == 4
    proxy.forget_connections()
    with pytest.raises(StoreError):
        store.ping()
    store.ping()


def test_a_claim_that_finds_its_connection_closed_was_not_sent_and_is_not_taken_back(fresh_redis):
    shop = Shop(fresh_redis.url)
    assert shop.client.post("/lock").status_code == 200
    fresh_redis.kill()
    assert shop.client.post("/lock").status_code == 503
    assert len(shop.app.extensions["idempotence"].engine.keeper._retry_queue) == 0


def test_a_full_or_read_only_server_is_a_store_that_does_not_answer(fresh_redis):
    shop = Shop(fresh_redis.url)
    with fresh_redis.client() as behind:
        behind.config_set("maxmemory", "1")
        behind.config_set("maxmemory-policy", "noeviction")
        assert shop.client.post("/lock").status_code == 503
        assert shop.client.get("/token").status_code == 503
        behind.config_set("maxmemory", "0")
        behind.replicaof("127.0.0.1", "1")
        assert shop.client.post("/lock").status_code == 503
        behind.replicaof("NO", "ONE")
    keeper = shop.app.extensions["idempotence"].engine.keeper
    assert len(keeper._retry_queue) == 0  # nothing was granted, so nothing is taken back
    assert shop.client.post("/lock").status_code == 200
    assert shop.runs == ["lock"]


@TROUBLES
def test_a_settlement_that_meets_a_renewal_under_way_costs_no_more_than_the_store_may(
    proxy, trouble
):
    shop = Shop(proxy.url, IDEMPOTENCE_LEASE=1.5)
    shop.status = 422
    ran_for = 0.7  # the keeper renews at half a second, and waits for an answer

    def in_view():
        trouble(proxy)
        time.sleep(ran_for)

    shop.in_view = in_view
    answer, took = shop.timed(lambda: shop.client.post("/lock"))
    assert answer.status_code == 422
    assert took - ran_for < PATIENCE


class TestRoute:
    """A route may say for itself what happens, whatever the setting says."""

    def shop(self, url, *, route, setting):
        app, runs = (
            make_app(
                TESTING=False, IDEMPOTENCE_STORAGE_URI=url, IDEMPOTENCE_ON_STORE_ERROR=setting
            ),
            [],
        )
        lock = no_repeat_submit(interval=20, on_store_error=route)
        token = one_time_token(on_store_error=route)
        app.add_url_rule("/lock", "lock", lock(lambda: runs.append(1) or {}), methods=["POST"])
        app.add_url_rule("/spend", "spend", token(lambda: runs.append(1) or {}), methods=["POST"])
        return app.test_client(), runs

    @pytest.mark.parametrize(
        ("route", "setting", "status"),
        [
            (None, "reject", 503),
            (None, "allow", 200),
            ("allow", "reject", 200),
            ("reject", "allow", 503),
        ],
    )
    @pytest.mark.parametrize("mode", ["lock", "spend"])
    def test_it_wins_over_the_setting(self, proxy, mode, route, setting, status):
        client, runs = self.shop(proxy.url, route=route, setting=setting)
        headers = {"Idempotence-Token": client.get("/token").json["token"]}
        proxy.refuse()
        assert client.post(f"/{mode}", headers=headers).status_code == status
        assert len(runs) == (status == 200)

    def test_making_sure_of_a_claim_follows_it_too(self, proxy):
        app = make_app(TESTING=False, IDEMPOTENCE_STORAGE_URI=proxy.url)

        @app.post("/<policy>")
        def view(policy):
            @no_repeat_submit(interval=20, on_store_error=policy)
            def inner():
                proxy.refuse()
                current_guard.ensure_held()
                return "held"

            proxy.accept()
            return inner()

        client = app.test_client()
        assert client.post("/allow").status_code == 200
        assert client.post("/reject").status_code == 503
