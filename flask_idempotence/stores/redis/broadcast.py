"""Messages between processes, by Redis' Pub/Sub: for `flask idempotence watch`."""

from __future__ import annotations

from redis.exceptions import RedisError

from ...errors import StoreError
from ..broadcast import BroadcastingStore, Subscription
from .connection.replies import checked
from .connection.wire import Connection, deadline, pack
from .inspection import Inspection

_MESSAGE = b"message"


class Broadcast(Inspection, BroadcastingStore):
    """The part of the store that publishes and listens.

    A cluster passes a message on to all its nodes, so any of them will do. A publisher's calls get
    half of the time of an operation: then they neither wait for the circuit breaker nor open it,
    and no request suffers from them.
    """

    def count_listeners(self, channel: str) -> int:
        """Return how many subscriptions a channel has, at the servers that answer."""
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
        """Send a message to all subscriptions of a channel; return how many one server has."""
        with deadline.cap(self._deadline / 2):
            return int(checked(self._begin().send([pack("PUBLISH", channel, message)])[0]))

    def subscribe(self, channel: str) -> Subscription:
        """Subscribe to a channel, on a connection of its own."""
        connection = self._begin().dedicated()
        try:
            # In the newer protocol messages come as pushes, which the connection skips. A server
            # that does not allow HELLO is spoken to in the older one.
            connection.send(pack("HELLO", 2) + pack("SUBSCRIBE", channel))
            connection.receive()
            checked(connection.receive())
        except BaseException as error:
            connection.disconnect()
            if isinstance(error, RedisError | OSError):
                raise _lost(error) from error
            raise
        return _Subscription(connection)


class _Subscription(Subscription):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def receive(self, seconds: float) -> bytes:
        deadline.begin(seconds)
        try:
            while True:
                reply = checked(self._connection.receive())
                if isinstance(reply, list) and reply[0] == _MESSAGE:
                    message: bytes = reply[2]
                    return message
        except (RedisError, OSError) as error:
            raise _lost(error) from error

    def close(self) -> None:
        self._connection.disconnect()


def _lost(error: Exception) -> StoreError:
    return StoreError(f"{type(error).__name__}: {error}")
