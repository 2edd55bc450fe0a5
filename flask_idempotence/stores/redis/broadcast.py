"""Messages between processes, by Redis' Pub/Sub: for `flask idempotence watch`."""

from __future__ import annotations

from redis.exceptions import RedisError

from ...errors import StoreError
from ..base import BroadcastingStore, Subscription
from .connection.link import Link, deadline, pack
from .connection.replies import checked
from .inspection import Inspection


class Broadcast(Inspection, BroadcastingStore):
    """The part of the store that publishes and listens.

    A cluster passes a message on to all its nodes, so any of them will do. A publisher's calls get
    half of the time of an operation: then they neither wait for the circuit breaker nor open it,
    and no request suffers from them.
    """

    def count_listeners(self, channel: str) -> int:
        command, counts, problem = pack("PUBSUB", "NUMSUB", channel), [0], None
        with deadline.cap(self._deadline / 2):
            for node in self._begin().primaries():
                try:
                    counts.append(int(checked(self._ask(node, command))[1]))
                except StoreError as error:
                    problem = error
        if problem is not None and not any(counts):
            raise problem
        return sum(counts)

    def publish(self, channel: str, message: bytes) -> int:
        with deadline.cap(self._deadline / 2):
            return int(checked(self._begin().send([pack("PUBLISH", channel, message)])[0]))

    def subscribe(self, channel: str) -> Subscription:
        connection = self._begin().dedicated()
        try:
            checked(connection.exchange(pack("SUBSCRIBE", channel), 1)[0])
        except BaseException as error:
            connection.disconnect()
            if isinstance(error, RedisError):
                raise StoreError(f"{type(error).__name__}: {error}") from error
            raise
        return _Subscription(connection)


class _Subscription(Subscription):
    def __init__(self, connection: Link) -> None:
        self._connection = connection

    def receive(self, seconds: float) -> bytes:
        deadline.begin(seconds)
        try:
            while True:
                reply = self._connection.read_response()
                if isinstance(reply, list) and reply[0] == b"message":
                    message: bytes = reply[2]
                    return message
        except RedisError as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._connection.disconnect()
