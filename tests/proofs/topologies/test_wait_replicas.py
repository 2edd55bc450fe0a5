"""`wait_replicas`: a claim, a completion or a spent token counts once enough replicas have it."""

import os
import time

import pytest
from helpers.apps import make_app
from helpers.servers.processes import until
from helpers.servers.topologies import Cluster, SentinelGroup
from helpers.store_assertions import claim, is_granted, owner, timed_failure

from flask_idempotence import no_repeat_submit
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal, Running
from flask_idempotence.stores.process import OPEN_AFTER, PROBE_EVERY

pytestmark = pytest.mark.topology


@pytest.fixture(scope="module")
def group():
    """Sentinels of this module's own: its replicas are paused, which others would notice."""
    with SentinelGroup(down_after=10) as sentinels:
        yield sentinels


@pytest.fixture
def shop(group):
    group.flush()
    return group


@pytest.fixture
def short_of_replicas(shop):
    frozen = next(server for server in shop.servers if server is not shop.primary)
    frozen.pause()
    yield shop
    frozen.resume()


def store_that_waits(group, replicas, **options):
    return open_store(f"{group.url}?wait_replicas={replicas}", options)


def too_few(call):
    """Return the error of an operation that too few replicas know, and how long it took."""
    error, took = timed_failure(call)
    assert "replicas" in str(error)
    return error, took


def test_too_few_are_a_store_that_does_not_answer_within_the_deadline(short_of_replicas):
    store, mine = store_that_waits(short_of_replicas, 2, deadline=0.5), owner()
    store.put_token("t", b"", 60)
    for call in (
        lambda: store.claim("k", mine, NO_FINGERPRINT, 10, 0),
        lambda: store.complete("k", mine, NO_FINGERPRINT, b"r", 60),
        lambda: store.take_token("t", b""),
    ):
        error, took = too_few(call)
        assert error.sent  # it was done, but a failover may forget it
        assert 0.3 < took < 0.6
    assert store.take_token("t", b"").name == "ABSENT"  # it stays spent


def test_what_is_turned_away_a_renewal_and_a_release_need_no_replicas(short_of_replicas):
    mine = owner()
    open_store(short_of_replicas.url, {}).claim("k", mine, NO_FINGERPRINT, 10, 0)
    store = store_that_waits(short_of_replicas, 2)
    started = time.monotonic()
    assert isinstance(claim(store), Running)
    assert store.take_token("t", b"").name == "ABSENT"
    assert store.complete("k", owner(), NO_FINGERPRINT, b"r", 60) is Outcome.STALE
    assert store.renew([Renewal("k", mine, 10)]) == [Outcome.OK]
    assert store.release("k", mine) is Outcome.OK
    assert time.monotonic() - started < 0.5


def test_a_server_that_forgot_the_scripts_is_waited_for_too(short_of_replicas):
    store = store_that_waits(short_of_replicas, 2, deadline=0.5)
    short_of_replicas.primary.client().script_flush()
    too_few(lambda: claim(store))


def test_it_goes_over_the_connection_of_the_claim_behind_its_script(shop):
    store = store_that_waits(shop, 2)
    claim(store, "another")
    with shop.primary.client().monitor() as monitor:
        claim(store)
        seen = []
        while not seen or not seen[-1]["command"].startswith("WAIT"):
            told = monitor.next_command()
            if told["command"].startswith(("EVALSHA", "WAIT")):
                seen.append(told)
    assert [told["command"].split()[0] for told in seen] == ["EVALSHA", "WAIT"]
    assert len({told["client_port"] for told in seen}) == 1
    patience = int(seen[-1]["command"].split()[2])
    assert 500 < patience < 1000  # it ends before the deadline does


def test_the_engine_takes_back_what_too_few_have(short_of_replicas):
    runs = []
    app = make_app(
        TESTING=False,
        IDEMPOTENCE_STORAGE_URI=short_of_replicas.url,
        IDEMPOTENCE_STORAGE_OPTIONS={"wait_replicas": 2, "deadline": 0.4},
    )
    guard = no_repeat_submit(interval=20)
    app.add_url_rule("/", "view", guard(lambda: runs.append(1) or {}), methods=["POST"])
    client, behind = app.test_client(), short_of_replicas.primary.client()
    assert client.post("/").status_code == 503
    assert runs == []
    assert len(behind.keys("*:lock:*")) == 1
    assert until(lambda: behind.keys("*:lock:*") == [])


def test_replicas_that_stay_away_are_not_waited_for_every_time(shop):
    store, to_the_end = store_that_waits(shop, 2, deadline=0.7), 0.5
    frozen = next(server for server in shop.servers if server is not shop.primary)
    frozen.pause()
    try:
        for _ in range(OPEN_AFTER):
            assert too_few(lambda: claim(store, os.urandom(8).hex()))[1] > to_the_end
        costs = [too_few(lambda: claim(store, os.urandom(8).hex()))[1] for _ in range(5)]
        assert max(costs) < to_the_end / 2
        time.sleep(PROBE_EVERY)
        costs = [too_few(lambda: claim(store, os.urandom(8).hex()))[1] for _ in range(5)]
        assert sum(cost > to_the_end for cost in costs) == 1  # one looks
    finally:
        frozen.resume()

    assert until(lambda: is_granted(store), 2)
    assert is_granted(store)


def test_on_a_cluster_it_goes_to_the_node_of_the_key():
    with Cluster(replicas=1, timeout=15) as cluster:
        store = open_store(f"{cluster.url}?wait_replicas=1&deadline=2", {})
        keys = [f"key {number}" for number in range(30)]
        assert {claim(store, key) for key in keys} == {Claimed()}
        cluster.nodes[cluster.PRIMARIES].pause()  # the replica of the first primary
        for key in keys:
            store.release(key, b"")  # the scripts and connections are there
        fresh = {cluster.owner(key).port: key for key in [f"fresh {n}" for n in range(30)]}
        assert len(fresh) == cluster.PRIMARIES
        first = cluster.primaries[0].port
        too_few(lambda: claim(store, fresh.pop(first)))
        assert {claim(store, key) for key in fresh.values()} == {Claimed()}
        # Behind a redirection, too.
        port, key = fresh.popitem()
        source = next(node for node in cluster.primaries if node.port == port)
        store.remove(key)
        cluster.move(cluster.slot(key), source, cluster.primaries[0])
        too_few(lambda: claim(store, key))
