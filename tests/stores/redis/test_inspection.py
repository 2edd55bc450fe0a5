"""Entries, keys and servers of Redis, as the commands show them."""

import os
from dataclasses import replace

import pytest
from helpers.store_assertions import claim
from redis.exceptions import NoPermissionError

from flask_idempotence import RedisStore, StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Entry
from flask_idempotence.stores.facts import ServerFacts
from flask_idempotence.stores.redis import store as inspected
from flask_idempotence.stores.redis.link import pack

LOGGED = {
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",
    "maxmemory": "100mb",
    "maxmemory-policy": "allkeys-lru",
}
PLAIN = {
    "appendonly": "no",
    "appendfsync": "no",
    "save": "60 1",
    "maxmemory": "0",
    "maxmemory-policy": "noeviction",
}


def unmeasured(facts):
    """Return the facts without those that differ from one moment to the next."""
    return replace(facts, clock_ahead=None, memory_used=None)


def test_all_facts_of_a_server(fresh_redis):
    client = fresh_redis.client()
    store = RedisStore(client, wait_replicas=2)
    info = client.info()
    product = "valkey" if "valkey_version" in info else "redis"
    of_server = ServerFacts(
        product=product.title(),
        version=tuple(map(int, info[f"{product}_version"].split("."))),
        oldest=(7, 2) if product == "valkey" else (6, 2),
        replicas=0,
        replicas_wanted=2,
        memory_of_machine=info["total_system_memory"],
    )
    evicting = {"eviction": "allkeys-lru", "memory_limit": 100 * 2**20}
    logged = {"logs_writes": True, "log_reaches_disk": "always"}
    keeping = {"eviction": "noeviction", "memory_limit": 0}
    plain = {"logs_writes": False, "log_reaches_disk": "no"}
    for settings, expected in ((LOGGED, evicting | logged), (PLAIN, keeping | plain)):
        for name, value in settings.items():
            client.config_set(name, value)
        [facts] = store.facts()
        assert unmeasured(facts) == replace(of_server, **expected)
        assert facts.memory_used > 100_000
        assert abs(facts.clock_ahead) < 5


def store_of_guest(server, *commands):
    rights = {"keys": ["*"], "categories": ["+@all"], "commands": commands}
    server.client().acl_setuser("guest", enabled=True, nopass=True, **rights)
    return open_store(server.url.replace("//", "//guest:x@"), {})


def test_facts_that_a_server_hides_are_unknown(fresh_redis):
    store = store_of_guest(fresh_redis, "-info", "-config", "-time")
    assert store.facts() == [ServerFacts(product="Redis", oldest=(6, 2))]


VALKEY = b"""# Server\r
redis_version:7.2.4\r
valkey_version:8.0.1\r
# Memory\r
used_memory:900\r
# Replication\r
role:master\r
connected_slaves:3\r
slave0:ip=10.0.0.1,port=6379,state=online,offset=1,lag=0\r
slave1:ip=10.0.0.2,port=6379,state=wait_bgsave,offset=0,lag=0\r
slave2:ip=10.0.0.3,port=6379,state=online,offset=1,lag=0\r
"""


def test_all_facts_of_a_valkey_with_replicas_whose_settings_are_hidden(monkeypatch):
    replies = {pack("INFO"): VALKEY, pack("TIME"): [b"1700000000", b"500000"]}
    clock = iter([1_699_999_999.0, 1_700_000_000.0])  # before and after the server's answer
    monkeypatch.setattr(inspected.time, "time", lambda: next(clock))
    facts = inspected._facts_of(
        lambda command: replies.get(command, NoPermissionError()), replicas_wanted=0
    )
    assert facts == ServerFacts(
        product="Valkey",
        version=(8, 0, 1),
        oldest=(7, 2),
        memory_used=900,
        clock_ahead=1.0,
        replicas=2,
    )


def test_a_key_is_removed_with_any_value_and_no_other(redis_server, redis_url):
    store, client = open_store(redis_url, {}), redis_server.client()
    claim(store, "k")
    store.put_token("t", b"", 60)
    client.lpush("of another program", 1)
    for key, others in (("k", 2), ("of another program", 1), ("absent", 1)):
        store.remove(key)
        assert not client.exists(key)
        assert len([*store.scan("")]) == others
    assert list(store.scan("")) == ["t"]


@pytest.mark.parametrize("part", ["getrange", "strlen"])
def test_commands_that_the_server_refuses_are_errors(fresh_redis, part):
    store = store_of_guest(fresh_redis, "-del", "-ping", f"-{part}", "-scan", "-eval", "-evalsha")
    seen = Entry("token", 1, 1, None, b"T")
    for call in (
        lambda: store.remove("k"),
        lambda: store.peek("k"),
        lambda: store.clear("p:"),
        lambda: store.discard([("k", seen)]),
        store.ping,
    ):
        with pytest.raises(StoreError, match="NoPermissionError"):
            call()


def test_each_kind_of_value_is_shown_in_full(redis_server, redis_url):
    store, owner = open_store(redis_url, {}), os.urandom(16)
    store.claim("live", owner, NO_FINGERPRINT, 40, 60)
    store.claim("done", owner, NO_FINGERPRINT, 40, 0)
    store.complete("done", owner, NO_FINGERPRINT, b"a record", 80)
    store.put_token("token", b"s" * 16, 70)
    client = redis_server.client()
    client.set("other", "value", 30)
    client.hset("hash", "a", "b")
    client.hset("dying hash", "a", "b")
    client.expire("dying hash", 50)
    assert [rounded(entry) for entry in store.peek_all([*EXPECTED, "absent"])] == [
        *(entry(owner) for entry in EXPECTED.values()),
        None,
    ]


EXPECTED = {
    "live": lambda owner: Entry("claim", 100, 38, 40, b"C" + owner),
    "done": lambda owner: Entry("record", 80, 41, None, b"D" + owner),
    "token": lambda _: Entry("token", 70, 17, None, b"T" + b"s" * 16),
    "other": lambda _: Entry("unknown", 30, 5, None, b"value"),
    "hash": lambda _: Entry("unknown", 0, 0),
    "dying hash": lambda _: Entry("unknown", 50, 0),
}


def rounded(entry):
    if entry is None:
        return None
    lease = None if entry.lease is None else round(entry.lease, -1)
    return replace(entry, expires_in=round(entry.expires_in, -1), lease=lease)
