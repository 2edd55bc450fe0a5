"""Round trips on a cluster: each operation goes to the node of its key straight away."""

import pytest
from helpers.store_assertions import claim, owner

from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Renewal
from flask_idempotence.stores.redis.link import pack
from flask_idempotence.stores.redis.node import Node

pytestmark = pytest.mark.topology


@pytest.fixture
def clustered(cluster):
    """A store that knows the table of slots, and each of whose nodes knows the scripts."""
    cluster.flush()
    store = open_store(cluster.url, {})
    for node in cluster.primaries:
        key = next(key for key in map(str, range(100)) if cluster.owner(key) is node)
        for _, operation in OPERATIONS:
            operation(store, key, owner())
    cluster.flush()
    return store


@pytest.fixture
def trips(monkeypatch):
    """The port of each server that commands were sent to, but for its table of slots."""
    ports, exchange = [], Node.exchange

    def noted(node, commands, *arguments, **options):
        if commands != [pack("CLUSTER", "SLOTS")]:
            ports.append(node.connect.keywords["port"])
        return exchange(node, commands, *arguments, **options)

    monkeypatch.setattr(Node, "exchange", noted)
    return ports


OPERATIONS = [
    ("claim", lambda store, key, mine: store.claim(key, mine, NO_FINGERPRINT, 10, 0)),
    ("claim again", lambda store, key, mine: claim(store, key)),
    ("renew", lambda store, key, mine: store.renew([Renewal(key, mine, 10)])),
    ("complete", lambda store, key, mine: store.complete(key, mine, NO_FINGERPRINT, b"", 10)),
    ("peek", lambda store, key, mine: store.peek(key)),
    ("release", lambda store, key, mine: store.release(key, mine)),
    ("put_token", lambda store, key, mine: store.put_token(key, b"", 10)),
    ("discard", lambda store, key, mine: store.discard([(key, store.peek(key))])),
    ("put_token", lambda store, key, mine: store.put_token(key, b"", 10)),
    ("take_token", lambda store, key, mine: store.take_token(key, b"")),
    ("remove", lambda store, key, mine: store.remove(key)),
]


def test_each_operation_is_one_round_trip_to_the_node_of_its_key(cluster, clustered, trips):
    for node in cluster.primaries:
        key = next(key for key in map(str, range(100)) if cluster.owner(key) is node)
        mine = owner()
        for name, operation in OPERATIONS:
            trips.clear()
            operation(clustered, key, mine)
            calls = 2 if name == "discard" else 1  # its own, and that of the look before it
            assert (name, trips) == (name, [node.port] * calls)


def test_all_servers_are_asked_for_their_facts_keys_and_number(cluster, clustered, trips):
    ports = {node.port for node in cluster.primaries}
    for number in range(30):
        claim(clustered, f"p:{number}")
    trips.clear()
    assert [facts.is_primary for facts in clustered.facts()] == [True] * len(ports)
    assert set(trips) == ports
    assert clustered.count_all() == 30
    assert {*clustered.scan("p:")} == {f"p:{number}" for number in range(30)}
    assert clustered.clear("p:") == 30
    assert clustered.count_all() == 0


def test_one_moved_slot_renews_the_whole_table(cluster, clustered, trips):
    source, target, *_ = cluster.primaries
    first, second = [key for key in map(str, range(100)) if cluster.owner(key) is source][:2]
    slots = cluster.slot(first), cluster.slot(second)
    for slot in slots:
        cluster.move(slot, source, target)
    try:
        assert claim(clustered, first) == Claimed()  # is redirected
        assert source.port in trips
        trips.clear()
        assert claim(clustered, second) == Claimed()
        assert trips == [target.port]  # and is not
    finally:
        clustered.remove(first)
        clustered.remove(second)
        for slot in slots:
            cluster.move(slot, target, source)


def test_a_command_for_one_node_goes_to_no_other(clustered, trips):
    for node in clustered._begin().primaries():
        trips.clear()
        clustered._begin().send([pack("PING")], node=node)
        assert trips == [node.connect.keywords["port"]]
