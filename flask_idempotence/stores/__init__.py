"""Stores, and how a URI becomes one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..config.settings import NAMESPACE
from ..errors import ConfigurationError
from .base import Store
from .memory import MemoryStore
from .redis.connection import SCHEMES, split_options, topology_at
from .redis.store import RedisStore
from .sql_extra import DATABASES, sql_store_at
from .uris import UNREADABLE, check_memory_uri, check_redis_uri, check_sqlite_uri

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
        return _open(scheme, uri, options)
    except TypeError as error:
        raise ConfigurationError(f"IDEMPOTENCE_STORAGE_OPTIONS: {error}") from None
    except ConfigurationError as error:
        if NAMESPACE in str(error):
            raise
        # Options are read from the query of the URI, too.
        raise ConfigurationError(
            f"IDEMPOTENCE_STORAGE_URI or IDEMPOTENCE_STORAGE_OPTIONS: {error}"
        ) from None
    except ValueError:
        # The parser's text may hold a piece of the password.
        raise ConfigurationError(UNREADABLE) from None
    except Exception as error:  # noqa: BLE001 - of a library that does not check its arguments
        raise ConfigurationError(
            "IDEMPOTENCE_STORAGE_OPTIONS: an option has a wrong type or value "
            f"({type(error).__name__})."
        ) from None


def _open(scheme: str, uri: str, options: Mapping[str, Any]) -> Store:
    if scheme == "memory":
        check_memory_uri(uri)
        return MemoryStore(**options)
    if scheme in SCHEMES:
        check_redis_uri(uri)
        uri, own, rest = split_options(uri, options)
        return RedisStore(topology_at(uri, rest), **own)
    if scheme.partition("+")[0] in DATABASES:
        if scheme.startswith("sqlite"):
            check_sqlite_uri(uri)
        return sql_store_at(scheme + uri[len(scheme) :], options)
    if scheme.partition("+")[0] == "postgres":
        raise ConfigurationError(
            "IDEMPOTENCE_STORAGE_URI: SQLAlchemy does not know postgres:// any more. Begin it "
            "with postgresql+psycopg:// instead."
        )
    known = ", ".join(f"{name}://" for name in ("memory", *SCHEMES, *DATABASES))
    raise ConfigurationError(f"IDEMPOTENCE_STORAGE_URI: the scheme must be one of {known}.")
