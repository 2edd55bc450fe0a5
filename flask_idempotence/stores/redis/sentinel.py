"""The primary that sentinels name."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .deadlines import deadline
from .deployment import Deployment
from .link import MALFORMED, ConnectionFactory, Link, Reply, error_code, pack
from .node import Address

_SHARES = 3  # of the time that is left: a sentinel gets one, the next ones and the primary two

# Seconds after which a sentinel's answer is asked for again: a primary that was frozen and wakes
# up may not know yet that another one has taken its place.
_MOST_AGE = 1.0


class _Asked(Redis):
    """A sentinel, for redis-py's `Sentinel`: a question has a connection and a deadline."""

    def __init__(self, client: Redis) -> None:
        super().__init__(protocol=2)  # how its replies are parsed
        self._connect = ConnectionFactory(client.connection_pool).connect
        self._address = "{host}:{port}".format_map(client.connection_pool.connection_kwargs)

    def __repr__(self) -> str:  # for the error that no sentinel answers
        return self._address

    def execute_command(self, *words: Reply, **options: Reply) -> Reply:
        with deadline.limit(deadline.left() / _SHARES):
            connection: Any = self._connect()
            try:
                connection.send_command(*words)
                return self.parse_response(connection, words[0], **options)  # type: ignore[no-untyped-call]
            except MALFORMED as error:  # the next sentinel is asked
                raise RedisConnectionError(f"No valid answer: {error}") from error
            finally:
                connection.disconnect()


class SentinelService(Deployment):
    """The primary of a service. Sentinels name it for each new connection."""

    def __init__(self, manager: Any, service: str, connect: Callable[..., Link]) -> None:
        super().__init__(self._connect)
        self._manager = copy.copy(manager)  # with its way to choose, and an address that it forces
        self._manager.sentinels = [_Asked(each) for each in manager.sentinels]
        self._service = service
        self._connect_to = connect
        self._primary: Address | None = None

    def _connect(self) -> Link:
        # It reorders its list while it goes through it: not one that other threads go through.
        manager = copy.copy(self._manager)
        sentinels = manager.sentinels = list(manager.sentinels)
        refused: dict[Address, Exception] = {}
        for _ in range(len(sentinels)):
            try:
                address = manager.discover_master(self._service)
            except RedisConnectionError as error:
                # Its message alone tells, and the circuit breaker has to count what costs time.
                if "TimeoutError" not in str(error):
                    raise
                raise RedisTimeoutError(str(error)) from error
            if address not in refused:
                try:
                    connection = self._connect_while_named(address, manager)
                except (RedisError, OSError) as error:
                    refused[address] = error
                else:
                    self._manager.sentinels = sentinels  # the one that answered is the first
                    if address != self._primary:
                        self._primary = address
                        self._node.drop_idle()
                    return connection
            # Sentinels learn of a failover one after the other.
            sentinels.append(sentinels.pop(0))
        raise refused[address]

    def _connect_while_named(self, address: Address, manager: Any) -> Link:
        started = time.monotonic()
        with deadline.limit(deadline.left() / 2):
            connection = self._connect_to(host=address[0], port=address[1])
        try:
            self._check_role(connection)
            is_old = time.monotonic() - started > _MOST_AGE
            if is_old and manager.discover_master(self._service) != address:
                raise RedisConnectionError("There has been a failover while connecting.")
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _check_role(self, connection: Link) -> None:
        # https://redis.io/docs/latest/develop/reference/sentinel-clients/
        [role] = connection.exchange(pack("ROLE"), 1)
        if isinstance(role, ResponseError):
            if error_code(role) != "NOPERM":  # without permission there is no check
                raise role
        elif role[:1] != [b"master"]:
            raise RedisConnectionError("The server that a sentinel named is no primary.")
