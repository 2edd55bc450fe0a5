"""The bytes of a round trip: replies in pieces, too many or too late."""

import os
import signal
import socket
import threading
import time

import pytest
import redis
from helpers.servers.processes import HOST
from helpers.store_assertions import timed_failure
from redis.exceptions import BusyLoadingError, InvalidResponse

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import NO_FINGERPRINT, Done, Outcome, Running, TokenOutcome
from flask_idempotence.stores.redis.link import ConnectionFactory, deadline

OWNER = b"o" * 16


@pytest.fixture
def pair():
    with socket.create_server((HOST, 0)) as listener:
        pool = redis.ConnectionPool(host=HOST, port=listener.getsockname()[1])
        deadline.begin(5)
        link = ConnectionFactory(pool).connect()
        theirs, _ = listener.accept()
        with theirs:
            theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield link, theirs
        link.disconnect()


def receive(link):
    return link.exchange(b"", 1)[0]


REPLIES = [
    (b":0\r\n", 0),
    (b":-12345678901234567\r\n", -12345678901234567),
    (b"+OK\r\n", b"OK"),
    (b"+\r\n", b""),
    (b"$0\r\n\r\n", b""),
    (b"$7\r\n\r\n:1\r\n$\r\n", b"\r\n:1\r\n$"),
    (b"$-1\r\n", None),
    (b"*0\r\n", []),
    (b"*3\r\n:2\r\n*2\r\n$1\r\n\n\r\n+a\r\n$2\r\n\xff\x00\r\n", [2, [b"\n", b"a"], b"\xff\x00"]),
]


@pytest.mark.parametrize(("sent", "reply"), REPLIES, ids=[str(sent) for sent, _ in REPLIES])
def test_a_reply_is_the_same_wherever_it_is_cut(pair, sent, reply):
    link, theirs = pair
    for cut in range(len(sent) + 1):
        rest = threading.Timer(0.0005, theirs.sendall, [sent[cut:] + b":42\r\n"])
        theirs.sendall(sent[:cut])
        rest.start()
        assert (receive(link), receive(link)) == (reply, 42)
        rest.join()
        assert not link.over.unread


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", BusyLoadingError),
        (b"HTTP/1.1 400 Bad Request\r\n", InvalidResponse),
        (b"\x16\x03\x01\r\n", InvalidResponse),
        *((sent, redis.ConnectionError) for sent in (b"", b":1", b"$5\r\nab", b"*2\r\n:1\r\n")),
    ],
)
def test_what_is_no_whole_reply_is_an_error(pair, sent, error):
    link, theirs = pair
    theirs.sendall(sent)
    theirs.close()
    with pytest.raises(error):
        receive(link)


def test_a_shorter_limit_holds_for_a_reply_that_is_waited_for_already(pair):
    link, _ = pair
    link.exchange(b"*1\r\n$4\r\nPING\r\n", 0)
    started = time.monotonic()
    with deadline.limit(0.1), pytest.raises(redis.TimeoutError):
        receive(link)
    assert time.monotonic() - started < 1


def test_a_connection_with_more_replies_than_were_asked_for_is_not_used_again(server):
    store = open_store(server.url, {"wait_replicas": 0})
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n:0\r\n")
    assert store.release("a", OWNER) is Outcome.OK
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n")
    assert store.release("b", OWNER) is Outcome.OK  # the second reply was not read as this one's
    assert len(server.connections) == 2


def test_a_reply_to_wait_that_comes_too_late_is_not_the_next_commands(server):
    def never(connection, packet):
        connection.sendall(b"" if b"WAIT" in packet else b":1\r\n")

    server.answer = never
    store = open_store(server.url, {"wait_replicas": 1, "deadline": 0.3})
    with pytest.raises(StoreError, match="Timeout") as caught:
        store.complete("a", OWNER, NO_FINGERPRINT, b"", 60)
    assert caught.value.sent
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n")
    assert store.complete("b", OWNER, NO_FINGERPRINT, b"", 60) is Outcome.OK
    assert len(server.connections) == 2


def test_a_token_is_spent_once_although_the_server_is_demoted_while_replicas_are_waited_for(
    server,
):
    """Redis ends the wait of each client with an error, and closes its connection."""

    def demoted(connection, packet):
        if b"WAIT" not in packet:
            connection.sendall(b":1\r\n")
        else:
            connection.sendall(b"-UNBLOCKED force unblock from blocking operation\r\n")
            connection.shutdown(socket.SHUT_RDWR)

    server.answer = demoted
    store = open_store(server.url, {"wait_replicas": 1})
    with pytest.raises(StoreError, match="UNBLOCKED") as caught:
        store.take_token("t", b"")
    assert caught.value.sent
    server.answer = lambda connection, packet: connection.sendall(b":1\r\n")
    assert store.take_token("t", b"") is TokenOutcome.TAKEN
    assert len(server.connections) == 2
    assert [packet.count(b"EVALSHA") for packet in server.packets] == [1, 0, 1, 0]


@pytest.mark.parametrize("reply", [b"+" + b"x" * 300, b"$300\r\n" + b"x" * 300])
def test_a_server_that_sends_byte_by_byte_has_one_deadline(server, reply):
    """Each byte comes in time, the whole reply does not."""

    def dribble(connection, packet):
        for byte in reply:
            connection.sendall(bytes([byte]))
            time.sleep(0.01)

    server.answer = dribble
    error, took = timed_failure(open_store(server.url, {"deadline": 0.5}).ping)
    assert "Timeout" in str(error)
    assert took > 0.45


def test_a_server_that_reads_slowly_has_one_deadline(server):
    """Sending takes a part of the time; waiting has the rest, which a reply in time exceeds."""
    size, received = 16 << 20, []

    def listen(connection, packet):
        if not received:
            time.sleep(0.6)  # the rest of 16 MiB waits in front of the server
        received.append(len(packet))
        if sum(received) > size:
            time.sleep(0.6)
            connection.sendall(b"+OK\r\n")

    server.answer = listen
    store = open_store(server.url, {"deadline": 1})
    error, _ = timed_failure(lambda: store.put_token("k", bytes(size), 60))
    assert "Timeout" in str(error)


@pytest.mark.timed
@pytest.mark.parametrize("first", ["hangs up", "does not know the script"])
def test_a_second_attempt_gets_what_the_first_has_left_of_the_deadline(server, first):
    """Each attempt is answered within a deadline, both together are not."""

    def answer(connection, packet):
        time.sleep(0.6)
        if len(server.packets) > 1:
            connection.sendall(b":1\r\n")
        elif first == "hangs up":
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(b"-NOSCRIPT No matching script.\r\n")

    server.answer = answer
    store = open_store(server.url, {"deadline": 1})
    error, _ = timed_failure(lambda: store.release("k", OWNER))
    assert "Timeout" in str(error)


def test_a_token_is_not_sent_where_something_stands_to_be_read(server):
    store = open_store(server.url, {})
    server.answer = lambda connection, packet: connection.sendall(b"+OK\r\n")
    store.put_token("t", b"", 60)
    server.connections[0].sendall(b"-ERR stale\r\n")
    time.sleep(0.05)
    store.put_token("t", b"", 60)
    assert len(server.connections) == 2


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


def test_a_large_record_comes_back_whole(redis_url):
    store, record = open_store(redis_url, {}), os.urandom(1 << 20)
    store.claim("k", OWNER, NO_FINGERPRINT, 60, 0)
    assert store.complete("k", OWNER, NO_FINGERPRINT, record, 60) is Outcome.OK
    for _ in range(2):
        assert store.claim("k", b"x" * 16, NO_FINGERPRINT, 60, 0) == Done(True, record)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_does_not_take_its_parents_replies(redis_url):
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
