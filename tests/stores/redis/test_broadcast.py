"""Messages between processes through Redis: on one server, behind sentinels and in a cluster."""

import time
from contextlib import closing

import pytest
from helpers.servers.processes import all_at_once, until

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store

CHANNEL = "idempotence:broadcast"  # nobody else subscribes to it


def test_a_message_reaches_every_subscription_in_order(redis_url):
    store = open_store(redis_url, {})
    with closing(store.subscribe(CHANNEL)) as one, closing(store.subscribe(CHANNEL)) as other:
        assert store.count_listeners(CHANNEL) == 2
        messages = [b"%d" % number * 5000 for number in range(20)]
        for message in messages:
            store.publish(CHANNEL, message)
        for each in (one, other):
            assert [each.receive(5) for _ in messages] == messages
    assert until(lambda: store.count_listeners(CHANNEL) == 0)


def test_silence_and_a_lost_connection_are_errors(redis_url, redis_server):
    store = open_store(redis_url, {})
    with (
        closing(store.subscribe(CHANNEL)) as subscription,
        pytest.raises(StoreError, match="Timeout"),
    ):
        subscription.receive(0.1)
    with closing(store.subscribe(CHANNEL)) as subscription:
        redis_server.client().execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        with pytest.raises(StoreError, match="closed"):
            subscription.receive(5)


def test_a_server_that_does_not_answer_is_an_error_in_half_the_time(fresh_redis):
    store = open_store(fresh_redis.url, {"deadline": 0.4})
    store.publish(CHANNEL, b"")
    fresh_redis.pause()
    for call in (
        lambda: store.publish(CHANNEL, b""),
        lambda: store.count_listeners(CHANNEL),
        lambda: store.subscribe(CHANNEL),
    ):
        with pytest.raises(StoreError):
            call()


def test_a_publisher_never_opens_the_circuit_of_the_requests(fresh_redis):
    store = open_store(fresh_redis.url, {"deadline": 0.4})
    store.publish(CHANNEL, b"")
    fresh_redis.pause()
    for _ in range(5):
        with pytest.raises(StoreError, match="Timeout"):
            store.count_listeners(CHANNEL)
    fresh_redis.resume()
    store.ping()  # at once: an open circuit would refuse it


@pytest.mark.topology
def test_a_message_reaches_a_subscription_at_any_node_of_a_cluster(cluster):
    stores = [open_store(cluster.url, {}) for _ in range(3)]
    listening = [node.client().pubsub() for node in cluster.nodes[:3]]
    for pubsub in listening:
        pubsub.subscribe(CHANNEL)
        assert pubsub.get_message(timeout=5)["type"] == "subscribe"
    with closing(stores[0].subscribe(CHANNEL)) as own:
        assert stores[1].count_listeners(CHANNEL) == 4
        stores[2].publish(CHANNEL, b"hello")
        assert own.receive(5) == b"hello"
        for pubsub in listening:
            assert pubsub.get_message(timeout=5)["data"] == b"hello"
    for pubsub in listening:
        pubsub.close()


@pytest.mark.topology
def test_a_message_goes_through_the_primary_behind_sentinels(sentinel_group):
    stores = [open_store(sentinel_group.url, {}) for _ in range(2)]
    with closing(stores[0].subscribe(CHANNEL)) as subscription:
        assert stores[1].count_listeners(CHANNEL) == 1
        all_at_once([lambda n=n: stores[1].publish(CHANNEL, b"%d" % n) for n in range(10)])
        began = time.monotonic()
        assert sorted(subscription.receive(5) for _ in range(10)) == [b"%d" % n for n in range(10)]
        assert time.monotonic() - began < 5
