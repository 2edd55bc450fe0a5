"""The link to Redis: its deadline, its idle connections, what is sent again."""

import gc
import os

import pytest
from helpers.servers.faults import SilentServer
from helpers.servers.processes import all_at_once, until
from helpers.servers.resolver import dead_addresses
from helpers.store_assertions import packets, timed_failure
from redis.exceptions import NoScriptError

from flask_idempotence import MemoryStore
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal, Running
from flask_idempotence.stores.redis.link import deadline


@pytest.fixture(params=["memory", "redis"])
def store(request):
    uri = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    return open_store(uri, {})


@pytest.fixture
def redis_store(redis_url):
    return open_store(redis_url, {})


class TestStores:
    @pytest.mark.parametrize("subject", [b"", b"s" * 16])
    def test_a_claim_is_no_token_and_stays(self, store, subject):
        store.claim("k", os.urandom(16), NO_FINGERPRINT, 10, 0)
        assert store.take_token("k", subject).name == "ABSENT"
        assert isinstance(store.claim("k", os.urandom(16), NO_FINGERPRINT, 10, 0), Running)

    def test_a_full_store_goes_on_with_what_it_holds(self):
        store, owner = MemoryStore(max_entries=1), os.urandom(16)
        store.claim("k", owner, NO_FINGERPRINT, 10, 0)
        assert store.renew([Renewal("k", owner, 10)]) == [Outcome.OK]
        assert store.complete("k", owner, NO_FINGERPRINT, b"", 10) is Outcome.OK

    def test_the_shortest_of_times_is_a_millisecond(self, store):
        assert store.claim("k", os.urandom(16), NO_FINGERPRINT, 0.0001, 0) == Claimed()
        store.put_token("t", b"", 0.0001)

    def test_many_renewals_are_one_round_trip(self, redis_store, redis_server):
        owners = {f"k{number}": os.urandom(16) for number in range(5)}
        for key, owner in owners.items():
            redis_store.claim(key, owner, NO_FINGERPRINT, 10, 0)
        renewals = [Renewal(key, owner, 10) for key, owner in owners.items()]
        redis_store.renew(renewals)  # now the server knows the script
        with redis_server.client() as behind, packets(behind) as count:
            assert redis_store.renew(renewals) == [Outcome.OK] * 5
        assert count() == 1

    def test_only_what_the_server_did_not_know_is_sent_again(self, redis_store, monkeypatch):
        """Somebody may empty the server's list of scripts between two commands of a batch."""
        answers, sent = [[0, NoScriptError(), 1, NoScriptError()], [1, 0]], []

        def send(commands, **how):
            sent.append([command.split(b"\r\n")[8].decode() for command in commands])
            return answers.pop(0)

        monkeypatch.setattr(redis_store._deployment, "send", send)
        renewals = [Renewal(key, os.urandom(16), 10) for key in "abcd"]
        outcomes = redis_store.renew(renewals)
        assert sent == [["a", "b", "c", "d"], ["b", "d"]]
        assert outcomes == [Outcome.STALE, Outcome.OK, Outcome.OK, Outcome.STALE]


class TestLink:
    def test_a_host_that_takes_no_connection_costs_no_more_than_the_deadline(self):
        with dead_addresses(1) as [(host, port)]:
            url = f"redis://{host}:{port}/0?socket_connect_timeout=60"
            _, took = timed_failure(open_store(url, {"deadline": 0.4}).ping)
        assert took < 10

    def test_a_handshake_of_tls_costs_no_more_than_the_deadline(self):
        with SilentServer() as server:
            url = server.url.replace("redis:", "rediss:")
            _, took = timed_failure(open_store(url, {"deadline": 0.4, "socket_timeout": 60}).ping)
        assert took < 10

    def test_a_connection_that_was_in_use_when_all_were_dropped_is_dropped_too(self, redis_store):
        node = redis_store._deployment._node
        deadline.begin(5)
        connection, home = node.take()
        node.drop_idle()  # it may lead to who is no longer the primary
        node.put_back(connection, home)
        assert node.take()[0] is not connection
        assert connection.over._socket.fileno() == -1

    def test_a_store_that_is_thrown_away_closes_its_connections(self, redis_server, redis_url):
        with redis_server.client() as behind:
            before = {client["id"] for client in behind.client_list()}
            store = open_store(redis_url, {})
            all_at_once([store.ping] * 4)
            [connection, *_] = store._deployment._node._idle
            assert not before.issuperset(client["id"] for client in behind.client_list())
            del store
            gc.collect()
            assert connection.over._socket.fileno() == -1
            assert until(lambda: before.issuperset(c["id"] for c in behind.client_list()))

    def test_what_the_server_refuses_in_the_handshake_is_a_store_error(self, redis_server):
        url = redis_server.url.removesuffix("/0") + "/9999"
        assert "DB index is out of range" in str(timed_failure(open_store(url, {}).ping)[0])
