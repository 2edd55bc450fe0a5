"""The link to Redis: its deadline, its idle connections, what is sent again."""

import contextlib
import gc
import os
import socket
import socketserver
import threading
import time

import pytest
from helpers.apps import make_app
from helpers.servers.faults import SilentServer
from helpers.servers.processes import HOST, all_at_once, free_port, until
from redis.exceptions import NoScriptError

from flask_idempotence import (
    MemoryStore,
    StoreError,
    no_repeat_submit,
)
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed, Outcome, Renewal, Running
from flask_idempotence.stores.redis.link import deadline, pack
from flask_idempotence.stores.redis.node import Node


def answer():
    return {}


def _timed_failure(store):
    """Return the error of an operation that fails, and how long it took."""
    started = time.monotonic()
    with pytest.raises(StoreError) as caught:
        store.ping()
    return caught.value, time.monotonic() - started


@contextlib.contextmanager
def _serving(handle):
    """Run a server that does so with each connection, and return its URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):
                handle(self.request)

    with socketserver.ThreadingTCPServer((HOST, 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield f"redis://{HOST}:{server.server_address[1]}/0?protocol=2"
        finally:
            server.shutdown()
            thread.join()


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

    def test_many_renewals_are_one_round_trip(self, redis_store, monkeypatch):
        owners = {f"k{number}": os.urandom(16) for number in range(5)}
        for key, owner in owners.items():
            redis_store.claim(key, owner, NO_FINGERPRINT, 10, 0)
        renewals = [Renewal(key, owner, 10) for key, owner in owners.items()]
        redis_store.renew(renewals)  # now the server knows the script
        trips, send = [], redis_store._deployment.send

        def counted(commands, **options):
            trips.append(len(commands))
            return send(commands, **options)

        monkeypatch.setattr(redis_store._deployment, "send", counted)
        assert redis_store.renew(renewals) == [Outcome.OK] * 5
        assert trips == [5]

    def test_a_store_is_cleared_in_batches(self, redis_store, monkeypatch):
        for number in range(1200):
            redis_store.put_token(f"p:{number}", b"", 60)
        redis_store.put_token("q", b"", 60)
        trips, exchange = [], Node.exchange

        def counted(node, commands, *arguments, **options):
            trips.append(commands)
            return exchange(node, commands, *arguments, **options)

        monkeypatch.setattr(Node, "exchange", counted)
        assert redis_store.clear("p:") == 1200
        assert len([trip for trip in trips if b"DEL" in trip[0]]) <= 4
        assert list(redis_store.scan("")) == ["q"]

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
    def test_a_second_attempt_gets_what_the_first_has_left_of_the_deadline(self):
        def hang_up(connection):
            connection.recv(4096)
            time.sleep(0.9)

        with _serving(hang_up) as url:
            _, took = _timed_failure(open_store(url, {"deadline": 1.0}))
        assert 0.95 < took < 1.5

    def test_the_answers_to_a_batch_count_against_one_deadline(self):
        def answer_slowly(connection):
            while asked := connection.recv(4096):
                connection.sendall(b"+OK\r\n" * asked.count(b"SETINFO"))
                for _ in range(asked.count(b"PING")):
                    time.sleep(0.6)
                    connection.sendall(b"+PONG\r\n")

        with _serving(answer_slowly) as url:
            store, started = open_store(url, {"deadline": 1.0}), time.monotonic()
            with pytest.raises(StoreError):
                store._begin().send([pack("PING")] * 4, repeatable=False)
            took = time.monotonic() - started
        assert 0.95 < took < 1.5

    def test_sending_a_script_in_full_is_still_the_same_operation(self):
        def slow_to_say_that_it_does_not_know(connection):
            while b"CLIENT" in connection.recv(4096):
                connection.sendall(b"+OK\r\n")
            time.sleep(0.4)
            connection.sendall(b"-NOSCRIPT No matching script.\r\n")
            time.sleep(3)

        with _serving(slow_to_say_that_it_does_not_know) as url:
            store = open_store(url, {"deadline": 0.6})
            started = time.monotonic()
            with pytest.raises(StoreError):
                store.release("k", os.urandom(16))
            assert time.monotonic() - started < 0.8

    def test_it_does_without_poll_where_there_is_none(self, redis_server, redis_url, monkeypatch):
        monkeypatch.delattr("select.poll")
        monkeypatch.setattr("redis._parsers.hiredis._HAS_POLL", False, raising=False)
        store = open_store(redis_url, {})
        store.ping()
        redis_server.client().client_kill_filter(_type="normal", skipme=True)
        store.put_token("t", b"", 60)  # sent once, so only over a connection that is alive
        assert store.take_token("t", b"").name == "TAKEN"

    def test_a_host_that_takes_no_connection_costs_no_more_than_the_deadline(self):
        with socket.create_server((HOST, 0), backlog=0) as full, contextlib.ExitStack() as stack:
            address = full.getsockname()
            for _ in range(4):  # until the queue is full and the kernel answers nobody
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(address)
            url = f"redis://{HOST}:{address[1]}/0?socket_connect_timeout=5"
            _, took = _timed_failure(open_store(url, {"deadline": 0.4}))
        assert took < 1

    def test_a_handshake_of_tls_costs_no_more_than_the_deadline(self):
        with SilentServer() as server:
            url = server.url.replace("redis:", "rediss:")
            _, took = _timed_failure(open_store(url, {"deadline": 0.4, "socket_timeout": 5}))
        assert took < 1

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
            before = len(behind.client_list())
            store = open_store(redis_url, {})
            all_at_once([store.ping] * 4)
            [connection, *_] = store._deployment._node._idle
            assert len(behind.client_list()) > before
            del store
            gc.collect()
            assert connection.over._socket.fileno() == -1
            assert until(lambda: len(behind.client_list()) == before)

    def test_what_could_not_connect_cannot_have_arrived(self):
        error, _ = _timed_failure(open_store(f"redis://{HOST}:{free_port()}/0", {}))
        assert not error.sent

    def test_what_the_server_refuses_in_the_handshake_is_a_store_error(self, redis_server):
        store = open_store(redis_server.url.removesuffix("/0") + "/9999", {})
        _timed_failure(store)
        app = make_app(store=store, TESTING=False)
        app.add_url_rule("/", "view", no_repeat_submit(answer), methods=["POST"])
        assert app.test_client().post("/").status_code == 503
