"""The primary that sentinels name.

The discovery of redis-py's `Sentinel`, as that of `NodesManager` for clusters, does not fit into
one deadline: a first node that does not answer uses up all of it, while others wait for a lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from .deployment import Deployment
from .node import Address, Node
from .replies import error_code
from .wire import Connection, deadline, pack

_MOST_AGE = 1.0
"""Seconds after which a sentinel's answer is asked for again: a primary that was frozen and wakes
up may not know yet that another one has taken its place."""


class SentinelService(Deployment):
    """The primary of a service. Sentinels name it for each new connection.

    `connect` takes a host and port; `remap` translates an address that a sentinel returns.
    """

    def __init__(
        self,
        service: str,
        sentinels: Sequence[Node],
        connect: Callable[..., Connection],
        remap: Callable[[Address], Address],
    ) -> None:
        super().__init__(self._connect)
        self._service = service
        self._sentinels = list(sentinels)
        self._connect_to = connect
        self._remap = remap
        self._primary: Address | None = None

    def _nodes(self) -> Iterable[Node]:
        return (self._node, *self._sentinels)

    def _connect(self) -> Connection:
        problem: Exception = RedisConnectionError(f"No sentinel knows {self._service!r}.")
        refused = set()
        sentinels = self._sentinels
        for index, sentinel in enumerate(sentinels):
            try:
                # One share of the deadline is left for the connection to the primary.
                with deadline.limit(deadline.left() / (len(sentinels) - index + 1)):
                    address = self._address_from(sentinel)
                if address is None or address in refused:
                    continue
                refused.add(address)
                connection = self._connect_while_named(address, sentinel)
            except (RedisError, OSError) as error:
                problem = error
                continue
            self._sentinels = [sentinel, *(s for s in sentinels if s is not sentinel)]
            if address != self._primary:
                self._primary = address
                self._node.drop_idle()
            return connection
        raise problem

    def _address_from(self, sentinel: Node) -> Address | None:
        reply = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        return None if reply is None else self._remap((reply[0].decode(), int(reply[1])))

    def _connect_while_named(self, address: Address, sentinel: Node) -> Connection:
        started = time.monotonic()
        with deadline.limit(deadline.left() / 2):
            connection = self._connect_to_primary(address)
        try:
            if time.monotonic() - started > _MOST_AGE and self._address_from(sentinel) != address:
                raise RedisConnectionError("There has been a failover while connecting.")
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _connect_to_primary(self, address: Address) -> Connection:
        # Sentinels learn of a failover one after the other: this may be the old primary.
        # https://redis.io/docs/latest/develop/reference/sentinel-clients/
        connection = self._connect_to(host=address[0], port=address[1])
        try:
            connection.send(pack("ROLE"))
            role = connection.receive()
            if isinstance(role, ResponseError):
                if error_code(role) != "NOPERM":  # without permission there is no check
                    raise role
            elif role[0] != b"master":
                raise RedisConnectionError("The server that a sentinel named is no primary.")
        except BaseException:
            connection.disconnect()
            raise
        return connection
