"""The bytes of a round trip: replies in pieces, of every kind, too many or too late."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest
import redis
from helpers.servers.processes import HOST, until
from redis.exceptions import (
    BusyLoadingError,
    InvalidResponse,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
)

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Done, Outcome, Running, TokenOutcome
from flask_idempotence.stores.redis.connection import node as node_module
from flask_idempotence.stores.redis.connection import wire
from flask_idempotence.stores.redis.connection.breaker import OPEN_AFTER
from flask_idempotence.stores.redis.connection.handshake import _DeadlinedSocket
from flask_idempotence.stores.redis.connection.node import Node
from flask_idempotence.stores.redis.connection.wire import Connection, HiredisConnection, deadline

has_hiredis = hasattr(wire.hiredis, "PushNotification")

KINDS = [
    Connection,
    pytest.param(
        HiredisConnection,
        marks=pytest.mark.skipif(not has_hiredis, reason="hiredis is not installed"),
    ),
]
OWNER = b"o" * 16
parse_error = redis.connection.Connection(protocol=2)._parser.parse_error


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch):
    """A class of connections, which stores use, too."""
    monkeypatch.setattr(
        "flask_idempotence.stores.redis.connection.handshake.connection_class",
        lambda: request.param,
    )
    return request.param


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def connection(kind, pair):
    deadline.begin(5)
    return kind(pair[0], pair[0].close, parse_error)


REPLIES = [
    (b":0\r\n", 0),
    (b":-12345678901234567\r\n", -12345678901234567),
    (b"+OK\r\n", b"OK"),
    (b"+\r\n", b""),
    (b"$0\r\n\r\n", b""),
    (b"$7\r\n\r\n:1\r\n$\r\n", b"\r\n:1\r\n$"),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"*3\r\n:2\r\n*2\r\n$-1\r\n+a\r\n$2\r\n\xff\x00\r\n", [2, [None, b"a"], b"\xff\x00"]),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b"#f\r\n", False),
    (b",-1.5\r\n", -1.5),
    (b",inf\r\n", float("inf")),
    (b"=6\r\ntxt:ab\r\n", b"ab"),
    (b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n", {b"a": 1, b"b": [2]}),
    (b">2\r\n+invalidate\r\n*1\r\n+k\r\n:7\r\n", 7),
    (b">1\r\n+one\r\n>1\r\n+two\r\n$1\r\nx\r\n", b"x"),
]


@pytest.mark.parametrize(("sent", "reply"), REPLIES, ids=[str(sent) for sent, _ in REPLIES])
def test_a_reply_is_the_same_wherever_it_is_cut(connection, pair, sent, reply):
    for cut in range(len(sent) + 1):
        theirs = threading.Timer(0.0005, pair[1].sendall, [sent[cut:] + b":42\r\n"])
        pair[1].sendall(sent[:cut])
        theirs.start()
        assert (connection.receive(), connection.receive()) == (reply, 42)
        theirs.join()
        assert connection.is_clean


@pytest.mark.parametrize("kind", [Connection], indirect=True)
@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (b"(1234567890123456789012\r\n", 1234567890123456789012),
        (b"~2\r\n:1\r\n:2\r\n", [1, 2]),
    ],
)
def test_kinds_that_hiredis_returns_in_its_own_way(connection, pair, sent, reply):
    pair[1].sendall(sent)
    assert connection.receive() == reply


@pytest.mark.parametrize("kind", [Connection], indirect=True)
def test_a_long_error(connection, pair):
    pair[1].sendall(b"!21\r\nREADONLY You can't, x\r\n")
    assert isinstance(connection.receive(), ReadOnlyError)


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"-NOSCRIPT No matching script.\r\n", NoScriptError),
        (b"-READONLY You can't write.\r\n", ReadOnlyError),
        (b"-ERR syntax error\r\n", ResponseError),
        (b"-\xff\r\n", ResponseError),
        (b"-MOVED 7 127.0.0.1:7001\r\n", MovedError),
    ],
)
def test_an_error_is_the_one_that_redis_py_makes_of_it(connection, pair, sent, error):
    pair[1].sendall(sent + b"*2\r\n:1\r\n" + sent)
    reply = connection.receive()
    as_told = parse_error(sent[1:-2].decode("utf-8", "replace"))
    assert (type(reply), str(reply)) == (type(as_told), str(as_told))
    assert isinstance(reply, error if type(as_told) is not ResponseError else ResponseError)
    assert isinstance(connection.receive()[1], ResponseError)


def test_what_refuses_all_commands_is_raised(connection, pair):
    pair[1].sendall(b"-LOADING Redis is loading the dataset in memory\r\n")
    with pytest.raises(BusyLoadingError):
        connection.receive()


@pytest.mark.parametrize("sent", [b"HTTP/1.1 400 Bad Request\r\n", b"\x16\x03\x01\r\n"])
def test_what_is_no_reply_is_an_error(connection, pair, sent):
    pair[1].sendall(sent)
    with pytest.raises(InvalidResponse):
        connection.receive()


def test_an_end_in_the_middle_of_a_reply_is_an_error(connection, pair):
    pair[1].sendall(b"$5\r\nab")
    pair[1].close()
    with pytest.raises(redis.ConnectionError):
        connection.receive()


def test_what_came_behind_the_handshake_is_neither_lost_nor_read_twice(kind, pair):
    """redis-py reads a line at a time, so that the rest is still the socket's."""
    deadline.begin(5)
    pair[1].sendall(b"+OK\r\n$4\r\na\r\nb\r\n>1\r\n+pushed\r\n:7\r\n:8")
    handshake = _DeadlinedSocket(pair[0])
    assert handshake.recv(65536) == b"+OK\r\n"
    buffer = bytearray(65536)
    assert handshake.recv_into(buffer) == 4
    assert (buffer[:4], handshake.recv(2), handshake.recv(9)) == (b"$4\r\n", b"a\r", b"\n")
    assert handshake.recv(65536) == b"b\r\n"
    connection = kind(pair[0], pair[0].close, parse_error, handshake.unread)
    assert connection.receive() == 7
    assert not connection.is_clean
    pair[1].sendall(b"\r\n")
    assert connection.receive() == 8


class Server:
    """A server that answers each packet as it is told, over real connections."""

    def __init__(self):
        self._listener = socket.create_server((HOST, 0))
        self.url = f"redis://{HOST}:{self._listener.getsockname()[1]}/1?protocol=2"
        self.packets = []
        self.connections = []
        self.behind_handshake = b""
        self.handshake_takes = 0.0
        self.answer = lambda connection, packet: connection.sendall(b"+PONG\r\n")
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError):
            while packet := connection.recv(65536):
                if b"SELECT" in packet:
                    time.sleep(self.handshake_takes)
                    connection.sendall(b"+OK\r\n" + self.behind_handshake)
                else:
                    self.packets.append(packet)
                    self.answer(connection, packet)

    def close(self):
        for each in (self._listener, *self.connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def server(kind):
    made = Server()
    yield made
    made.close()


def test_a_push_that_begins_in_the_packet_of_the_handshake_is_skipped(server):
    server.behind_handshake = b">2\r\n+invalidate\r\n$4\r\na"
    server.answer = lambda connection, packet: connection.sendall(b"\r\nb\r\n:1\r\n")
    assert open_store(server.url, {}).release("k", OWNER) is Outcome.OK
    assert len(server.connections) == 1


def test_a_connection_with_more_replies_than_were_asked_for_is_not_used_again(server):
    store = open_store(server.url, {"wait_replicas": 0})
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n:0\r\n")
    assert store.release("a", OWNER) is Outcome.OK
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n")
    assert store.release("b", OWNER) is Outcome.OK  # the second reply was not read as this one's
    assert len(server.connections) == 2


def test_a_reply_to_wait_that_comes_too_late_is_not_the_next_commands(server):
    """The connection is kept, but not used before that reply has come."""
    confirmed = threading.Event()

    def late(connection, packet):
        connection.sendall(b":0\r\n")  # nothing was written: there is not much to wait for
        confirmed.wait(5)
        connection.sendall(b":7\r\n")

    server.answer = late
    store = open_store(server.url, {"wait_replicas": 1})
    assert store.complete("a", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.STALE
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n:1\r\n")
    assert store.complete("b", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.OK
    assert len(server.connections) == 2
    node = store._deployment._node
    confirmed.set()
    assert until(node._waiting[0].has_input, 5)
    deadline.begin(5)
    taken = [node.take() for _ in range(2)]
    assert len(server.connections) == 2
    for connection, home in taken:
        node.put_back(connection, home)
    assert store.complete("c", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.OK
    assert len(server.connections) == 2
    store._deployment.close()


def test_a_connection_whose_reply_to_wait_is_not_alone_is_not_used_again(server):
    def late(connection, packet):
        connection.sendall(b":0\r\n")
        time.sleep(0.1)
        connection.sendall(b":7\r\n:8\r\n")

    server.answer = late
    store = open_store(server.url, {"wait_replicas": 1})
    assert store.complete("a", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.STALE
    assert until(store._deployment._node._waiting[0].has_input, 5)
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n:1\r\n")
    assert store.complete("b", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.OK
    assert len(server.connections) == 2
    assert store._deployment._node._waiting == []
    store._deployment.close()


def test_a_token_is_not_sent_to_a_server_that_was_demoted_while_replicas_were_waited_for(server):
    """Redis ends the wait of each client with an error, and closes its connection."""

    def demoted(connection, packet):
        connection.sendall(b":0\r\n")
        time.sleep(0.1)
        connection.sendall(b"-UNBLOCKED force unblock from blocking operation\r\n")
        connection.shutdown(socket.SHUT_RDWR)

    server.answer = demoted
    store = open_store(server.url, {"wait_replicas": 1})
    assert store.complete("a", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.STALE
    assert until(store._deployment._node._waiting[0].has_input, 5)
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n:1\r\n")
    assert store.take_token("t", b"") is TokenOutcome.TAKEN
    assert len(server.connections) == 2
    store._deployment.close()


def test_a_connection_that_was_closed_behind_its_reply_to_wait_is_not_used_again(server):
    def late(connection, packet):
        connection.sendall(b":0\r\n")
        time.sleep(0.1)
        connection.sendall(b":7\r\n")
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    closed, server.answer = threading.Event(), late
    store = open_store(server.url, {"wait_replicas": 1})
    assert store.complete("a", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.STALE
    assert closed.wait(5)
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n:1\r\n")
    assert store.take_token("t", b"") is TokenOutcome.TAKEN
    assert len(server.connections) == 2
    store._deployment.close()


def test_while_replicas_fail_the_server_is_to_wait_briefly_too(server):
    """Else each operation leaves a connection behind, for as long as the server waits."""
    ends = []

    def too_few(connection, packet):
        ends.append(int(packet.split(b"\r\n")[-2]))
        connection.sendall(b":1\r\n:0\r\n")

    server.answer = too_few
    store = open_store(server.url, {"wait_replicas": 1})
    for _ in range(OPEN_AFTER + 2):
        with pytest.raises(StoreError, match="reached 0 replicas"):
            store.complete("a", OWNER, NO_FINGERPRINT, b"", 60)
    assert min(ends[:OPEN_AFTER]) > 500
    assert max(ends[OPEN_AFTER:]) <= 20
    # The answer behind a command that wrote nothing is about the replicas, too.
    server.answer = lambda connection, packet: connection.sendall(b":0\r\n:1\r\n")
    assert store.complete("a", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.STALE
    server.answer = too_few
    with pytest.raises(StoreError, match="reached 0 replicas"):
        store.complete("a", OWNER, NO_FINGERPRINT, b"", 60)
    assert ends[-1] > 500


def test_connections_that_are_kept_for_a_reply_to_wait_have_a_limit(server, monkeypatch):
    monkeypatch.setattr(node_module, "_MOST_WAITING", 3)
    server.answer = lambda connection, packet: connection.sendall(b":0\r\n")
    store = open_store(server.url, {"wait_replicas": 1})
    for _ in range(6):
        assert store.complete("a", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.STALE
    assert len(store._deployment._node._waiting) == 3
    store._deployment.close()


@pytest.mark.parametrize("reply", [b"+" + b"x" * 300, b"$300\r\n" + b"x" * 300])
def test_a_server_that_sends_byte_by_byte_has_one_deadline(server, reply):
    def dribble(connection, packet):
        for byte in reply:
            connection.sendall(bytes([byte]))
            time.sleep(0.01)

    server.answer = dribble
    store, started = open_store(server.url, {"deadline": 0.5}), time.monotonic()
    with pytest.raises(StoreError, match="Timeout"):
        store.ping()
    assert 0.45 < time.monotonic() - started < 0.7


def test_a_server_that_reads_slowly_has_one_deadline(server, kind):
    """Sending takes a part of the time; waiting has the rest."""
    received = threading.Event()

    def listen(connection, packet):
        if not received.is_set():
            received.set()
            time.sleep(0.4)  # the rest of 16 MiB waits in front of the server

    server.answer = listen
    store, started = open_store(server.url, {"deadline": 0.6}), time.monotonic()
    with pytest.raises(StoreError, match="Timeout"):
        store.put_token("k", bytes(16 << 20), 60)
    assert time.monotonic() - started < 0.8


def test_a_shorter_limit_holds_for_a_reply_that_is_waited_for_already(connection):
    deadline.begin(5)
    connection.send(b"*1\r\n$4\r\nPING\r\n")
    started = time.monotonic()
    with deadline.limit(0.1), pytest.raises(redis.TimeoutError):
        connection.receive()
    assert time.monotonic() - started < 0.3


def test_an_idle_connection_that_the_server_closed_costs_a_repeatable_command_an_attempt(server):
    store = open_store(server.url, {})
    store.ping()
    server.connections[0].shutdown(socket.SHUT_RDWR)
    store.ping()
    assert len(server.connections) == 2
    assert len(server.packets) == 2


@pytest.mark.parametrize("how", ["put_token", "take_token"])
def test_an_idle_connection_that_the_server_closed_costs_a_token_nothing(server, how):
    server.answer = lambda connection, packet: connection.sendall(
        b"+OK\r\n" if b"SET" in packet else b":1\r\n"
    )
    store = open_store(server.url, {})
    calls = {"put_token": (b"", 60), "take_token": (b"",)}[how]
    getattr(store, how)("t", *calls)
    server.connections[0].shutdown(socket.SHUT_RDWR)
    getattr(store, how)("t", *calls)
    assert len(server.connections) == 2


def test_a_token_is_not_sent_where_something_stands_to_be_read(server):
    store = open_store(server.url, {})
    server.answer = lambda connection, packet: connection.sendall(b"+OK\r\n")
    store.put_token("t", b"", 60)
    server.connections[0].sendall(b"-ERR stale\r\n")
    time.sleep(0.05)
    store.put_token("t", b"", 60)
    assert len(server.connections) == 2


def test_a_connection_that_takes_longer_than_the_deadline_serves_a_later_operation(server):
    server.handshake_takes = 0.4
    store = open_store(server.url, {"deadline": 0.2})
    with pytest.raises(StoreError, match="Timeout"):
        store.ping()
    assert until(lambda: store._deployment._node._idle, 5)
    for _ in range(10):
        store.ping()
    assert len(server.connections) == 2  # one that was given up, and the late one
    store._deployment.close()


def test_a_late_connection_serves_although_idle_ones_were_dropped_meanwhile(server):
    """As for the first connection that sentinels lead to."""
    server.handshake_takes = 0.5
    store = open_store(server.url, {"deadline": 0.2})
    with pytest.raises(StoreError):
        store.ping()
    node = store._deployment._node
    node.drop_idle()
    assert until(lambda: node._idle, 5)
    store.ping()
    assert len(server.connections) == 2
    store._deployment.close()


def test_a_connection_that_takes_too_long_costs_no_idle_one(server):
    store = open_store(server.url, {"deadline": 0.2})
    node = store._deployment._node
    deadline.begin(5)
    idle, home = node.take()
    server.handshake_takes = 5
    with pytest.raises(StoreError, match="Timeout"):
        store.ping()
    node.put_back(idle, home)
    assert node._idle == [idle]
    store.ping()
    store._deployment.close()


def test_late_connections_are_three_at_most(server):
    server.handshake_takes = 5
    store = open_store(server.url, {"deadline": 0.1})
    for _ in range(8):
        store._deployment._node._breaker.record_success()
        with pytest.raises(StoreError):
            store.ping()
    late = [t for t in threading.enumerate() if t.name == "flask-idempotence-redis"]
    assert len(late) == 3
    server.close()
    assert until(lambda: not any(each.is_alive() for each in late), 5)


def test_the_second_attempt_takes_no_connection_that_the_server_closed(server):
    store = open_store(server.url, {})
    store.ping()
    node = store._deployment._node
    forgotten, drop_idle = [], Node.drop_idle
    node.drop_idle = lambda: forgotten.append(1)  # as if others put theirs back meanwhile
    deadline.begin(5)
    node.put_back(node._connect(), node._idle)
    for each in list(server.connections):
        each.shutdown(socket.SHUT_RDWR)
    store.ping()
    assert forgotten == [1]
    drop_idle(node)


def test_a_large_record_comes_back_whole(kind, redis_url):
    store, record = open_store(redis_url, {}), os.urandom(1 << 20)
    store.claim("k", OWNER, NO_FINGERPRINT, 60, 0)
    assert store.complete("k", OWNER, NO_FINGERPRINT, record, 60) is Outcome.OK
    for protocol in (2, 3):
        again = open_store(f"{redis_url}?protocol={protocol}", {})
        for _ in range(2):
            assert again.claim("k", b"x" * 16, NO_FINGERPRINT, 60, 0) == Done(True, record)


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_store_works_in_either_protocol(kind, redis_url, protocol):
    store = open_store(f"{redis_url}?protocol={protocol}", {})
    store.claim("k", OWNER, NO_FINGERPRINT, 60, 0)
    assert isinstance(store.claim("k", b"x" * 16, NO_FINGERPRINT, 60, 0), Running)
    assert store.peek("k").kind == "claim"
    assert list(store.scan("")) == ["k"]
    [facts] = store.facts()
    assert facts.product in {"Redis", "Valkey"}
    assert facts.version
    assert facts.clock_ahead is not None
    assert facts.log_reaches_disk == "everysec"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_does_not_take_its_parents_replies(kind, redis_url):
    store = open_store(redis_url, {})
    store.claim("k", OWNER, NO_FINGERPRINT, 60, 0)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        rounds = [store.claim("k", b"c" * 16, NO_FINGERPRINT, 60, 0) for _ in range(200)]
        os._exit(0 if all(isinstance(each, Running) for each in rounds) else 1)
    for number in range(200):
        assert store.release(f"{number}", OWNER) is Outcome.OK
    assert os.waitpid(child, 0)[1] == 0
