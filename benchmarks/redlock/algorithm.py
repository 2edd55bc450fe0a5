"""RedLock over independent servers, as Redis' documentation describes it; only a yardstick.

https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from redis import Connection
from redis.exceptions import RedisError

DRIFT = 0.01
"""The share of the time to live that clocks may drift by."""

MARGIN = 0.002
"""Seconds that the drift is rounded up by."""

RELEASE = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0"


@dataclass(frozen=True)
class Held:
    """A claim that a majority of the servers has granted.

    Attributes:
        until: the end of its validity, by `time.monotonic`.
    """

    key: str
    owner: bytes
    until: float

    @property
    def is_valid(self) -> bool:
        return time.monotonic() < self.until


class RedLock:
    """A client of RedLock; it sends to all servers at once, as its author recommends.

    Args:
        addresses: hosts and ports of the servers.
        timeout: seconds that a server has for its answer.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], *, timeout: float = 0.2):
        options = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        self._links = [Connection(host=host, port=port, **options) for host, port in addresses]

    def claim(self, key: str, ttl: float) -> Held | None:
        """Claim a key for so many seconds; return None where no majority grants it in time."""
        began, owner = time.monotonic(), os.urandom(16)
        votes = self._ask("SET", key, owner, "NX", "PX", round(ttl * 1000))
        held = Held(key, owner, began + ttl * (1 - DRIFT) - MARGIN)
        if votes.count(b"OK") > len(self._links) // 2 and held.is_valid:
            return held
        self.release(held)
        return None

    def release(self, held: Held) -> None:
        """Delete the claim wherever it is still the owner's."""
        self._ask("EVAL", RELEASE, 1, held.key, held.owner)

    def _ask(self, *command) -> list:
        return [_reply(link) for link in [_sent(link, command) for link in self._links]]

    def close(self) -> None:
        for link in self._links:
            link.disconnect()


def _sent(link: Connection, command: tuple) -> Connection | None:
    try:
        link.send_command(*command)
    except (RedisError, OSError):
        link.disconnect()
        return None
    return link


def _reply(link: Connection | None):
    if link is None:
        return None
    try:
        return link.read_response()
    except (RedisError, OSError):
        link.disconnect()
        return None
