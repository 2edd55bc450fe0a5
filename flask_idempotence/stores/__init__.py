"""Stores, and how a URI becomes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError
from .base import Store
from .memory import MemoryStore
from .redis import RedisStore
from .redis_link import SCHEMES, split_options, topology_at
from .sql_extra import DATABASES, sql_store_at

__all__ = ["MemoryStore", "RedisStore", "Store", "open_store"]


def open_store(uri: str, options: Mapping[str, Any]) -> Store:
    """Make the store that a URI names, without connecting to it.

    Args:
        uri: `memory://`, a Redis or Valkey URL, or SQLAlchemy's of SQLite or PostgreSQL.
        options: keyword arguments of the store; for Redis also those of its connections, for a
            database those of `sqlalchemy.create_engine`.

    Raises:
        ConfigurationError: an unknown scheme or option. The text does not repeat the URI, which
            may hold a password.
    """
    scheme = uri.partition(":")[0].lower() if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri) else ""
    try:
        if scheme == "memory":
            return MemoryStore(**options)
        if scheme in SCHEMES:
            uri, own, rest = split_options(uri, options)
            return RedisStore(topology_at(uri, rest), **own)
        if scheme.partition("+")[0] in DATABASES:
            return sql_store_at(scheme + uri[len(scheme) :], options)
    except TypeError as error:
        raise ConfigurationError(f"IDEMPOTENCE_STORAGE_OPTIONS: {error}") from None
    except ValueError:
        # What the parser says may hold a piece of the password.
        raise ConfigurationError(
            "IDEMPOTENCE_STORAGE_URI cannot be read. Check its port and options, and "
            "percent-encode what is special in a password, such as '/', '#' and '@'."
        ) from None
    known = ", ".join(f"{name}://" for name in ("memory", *SCHEMES, *DATABASES))
    raise ConfigurationError(f"IDEMPOTENCE_STORAGE_URI: the scheme must be one of {known}")
