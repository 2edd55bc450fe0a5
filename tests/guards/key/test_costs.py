"""What key mode costs on Redis: round trips, counted at the server, and memory."""

import gc
import json
import random

import pytest
from cryptography.fernet import Fernet
from helpers.apps import KeyedApp
from helpers.store_assertions import packets

OPTIONS = {
    "/once": {"guarantee": "at-most-once"},
    "/strict": {"required": True, "on_repeat": "reject"},
}


class Shop:
    """A keyed app on Redis whose view answers as the test says."""

    def __init__(self, server, **settings):
        self.behind = server.client()
        self.keyed = KeyedApp(self.view, uri=server.url, settings=settings)
        self.body, self.in_view = b"{}", lambda: None
        for path, options in OPTIONS.items():
            self.keyed.add(path, self.view, **options)
        for self.status in (500, 201):  # a connection is open, and the scripts are known
            self.keyed.send("warm up")
        self.behind.flushdb()
        gc.collect()  # the stores of earlier tests close their connections, which a server reads

    def view(self):
        self.in_view()
        return self.body, self.status, {"Content-Type": "application/json"}

    def trips(self, key="k", path="/", **options):
        """Return how many packets of commands a request has sent, and its status."""
        with packets(self.behind) as count:
            status = self.keyed.send(key, path, **options).status_code
        return count(), status


@pytest.fixture
def shop(redis_server, redis_url):
    return Shop(redis_server)


@pytest.mark.parametrize("path", ["/", *OPTIONS])
def test_a_first_request_costs_two(shop, path):
    assert shop.trips("k", path) == (2, 201)


def test_a_replay_costs_one(shop):
    shop.keyed.send()
    assert shop.trips() == (1, 201)


def test_a_rejection_costs_one_whatever_its_reason(shop):
    meanwhile = []
    shop.in_view = lambda: meanwhile.append(shop.trips("k", "/strict"))
    shop.keyed.send("k", "/strict")
    assert meanwhile == [(1, 409)]
    assert shop.trips("k", "/strict") == (1, 409)
    assert shop.trips("k", "/strict", data="another request") == (1, 422)


def test_a_result_that_failed_costs_two(shop):
    shop.status = 500
    assert [shop.trips() for _ in range(2)] == [(2, 500)] * 2
    assert [shop.trips("k", "/once") for _ in range(2)] == [(2, 500), (1, 500)]


def test_what_is_not_guarded_or_not_good_costs_none(shop):
    assert shop.trips(None) == (0, 201)
    assert shop.trips(None, "/strict") == (0, 400)
    assert shop.trips("") == (0, 400)
    shop.keyed.app.config["IDEMPOTENCE_KEY_ENABLED"] = False
    assert shop.trips() == (0, 201)


def orders(size):
    """Return JSON as an API sends it: names that come again, and values that do not."""
    chance = random.Random(1)
    items = [
        {
            "order_id": chance.randbytes(8).hex(),
            "price": chance.randrange(10_000),
            "currency": "EUR",
        }
        for _ in range(size // 50 + 1)
    ]
    return json.dumps(items)[:size].encode()


def noise(size):
    """Return what cannot be compressed."""
    return random.Random(1).randbytes(size)


def memory(shop, body):
    """Return what a record with this body takes."""
    shop.behind.flushdb()
    shop.body = body
    assert shop.keyed.send().data == body
    assert shop.keyed.send().headers["Idempotent-Replayed"] == "true"
    (key,) = shop.behind.keys()
    assert shop.behind.get(key)[:1] == b"D"
    return shop.behind.memory_usage(key)


@pytest.mark.parametrize("make", [orders, noise])
def test_a_small_record_takes_at_most_350_bytes(shop, make):
    assert memory(shop, make(100)) <= 350


@pytest.fixture
def limits(redis_server, redis_url):
    """A shop with plain and one with encrypted records, and how much larger they may be."""
    encrypted = Shop(redis_server, IDEMPOTENCE_KEY_ENCRYPTION_KEYS=[Fernet.generate_key()])
    return [(Shop(redis_server), 1.3), (encrypted, 1.75)]


@pytest.mark.parametrize(
    ("make", "size"),
    [(orders, 1_000), (orders, 10_000), (orders, 100_000), (noise, 10_000), (noise, 100_000)],
)
def test_a_large_record_takes_little_more_than_its_body(limits, make, size):
    for shop, limit in limits:
        assert memory(shop, make(size)) <= limit * size


def test_a_repeat_takes_no_more_memory(shop):
    first = memory(shop, orders(100))
    for _ in range(50):
        shop.keyed.send()
    (key,) = shop.behind.keys()
    assert shop.behind.memory_usage(key) == first
