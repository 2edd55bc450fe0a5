"""Failovers: requests meanwhile, and that everything goes on by itself afterwards."""

import os
import time

import pytest
from helpers.apps import make_app
from helpers.servers.processes import until
from helpers.servers.topologies import Cluster, SentinelGroup
from helpers.store_assertions import is_granted

from flask_idempotence import StoreError, no_repeat_submit
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal, Running
from flask_idempotence.stores.redis.link import deadline

pytestmark = pytest.mark.topology


@pytest.fixture
def group():
    with SentinelGroup() as sentinels:
        yield sentinels


def test_a_failover_in_mid_view_lets_the_answer_out_and_settles_later(group):
    old, runs, answers = group.primary, [], {"failed": 422}

    def view(what):
        runs.append(what)
        if answers.get(what) == 422:
            old.kill()
        return {}, answers.get(what, 200)

    def post(what):
        return client.post(f"/{what}").status_code

    app = make_app(TESTING=False, IDEMPOTENCE_STORAGE_URI=group.url)
    app.add_url_rule("/<what>", "view", no_repeat_submit(interval=60)(view), methods=["POST"])
    client = app.test_client()
    assert post("before") == 200
    time.sleep(0.2)  # the replicas have it
    started = time.monotonic()
    assert post("failed") == 422  # its claim is to be released
    assert time.monotonic() - started < 1.5
    answers.clear()
    assert post("during") == 503
    group.wait_for_failover(old)
    assert until(lambda: post("failed") == 200, 5)
    assert post("before") == 409
    assert runs == ["before", "failed", "failed"]


def test_a_frozen_primary_that_wakes_up_is_not_written_to(group):
    store = open_store(group.url, {"deadline": 0.5})
    node = store._deployment._node
    deadline.begin(5)
    for taken in [node.take() for _ in range(3)]:  # idle ones to who is about to freeze
        node.put_back(*taken)
    old = group.primary
    old.pause()
    with pytest.raises(StoreError):
        store.ping()  # over one of them
    new = group.wait_for_failover(old)
    old.resume()  # it takes itself for the primary until the sentinels have told it
    assert store.claim("k", os.urandom(16), NO_FINGERPRINT, 60, 0) == Claimed()
    assert new.client().exists("k")


def test_a_failover_by_hand_turns_no_connection_into_a_trap(group):
    store, mine = open_store(group.url, {}), os.urandom(16)
    assert store.claim("k", mine, NO_FINGERPRINT, 60, 0) == Claimed()
    old = group.primary
    group.sentinels[0].client().execute_command("SENTINEL", "FAILOVER", "shop")
    group.wait_for_failover(old)
    assert until(lambda: is_granted(store), 5)
    assert store.renew([Renewal("k", mine, 60)]) == [Outcome.OK]


def test_a_replica_that_takes_over_in_a_cluster_is_found():
    with Cluster(replicas=1) as cluster:
        store, mine = open_store(cluster.url, {}), os.urandom(16)
        keys = [f"key {number}" for number in range(30)]
        for key in keys:
            assert store.claim(key, mine, NO_FINGERPRINT, 60, 0) == Claimed()
        time.sleep(0.2)
        cluster.owner("key 0").kill()
        renewals = [Renewal(key, mine, 60) for key in keys]

        def renewed():
            started = time.monotonic()
            try:
                return store.renew(renewals) == [Outcome.OK] * len(keys)
            except StoreError:
                assert time.monotonic() - started < 1.5
                return False

        assert until(renewed, 20)
        rival = os.urandom(16)
        for key in keys:
            assert isinstance(store.claim(key, rival, NO_FINGERPRINT, 60, 0), Running)
