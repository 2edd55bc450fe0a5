"""The store does not answer: what each path costs, and what it does."""

import time

import pytest
import redis
from helpers.apps import make_app
from helpers.servers.faults import SilentServer
from helpers.servers.processes import all_at_once, until
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from flask_idempotence import (
    RedisStore,
    StoreError,
    current_guard,
    no_repeat_submit,
    one_time_token,
)
from flask_idempotence.stores import open_store
from flask_idempotence.testing import record_signals

PATIENCE = 10  # seconds that a request may wait for a store that is away, on a busy machine


class Shop:
    """An application on a store that can be taken away, with a lock and a token."""

    def __init__(self, url, *, policy=None, **settings):
        self.app = make_app(TESTING=False, IDEMPOTENCE_STORAGE_URI=url, **settings)
        self.client = self.app.test_client()
        self.runs, self.status, self.in_view = [], 200, lambda: None
        guards = {
            "lock": no_repeat_submit(interval=20, on_store_error=policy),
            "spend": one_time_token(restore_on_failure=True, on_store_error=policy),
        }
        for name, guard in guards.items():
            view = guard(lambda name=name: self._run(name))
            self.app.add_url_rule(f"/{name}", name, view, methods=["POST"])

    def _run(self, mode):
        self.runs.append(mode)
        self.in_view()
        return {}, self.status

    def token(self):
        return self.client.get("/token").json["token"]

    def lock(self):
        return self.client.post("/lock").status_code

    def spend(self, token):
        return self.client.post("/spend", headers={"Idempotence-Token": token}).status_code

    def kept_for_later(self):
        return len(self.app.extensions["idempotence"].engine.keeper._retry_queue)


def timed(call):
    started = time.monotonic()
    return call(), time.monotonic() - started


def refuse(proxy, shop):
    proxy.refuse()


def fall_silent(proxy, shop):
    shop.app.extensions["idempotence"].store._deadline = 0.4
    proxy.black_hole = True
    proxy.refuse()  # cuts what is connected
    proxy.accept()


TROUBLES = pytest.mark.parametrize("trouble", [refuse, fall_silent])


@pytest.mark.parametrize(
    ("trouble", "setting", "policy", "status"),
    [
        (refuse, "reject", None, 503),
        (refuse, "allow", None, 200),
        (refuse, "reject", "allow", 200),
        (refuse, "allow", "reject", 503),
        (fall_silent, "reject", None, 503),
        (fall_silent, "allow", None, 200),
    ],
)
def test_without_an_answer_a_view_runs_in_time_or_not_as_its_policy_says(
    proxy, trouble, setting, policy, status
):
    shop = Shop(proxy.url, policy=policy, IDEMPOTENCE_ON_STORE_ERROR=setting)
    token = shop.token()
    trouble(proxy, shop)
    with record_signals(shop.app) as signals:
        answer, took = timed(lambda: shop.client.post("/lock"))
    assert (answer.status_code, took < PATIENCE) == (status, True)
    if status == 503:
        assert answer.json["type"] == "urn:flask-idempotence:store-unavailable"
        assert answer.headers["Retry-After"] == "1"
        assert signals.names[:2] == ["store_failed", "rejected"]
    issued, took = timed(lambda: shop.client.get("/token"))
    assert took < PATIENCE
    assert issued.status_code == (503 if setting == "reject" else 200)
    assert timed(lambda: shop.spend(issued.json.get("token", token)))[0] == status
    assert shop.runs == ([] if status == 503 else ["lock", "spend"])


@TROUBLES
def test_an_answer_goes_out_when_settling_is_not_answered_and_the_keeper_settles(proxy, trouble):
    shop = Shop(proxy.url)
    shop.status = 422
    shop.in_view = lambda: trouble(proxy, shop)
    status, took = timed(shop.lock)
    assert (status, took < PATIENCE) == (422, True)
    proxy.black_hole = False
    proxy.refuse()
    proxy.accept()
    shop.in_view = lambda: None
    assert until(lambda: shop.lock() == 422)
    assert shop.runs == ["lock", "lock"]


def test_a_token_whose_spending_was_not_answered_is_never_spent_twice(proxy):
    shop = Shop(proxy.url)
    tokens = [shop.token() for _ in range(2)]
    assert shop.spend(tokens[0]) == 200  # now the server knows the script
    proxy.drop_next_replies(1, after=b"EVALSHA")
    assert [shop.spend(tokens[1]) for _ in range(2)] == [503, 409]
    assert shop.runs == ["spend"]


def test_a_token_is_not_put_back_twice(proxy):
    shop = Shop(proxy.url)
    shop.status = 422
    token = shop.token()
    proxy.drop_next_replies(1, after=b"SET")
    assert shop.spend(token) == 422
    assert shop.kept_for_later() == 0
    shop.status = 200
    assert [shop.spend(token) for _ in range(2)] == [200, 409]
    assert shop.runs == ["spend", "spend"]


def test_a_ready_client_that_retries_for_long_costs_no_more_than_the_deadline():
    with SilentServer() as server:
        client = redis.Redis.from_url(
            server.url, socket_timeout=30, retry=Retry(ConstantBackoff(1), 10)
        )
        app = make_app(store=RedisStore(client, deadline=1), TESTING=False)
        app.add_url_rule("/", "view", no_repeat_submit(lambda: "ok"), methods=["POST"])
        answer, took = timed(lambda: app.test_client().post("/"))
        assert (answer.status_code, took < PATIENCE) == (503, True)
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
    assert shop.lock() == 200
    fresh_redis.kill()
    assert shop.lock() == 503
    assert shop.kept_for_later() == 0


@TROUBLES
def test_a_settlement_that_meets_a_renewal_under_way_costs_no_more_than_the_store_may(
    proxy, trouble
):
    shop = Shop(proxy.url, IDEMPOTENCE_LEASE=1.5)
    shop.status = 422
    ran_for = 0.7  # the keeper renews at half a second, and waits for an answer

    def in_view():
        trouble(proxy, shop)
        time.sleep(ran_for)

    shop.in_view = in_view
    status, took = timed(shop.lock)
    assert (status, took - ran_for < PATIENCE) == (422, True)


@pytest.mark.parametrize(("policy", "status"), [("allow", 200), ("reject", 503)])
def test_making_sure_of_a_claim_follows_it_too(proxy, policy, status):
    shop = Shop(proxy.url, policy=policy)
    shop.in_view = lambda: (proxy.refuse(), current_guard.ensure_held())
    assert shop.lock() == status
