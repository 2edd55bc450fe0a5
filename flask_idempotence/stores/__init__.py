"""Stores, and how a URI becomes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from redis import Redis

from ..errors import ConfigurationError
from .base import Store
from .memory import MemoryStore
from .redis import RedisStore

__all__ = ["MemoryStore", "RedisStore", "Store", "open_store"]

_REDIS_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}

_DEFAULT_MAX_CONNECTIONS = 10_000
"""A request needs a connection at once; what bounds them is the number of threads."""


def open_store(uri: str, options: Mapping[str, Any]) -> Store:
    """Make the store that a URI names, without connecting to it.

    Args:
        uri: `memory://`, or a Redis or Valkey URL.
        options: keyword arguments of the store; for Redis also those of its connections.

    Raises:
        ConfigurationError: an unknown scheme or option. The text does not repeat the URI, which
            may hold a password.
    """
    scheme = uri.partition(":")[0].lower() if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri) else ""
    try:
        if scheme == "memory":
            return MemoryStore(**options)
        if scheme in _REDIS_SCHEMES:
            return _open_redis(_REDIS_SCHEMES[scheme] + uri[len(scheme) :], dict(options))
    except TypeError as error:
        raise ConfigurationError(f"IDEMPOTENCE_STORAGE_OPTIONS: {error}") from None
    except ValueError:
        # What the parser says may hold a piece of the password.
        raise ConfigurationError(
            "IDEMPOTENCE_STORAGE_URI cannot be read. Check its port and options, and "
            "percent-encode what is special in a password, such as '/', '#' and '@'."
        ) from None
    known = ", ".join(f"{name}://" for name in ("memory", *_REDIS_SCHEMES))
    raise ConfigurationError(f"IDEMPOTENCE_STORAGE_URI: the scheme must be one of {known}")


def _open_redis(url: str, options: dict[str, Any]) -> RedisStore:
    own = {name: options.pop(name) for name in ("deadline",) if name in options}
    options.setdefault("max_connections", _DEFAULT_MAX_CONNECTIONS)
    return RedisStore(Redis.from_url(url, **options), **own)
