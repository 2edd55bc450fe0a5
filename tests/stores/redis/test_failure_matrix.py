"""Every operation of the store against every trouble: its outcome, its price, its effect."""

import threading
import time

import pytest
from helpers.servers.faults import CLAIM, Proxy
from helpers.servers.processes import HOST, free_port, until
from helpers.servers.topologies import SentinelGroup
from helpers.store_assertions import answers

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal, TokenOutcome
from flask_idempotence.stores.redis.node import Node
from flask_idempotence.stores.redis.store import CLAIM as SCRIPT

OWNER = b"o" * 16
DEADLINE = 30  # seconds: longer than a busy machine stalls
SHORT_DEADLINE = 0.5
FAST = 10  # seconds: the operation did not wait for the deadline

OPERATIONS = {
    "claim": lambda store: store.claim("claimed", OWNER, NO_FINGERPRINT, 60, 0),
    "renew": lambda store: store.renew([Renewal("held", OWNER, 60)]),
    "complete": lambda store: store.complete("held", OWNER, NO_FINGERPRINT, b"r", 60),
    "release": lambda store: store.release("held", OWNER),
    "issue": lambda store: store.put_token("issued", b"", 60),
    "spend": lambda store: store.take_token("token", b""),
}

GOOD = {
    "claim": Claimed(),
    "renew": [Outcome.OK],
    "complete": Outcome.OK,
    "release": Outcome.OK,
    "issue": None,
    "spend": TokenOutcome.TAKEN,
}

AFTER_LOSS = {**GOOD, "renew": [Outcome.STALE], "spend": TokenOutcome.ABSENT}
"""What a server says that has forgotten everything."""

REPEATABLE = {"claim", "renew", "complete", "release"}
FREES_OR_KEEPS_MEMORY = {"renew", "release", "spend"}

every_operation = pytest.mark.parametrize("operation", OPERATIONS)


class World:
    """A server that holds a claim and a token, a proxy before it, and a store that has used it."""

    def __init__(self, server, proxy):
        self.server, self.proxy = server, proxy
        self.behind = server.client()
        self.store = open_store(proxy.url, {"deadline": DEADLINE})
        self.store.claim("held", OWNER, NO_FINGERPRINT, 60, 0)
        self.store.put_token("token", b"", 60)
        # The scripts are known.
        self.store.release("unheld", OWNER)
        self.store.complete("done", OWNER, NO_FINGERPRINT, b"", 60)
        self.store.renew([Renewal("unheld", OWNER, 60)])
        self.store.take_token("untaken", b"")
        self.behind.script_load(SCRIPT.source)
        self.by_commands = self.store._claims_by_commands
        proxy.carried.clear()

    def do(self, operation):
        started = time.monotonic()
        try:
            outcome = OPERATIONS[operation](self.store)
        except StoreError as error:
            outcome = error
        return outcome, time.monotonic() - started

    def sent(self):
        markers = (b"\r\nEVAL", b"\r\nSET\r\n")
        return sum(any(marker in chunk for marker in markers) for chunk in self.proxy.carried)

    def marker(self, operation):
        return {"claim": CLAIM, "issue": b"\r\nSET\r\n"}.get(operation, b"EVALSHA")


@pytest.fixture
def world(redis_server, redis_url):
    with Proxy(redis_server) as proxy:
        yield World(redis_server, proxy)


@pytest.fixture
def own_world(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        yield World(fresh_redis, proxy)


@every_operation
def test_refusing(world, operation):
    world.proxy.refuse()
    error, took = world.do(operation)
    assert isinstance(error, StoreError)
    assert not error.sent
    assert took < FAST
    assert world.sent() == 0
    world.proxy.accept()
    assert world.do(operation)[0] == GOOD[operation]


@every_operation
def test_hanging(world, operation):
    world.proxy.black_hole = True
    world.store._deadline = 0.1
    error, took = world.do(operation)
    assert isinstance(error, StoreError)
    assert error.sent
    assert took < FAST
    world.store._deadline = DEADLINE
    world.proxy.black_hole = False
    world.proxy.refuse()
    world.proxy.accept()
    assert world.do(operation)[0] == GOOD[operation]


@every_operation
def test_restarting(own_world, operation):
    own_world.server.kill()
    error, took = own_world.do(operation)
    assert isinstance(error, StoreError)
    assert took < FAST
    own_world.server.start()
    assert own_world.do(operation)[0] == AFTER_LOSS[operation]


@every_operation
def test_restarting_between_two_operations_goes_unnoticed(own_world, operation):
    own_world.server.kill()
    own_world.server.start()
    assert own_world.do(operation)[0] == AFTER_LOSS[operation]


@every_operation
def test_read_only_replica(own_world, operation):
    own_world.behind.replicaof(HOST, free_port())  # whose primary is away
    error, took = own_world.do(operation)
    assert isinstance(error, StoreError)
    assert not error.sent  # it was refused: nothing has to be taken back
    assert took < FAST
    own_world.behind.replicaof("NO", "ONE")
    assert own_world.do(operation)[0] == GOOD[operation]  # nothing had changed


@every_operation
def test_out_of_memory(own_world, operation):
    own_world.behind.config_set("maxmemory-policy", "noeviction")
    own_world.behind.config_set("maxmemory", "1")
    outcome, took = own_world.do(operation)
    assert took < FAST
    if operation in FREES_OR_KEEPS_MEMORY:
        assert outcome == GOOD[operation]
        return
    assert isinstance(outcome, StoreError)
    assert not outcome.sent
    own_world.behind.config_set("maxmemory", "0")
    assert own_world.do(operation)[0] == GOOD[operation]


def test_what_is_refused_after_an_answer_was_lost_may_have_been_done_before(own_world):
    """The first attempt was carried out; by the second, the server is a replica."""
    own_world.proxy.drop_next_replies(1, after=CLAIM)
    exchange, replicaof = Node.exchange, own_world.behind.replicaof

    def exchanged(*arguments, **options):
        try:
            return exchange(*arguments, **options)
        finally:
            replicaof(HOST, free_port())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "exchange", exchanged)
        error, _ = own_world.do("claim")
    assert "read only replica" in str(error)
    assert error.sent
    assert own_world.behind.exists("claimed")


@every_operation
def test_noscript(world, operation):
    world.behind.script_flush()
    outcome, took = world.do(operation)
    assert outcome == GOOD[operation]
    assert took < FAST
    needs_none = {"issue", "claim"} if world.by_commands else {"issue"}
    assert world.sent() == (1 if operation in needs_none else 2)


@every_operation
def test_answer_lost_after_the_effect(world, operation):
    world.proxy.drop_next_replies(1, after=world.marker(operation))
    outcome, took = world.do(operation)
    assert took < FAST
    if operation in REPEATABLE:
        assert outcome == GOOD[operation]
        judged_by_script = operation == "claim" and world.by_commands  # it is our own
        assert world.sent() == (3 if judged_by_script else 2)
        world.proxy.drop_next_replies(2, after=world.marker(operation))
        error, took = world.do(operation)
        assert isinstance(error, StoreError)
        assert error.sent
        assert took < FAST
        return
    assert isinstance(outcome, StoreError)
    assert outcome.sent
    assert world.sent() == 1
    effect = {"issue": world.behind.exists("issued"), "spend": not world.behind.exists("token")}
    assert effect[operation]


@pytest.mark.topology
@every_operation
def test_failover_in_the_middle(operation):
    with SentinelGroup() as group:
        store = open_store(
            group.url, {"wait_replicas": group.REPLICAS, "deadline": SHORT_DEADLINE}
        )
        store.claim("held", OWNER, NO_FINGERPRINT, 60, 0)
        store.put_token("token", b"", 60)
        time.sleep(0.3)  # the token is waited for by nobody
        old = group.primary
        old.pause()  # it has the operation, and will never answer
        killer = threading.Timer(0.3, old.kill)
        killer.start()
        started = time.monotonic()
        with pytest.raises(StoreError):
            OPERATIONS[operation](store)
        assert time.monotonic() - started < FAST
        killer.join()
        group.wait_for_failover(old)
        after = open_store(group.url, {})
        assert until(lambda: answers(after))
        # What the dying primary had not done is done now; a token is taken once in any case.
        assert OPERATIONS[operation](after) == GOOD[operation]
        if operation == "spend":
            assert OPERATIONS[operation](after) is TokenOutcome.ABSENT
