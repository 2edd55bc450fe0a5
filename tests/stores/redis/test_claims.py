"""A claim by plain commands: its outcome and effect are those of the script."""

import math
import random
import time
from contextlib import contextmanager

import pytest
from helpers.store_assertions import packets
from redis.exceptions import ResponseError

from flask_idempotence import RedisStore, StoreError
from flask_idempotence.stores.base import (
    CLAIMED,
    Claimed,
    Crashed,
    Done,
    Outcome,
    Renewal,
    Running,
)
from flask_idempotence.stores.redis.store import _claim_outcome

OURS, OTHER = b"o" * 16, b"x" * 16
FINGERPRINTS = (b"f" * 16, b"g" * 16, bytes(16))
KEEPS = ("", "0", "00", "1", "60000", "86400000", " 7", "7.5", "-1", "1e3", "0x10", "9" * 15)
DAMAGED = (
    *(b"", b"C", b"D", b"C" + OTHER, b"D" + OTHER, b"T" + OTHER, b"R", b"text", b"\xff\r\n"),
    *(b"T" + OTHER + bytes(16) + b"0", b"c" + OTHER + bytes(16) + b"0"),
)
LIVES = (None, 1_000, 59_000, 61_000, 86_399_000, 86_401_000, 10**15 + 60_000)
STATES = 400


@pytest.fixture
def stores(redis_server, redis_url):
    by_commands, by_script = (RedisStore(redis_server.client()) for _ in range(2))
    by_script._claims_by_commands = False
    by_commands.claim("warm up", OURS, bytes(16), 10, 0)
    return by_commands, by_script


@pytest.fixture
def by_commands(stores, redis_server):
    if not stores[0]._claims_by_commands:
        pytest.skip("Redis before 7.0")
    return stores[0]


def some_value(chance):
    keep = chance.choice(KEEPS).encode()
    claim = chance.choice((OURS, OTHER, OTHER)) + chance.choice(FINGERPRINTS)
    damaged = chance.choice(DAMAGED)
    values = (b"C" + claim + keep, b"D" + claim + b"record", damaged, None, ["a list"])
    return chance.choice((values[0], *values))


def put(client, key, value, life):
    client.delete(key)
    if isinstance(value, list):
        client.rpush(key, *value)
    elif value is not None:
        client.set(key, value, px=life)


def claimed(store, key, *arguments):
    try:
        outcome = store.claim(key, *arguments)
    except StoreError as error:
        return (str(error), error.sent), 0
    if isinstance(outcome, Running):
        return ("running", outcome.matches), outcome.remaining
    return outcome, 0


def effect(client, key):
    value = client.get(key) if client.type(key) == b"string" else client.type(key)
    return value, client.pttl(key)


def test_every_outcome_is_the_one_of_the_script(stores, redis_server):
    chance, seen = random.Random(7), set()
    with redis_server.client() as client:
        for _ in range(STATES):
            value, life = some_value(chance), chance.choice(LIVES)
            lease, keep = chance.choice((0.5, 30, 100_000)), chance.choice((0, 1, 86_400))
            arguments = (OURS, chance.choice(FINGERPRINTS), lease, keep)
            took = math.inf
            while took > 0.3:  # a stall between the two would make them differ
                started = time.monotonic()
                for key in "ab":
                    put(client, key, value, life)
                found = [claimed(*each, *arguments) for each in zip(stores, "ab", strict=True)]
                left = [effect(client, key) for key in "ab"]
                took = time.monotonic() - started
            state = (value, life, arguments, found)
            assert found[0][0] == found[1][0], state
            assert abs(found[0][1] - found[1][1]) < 0.5, state
            assert left[0][0] == left[1][0], state
            assert abs(left[0][1] - left[1][1]) < 500, state
            outcome = found[0][0]
            seen.add(outcome[0].split()[0] if isinstance(outcome, tuple) else type(outcome))
    assert seen == {Claimed, Done, Crashed, "running", "ResponseError:"}


def test_each_usual_outcome_is_one_packet_and_no_script(by_commands, redis_server):
    with redis_server.client() as client:
        put(client, "done", b"D" + OTHER + bytes(16) + b"r", 10_000)
        put(client, "crashed", b"C" + OTHER + bytes(16) + b"60000", 50_000)
        put(client, "running", b"C" + OTHER + bytes(16) + b"60000", 70_000)
        outcomes = []
        client.config_resetstat()
        with packets(client) as count:
            for key in ("free", "free too", "done", "crashed", "running"):
                owner = b"new owner of all"
                outcomes.append(by_commands.claim(key, owner, bytes(16), 10, 0))
        assert count() == 5
        assert not any("eval" in name for name in client.info("commandstats"))
    assert outcomes[:4] == [CLAIMED, CLAIMED, Done(True, b"r"), Crashed(True)]
    assert 9 < outcomes[4].remaining <= 10


def test_a_server_before_7_refuses_once(redis_server, redis_url):
    if int(redis_server.version.split(".")[0]) >= 7:
        pytest.skip("Redis 7.0 or later")
    store = RedisStore(redis_server.client())
    assert store.claim("a", OURS, bytes(16), 10, 0) == CLAIMED
    store.claim("a", OTHER, bytes(16), 10, 0)
    with redis_server.client() as client:
        with packets(client) as count:
            assert isinstance(store.claim("a", OTHER, bytes(16), 10, 0), Running)
        assert count() == 1


@contextmanager
def between(store, change):
    send = store._deployment.send

    def apart(commands, **options):
        if len(commands) != 2:
            return send(commands, **options)
        first = send(commands[:1], **options)
        change()
        return first + send(commands[1:], **options)

    store._deployment.send = apart
    yield
    del store._deployment.send


CLAIM = b"C" + OTHER + bytes(16)
RECORD = b"D" + OTHER + bytes(16) + b"record"


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ((CLAIM + b"0", 10_000), (RECORD, 86_400_000), Done(True, b"record")),
        ((CLAIM + b"0", 10_000), (None, None), CLAIMED),
        ((None, None), (CLAIM + b"0", 10_000), Running(True, 10)),
        ((CLAIM + b"0", 10_000), (CLAIM + b"0", 30_000), Running(True, 10)),  # renewed meanwhile
        ((CLAIM + b"60000", 50_000), (RECORD, 86_400_000), Done(True, b"record")),
        ((CLAIM + b"60000", 50_000), (None, None), CLAIMED),
        ((None, None), (CLAIM + b"60000", 50_000), Crashed(True)),
        ((None, None), (CLAIM + b"60000", 70_000), Running(True, 10)),
        ((CLAIM + b"0", 10_000), (["another type"], None), "WRONGTYPE"),
    ],
)
def test_a_change_between_the_two_commands_gives_an_outcome_of_before_or_after(
    by_commands, redis_server, before, after, outcome
):
    with redis_server.client() as client:
        put(client, "k", *before)
        with between(by_commands, lambda: put(client, "k", *after)):
            found, remaining = claimed(by_commands, "k", OURS, bytes(16), 30, 0)
    if isinstance(outcome, Running):
        assert found == ("running", outcome.matches)
        assert outcome.remaining - 1 < remaining <= outcome.remaining
    elif isinstance(outcome, str):
        assert outcome in found[0]
    else:
        assert found == outcome


@pytest.mark.parametrize("left", [0, -1, -2, ResponseError("refused")])
def test_a_claim_whose_lease_has_just_ended_is_for_the_script_to_grant(left):
    assert _claim_outcome([left, CLAIM + b"0"], OURS, bytes(16)) is None


def test_a_full_server_still_tells_who_has_the_key(fresh_redis):
    store = RedisStore(fresh_redis.client())
    assert store.claim("k", OURS, bytes(16), 60, 0) == CLAIMED
    store.complete("done", OURS, bytes(16), b"r", 60)
    with fresh_redis.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1")
        assert isinstance(store.claim("k", OTHER, bytes(16), 60, 0), Running)
        assert store.claim("done", OTHER, bytes(16), 60, 0) == Done(True, b"r")
        with pytest.raises(StoreError, match="maxmemory"):
            store.claim("free", OTHER, bytes(16), 60, 0)


def test_a_life_with_many_zeros_is_a_number_on_every_version(redis_server):
    """Redis 7.2 turns the number 100000000 of a script into the text 1e+8."""
    store = RedisStore(redis_server.client())
    assert store.claim("a", OURS, bytes(16), 10, 0) == CLAIMED
    assert store.claim("a", OURS, bytes(16), 100_000, 0) == CLAIMED  # the script: it is there
    assert store.renew([Renewal("a", OURS, 200_000)]) == [Outcome.OK]
    with redis_server.client() as client:
        assert 199_000 < client.ttl("a") <= 200_000
