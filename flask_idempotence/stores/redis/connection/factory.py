"""Connections of our own, with the settings of the application's client."""

from __future__ import annotations

from redis import ConnectionPool
from redis.backoff import NoBackoff
from redis.connection import Connection as PlainConnection
from redis.connection import SSLConnection
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import SentinelManagedConnection

from ....errors import ConfigurationError
from .handshake import Handshake
from .tls import TlsContext
from .wire import Connection

_POOLS_OWN = ("connection_pool", "maint_notifications", "orig_", "event_dispatcher", "himport_")
"""How the settings begin that pools of redis-py add to connections for themselves.

Without them there are no maintenance notifications either, which would relax the time-outs.
"""


class ConnectionFactory:
    """Makes connections like those of a client's pool, but with our deadline and without retries.

    Raises:
        ConfigurationError: no connection can be set up like that.
    """

    def __init__(self, pool: ConnectionPool, **changes: object) -> None:
        base = pool.connection_class
        if issubclass(base, SentinelManagedConnection):  # which asks sentinels in its own way
            base = SSLConnection if issubclass(base, SSLConnection) else PlainConnection
        self._class = type("DeadlinedHandshake", (Handshake, base), {"tls": TlsContext()})
        self._settings = {
            name: value
            for name, value in pool.connection_kwargs.items()
            if not name.startswith(_POOLS_OWN)
        }
        self._settings.update(
            decode_responses=False,
            encoding="utf-8",
            health_check_interval=0,
            retry=Retry(NoBackoff(), 0),
            retry_on_error=[],
            retry_on_timeout=False,
            **changes,
        )
        try:
            self.make()
        except TypeError as error:
            raise ConfigurationError(f"An option of the connection to Redis: {error}") from None
        except (ValueError, RedisError) as error:
            raise ConfigurationError(
                f"The connection to Redis cannot be set up ({type(error).__name__})."
            ) from None

    def make(self, **address: str | int) -> Handshake:
        """Return a connection that is not connected yet; an address replaces the pool's."""
        handshake: Handshake = self._class(**{**self._settings, **address})
        return handshake

    def connect(self, **address: str | int) -> Connection:
        """Return a connection that is ready to be used."""
        return self.make(**address).connection()
