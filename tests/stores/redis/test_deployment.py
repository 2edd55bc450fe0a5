"""Batches, a new table of slots, and the time that replicas get, without any server."""

import time
from types import SimpleNamespace

import pytest
from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from flask_idempotence import StoreError
from flask_idempotence.stores import open_store
from flask_idempotence.stores.base import Outcome, Renewal
from flask_idempotence.stores.process import OPEN_AFTER
from flask_idempotence.stores.redis.cluster import Cluster
from flask_idempotence.stores.redis.deployment import Deployment
from flask_idempotence.stores.redis.link import deadline, pack
from flask_idempotence.stores.redis.node import CircuitOpenError, Node, Quorum

KEYS = ["a", "b", "c", "d", "e"]
GROUPS = [[1, 3], [0], [2, 4]]


class Split(Deployment):
    def __init__(self, error=None):
        super().__init__(lambda: None)
        self._error = error

    def _groups(self, keys):
        if self._error:
            raise self._error
        assert keys == KEYS
        return GROUPS


def gather(outcomes, seconds=30):
    left, shares = iter(outcomes), []

    def send(calls):
        shares.append(([key for key, _ in calls], deadline.left()))
        outcome = next(left)
        if isinstance(outcome, Exception):
            raise outcome
        return [key.upper() for key, _ in calls]

    deadline.begin(seconds)
    return Split().gather([(key, 1) for key in KEYS], send), shares


def test_replies_come_in_the_order_of_the_calls_and_each_server_gets_its_share():
    replies, shares = gather([None, None, None])
    assert replies == ["A", "B", "C", "D", "E"]
    assert [keys for keys, _ in shares] == [["b", "d"], ["a"], ["c", "e"]]
    assert [round(left) for _, left in shares] == [10, 15, 30]


def test_a_server_that_fails_leaves_the_replies_of_the_others():
    first, second = StoreError("first"), StoreError("second")
    replies, shares = gather([first, None, second])
    assert replies == ["A", first, second, first, second]
    assert len(shares) == 3


def test_no_server_is_asked_once_the_deadline_has_passed():
    replies, shares = gather([], seconds=0)
    assert ({*map(str, replies)}, shares) == ({"TimeoutError: The deadline has passed."}, [])


def test_without_calls_no_server_is_looked_for():
    assert Split(error=OSError("no table")).gather([], pytest.fail) == []
    with pytest.raises(StoreError, match="OSError: no table"):
        Split(error=OSError("no table")).gather([("a",)], pytest.fail)


def renew(replies):
    store = open_store("redis://127.0.0.1:1", {})
    store._deployment.gather = lambda calls, send: replies
    with pytest.raises(StoreError) as caught:
        store.renew([Renewal(key, bytes(16), 1) for key in KEYS[: len(replies)]])
    return caught.value


def test_renewals_that_a_server_has_not_answered_leave_the_answers_of_the_others():
    first, refused = StoreError("first"), ResponseError("READONLY a replica")
    error = renew([1, first, refused, ResponseError("WRONGTYPE a hash"), 0])
    assert error is first
    assert error.answers == [Outcome.OK, None, None, Outcome.STALE, Outcome.STALE]
    error = renew([1, refused])
    assert (str(error), error.answers) == ("ReadOnlyError: READONLY a replica", [Outcome.OK, None])
    assert renew([StoreError("one"), StoreError("two")]).answers is None


@pytest.mark.parametrize(
    ("left", "patience"), [(2.0, 1850), (1.0, 850), (0.3, 150), (0.2, 100), (0.001, 1)]
)
def test_replicas_are_waited_for_until_shortly_before_the_deadline(monkeypatch, left, patience):
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    link = Replies(0, 2)
    deadline.begin(left)
    assert Node(lambda: link).exchange([b"a script"], Quorum(2, written=(0,))) == [0]
    assert link.sent == [b"a script", pack("WAIT", 2, patience)]


FAILURES = [
    *(kind("an error") for kind in (OSError, RedisConnectionError, RedisTimeoutError, RedisError)),
    *(InvalidResponse("no reply"), AuthenticationError("WRONGPASS"), ResponseError("a refusal")),
]


@pytest.mark.parametrize("connects", [True, False])
@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_a_failure_that_outlasts_the_deadline_opens_the_circuit_whatever_it_is(
    monkeypatch, error, connects
):
    """But for operations with less time than usual, such as those that only observe."""

    def fail(*_):
        now[0] = deadline.at
        raise error

    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    link = Replies()
    link.exchange, link.disconnect = fail, lambda: None
    node = Node(lambda: link if connects else fail())

    def attempt():
        token = deadline.begin(2.0)
        try:
            node.exchange([b"a command"])
        finally:
            deadline.end(token)

    for _ in range(2 * OPEN_AFTER):
        with deadline.capped(1.0), pytest.raises(type(error), match=str(error)):
            attempt()
    for _ in range(OPEN_AFTER):
        with pytest.raises(type(error), match=str(error)):
            attempt()
    with pytest.raises(CircuitOpenError):
        attempt()


class Replies:
    over = SimpleNamespace(unread=b"", has_input=lambda: False)

    def __init__(self, *replies):
        self._replies, self.sent = iter(replies), []

    def exchange(self, data, count):
        self.sent.append(data)
        return [next(self._replies) for _ in range(count)]


class Member:
    """A connection to a node of a cluster, which knows the next table of slots and its own name.

    The node `gone` fails, or refuses, as a node that is no primary any more.
    """

    over = Replies.over

    def __init__(self, host, owners, failure, called):
        self._host, self._owners, self._failure, self._called = host, owners, failure, called

    def exchange(self, data, count):
        if b"SLOTS" in data:
            return [[[0, 16383, [next(self._owners), 1]]]]
        self._called.append(self._host)
        if self._host != "gone":
            return [self._host]
        if isinstance(self._failure, ResponseError):
            return [self._failure]
        raise self._failure

    def disconnect(self):
        pass


@pytest.mark.parametrize(
    "failure",
    [
        RedisConnectionError("refused"),
        RedisTimeoutError("no reply"),
        ResponseError("READONLY a replica"),
        ResponseError("CLUSTERDOWN no quorum"),
        TryAgainError("later"),
        ResponseError("MOVED 7 new:1"),
    ],
    ids=str,
)
def test_a_node_that_is_no_primary_any_more_is_replaced_from_a_new_table(failure):
    owners, called = iter([b"gone", b"new"]), []
    cluster = Cluster([("seed", 1)], lambda host, port: Member(host, owners, failure, called))
    for key in ("a key", "a key of another slot"):
        deadline.begin(5)
        assert cluster.send([pack("GET", key)], key=key) == ["new"]
    assert called == ["gone", "new", "new"]
