"""Storage URIs: the store that one names, and the remedy for common mistakes in it."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..config.settings import NAMESPACE
from ..errors import ConfigurationError
from .base import Store, check_deadline
from .memory import MemoryStore

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection

    from .sql import SqlStore

_URI = "IDEMPOTENCE_STORAGE_URI"
_OPTIONS = "IDEMPOTENCE_STORAGE_OPTIONS"

_TRANSPORTS = ("redis", "rediss", "valkey", "valkeys")
_OF_REDIS = (
    *_TRANSPORTS,
    "unix",
    *(f"{transport}+{kind}" for kind in ("sentinel", "cluster") for transport in _TRANSPORTS),
)
_WITH_PYMYSQL = "For MySQL, pip install pymysql and begin it with mysql+pymysql://"
# Each database has a driver that is easy to install, and a scheme that names it.
_DRIVERS = {
    "sqlite": "Begin it with sqlite:///",
    "postgresql": "For PostgreSQL, pip install 'psycopg[binary]' and begin it with "
    "postgresql+psycopg://",
    "mysql": _WITH_PYMYSQL,
    "mariadb": _WITH_PYMYSQL,
}

# A driver limits connecting by these arguments.
_LIMITS = {
    "psycopg": ("connect_timeout",),
    "psycopg2": ("connect_timeout",),
    "pg8000": ("timeout",),
    # Its connect_timeout does not include the server's greeting.
    "pymysql": ("connect_timeout", "read_timeout"),
    "mysqldb": ("connect_timeout",),
}

_REDIS = "|".join(map(re.escape, _OF_REDIS))
_NO_NUMBER = r"/(?![0-9]*/?(\?|$))"
_NUMBER = "the database of Redis is a number, such as the 0 of redis://localhost:6379/0."

# So begins a URI with a mistake, its scheme in small letters; the remedy is beside it.
_MISTAKES = (
    (
        "memory:/*[^/]",
        f"nothing follows memory://. Options, such as max_entries, go to {_OPTIONS}.",
    ),
    (
        r"sqlite(\+\w+)?:(?!///|//(\?|$))",  # two slashes and nothing else mean in memory
        "three slashes and a path follow sqlite, four an absolute path: "
        "sqlite:////var/lib/app/app.db",
    ),
    (
        r"postgres(\+\w+)?:",
        "SQLAlchemy no longer knows postgres://. Begin it with postgresql+psycopg:// instead.",
    ),
    (
        r"(mysql|mariadb)(\+\w+)?:(//)?[^/?]*/?(\?|$)",
        "the name of the database follows the host: mysql+pymysql://user@host/shop.",
    ),
    # redis-py would read the rest as another server, or as another database.
    (f"({_REDIS}):(?!//)", "two slashes follow the scheme: redis://host:6379/0"),
    (f"({_REDIS}):.*#", "a bare '#' ends a URI. Write it as %23, as in a password."),
    (
        f"({_REDIS})://[^/?]*[/?].*@",
        "the host ends before the last '@'. In a password, percent-encode '/' as %2F and '?' "
        "as %3F; behind the host, '@' as %40.",
    ),
    (rf"(redis|valkey)s?(\+cluster)?://[^/?]*{_NO_NUMBER}", _NUMBER),
    (rf"(redis|valkey)s?\+sentinel://[^/?]*/[^/?]*{_NO_NUMBER}", _NUMBER),
)


def open_store(uri: str, options: Mapping[str, Any]) -> Store:
    """Make the store that a URI names, without connecting to it.

    Args:
        uri: `memory://`, a Redis or Valkey URL, or SQLAlchemy's of SQLite, PostgreSQL,
            MySQL or MariaDB.
        options: keyword arguments of the store; for Redis also those of its connections, for a
            database those of `sqlalchemy.create_engine`.

    Raises:
        ConfigurationError: an unknown scheme or option. The text does not repeat the URI, which
            may hold a password.
    """
    scheme, colon, rest = uri.partition(":")
    uri = f"{scheme.lower()}{colon}{rest}"
    for beginning, remedy in _MISTAKES:
        if re.match(beginning, uri):
            raise ConfigurationError(f"{_URI}: {remedy}")
    named = [
        open_it
        for names, more, open_it in _STORES
        if re.match(f"({'|'.join(map(re.escape, names))}){more}:", uri)
    ]
    if not named:
        schemes = ", ".join(f"{name}://" for names, *_ in _STORES for name in names)
        raise ConfigurationError(f"{_URI}: the scheme must be one of {schemes}.")
    try:
        return named[0](uri, **options)
    except TypeError as error:
        raise ConfigurationError(f"{_OPTIONS}: {error}") from None
    except ConfigurationError as error:
        if NAMESPACE in str(error):
            raise
        # Options are read from the query of the URI, too.
        raise ConfigurationError(f"{_URI} or {_OPTIONS}: {error}") from None
    except ValueError:
        # The parser's text may hold a piece of the password.
        raise ConfigurationError(
            f"{_URI} cannot be read. Check its port and options, and percent-encode special "
            "characters in a password, such as '/', '#' and '@'."
        ) from None
    except Exception as error:  # noqa: BLE001 - of a library that does not check its arguments
        raise ConfigurationError(
            f"{_OPTIONS}: an option has a wrong type or value ({type(error).__name__})."
        ) from None


class ExtraMissing(ConfigurationError, ImportError):
    """SQLAlchemy is not installed; freezegun skips a name whose import fails, and nothing else."""


def sql_store_class() -> type[SqlStore]:
    """Return `SqlStore`; raise `ExtraMissing` where SQLAlchemy is not installed."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise ExtraMissing('The SQL store needs SQLAlchemy: pip install "flask-idempotence[sql]"')
    from .sql import SqlStore

    return SqlStore


def _redis_store_at(uri: str, **options: Any) -> Store:
    from .redis.clients import deployment_at
    from .redis.store import RedisStore

    deployment, own = deployment_at(uri, options)
    return RedisStore(deployment, **own)  # type: ignore[arg-type]  # the public type is another


def _sql_store_at(uri: str, *, deadline: float = 1.0, **options: Any) -> SqlStore:
    """Make the store at SQLAlchemy's URL, with options of its own and of `create_engine`."""
    store_class = sql_store_class()
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    check_deadline(deadline)
    try:
        engine = limited_engine(make_url(uri), options, deadline)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        problem = "SQLAlchemy does not know the driver in its scheme"
        if isinstance(error, ModuleNotFoundError):
            problem = f"its driver is not installed (no module {error.name!r})"
        remedy = _DRIVERS[re.split(r"\W", uri)[0]]
        raise ConfigurationError(f"{_URI}: {problem}. {remedy}") from None
    except ArgumentError:
        raise ValueError from None  # its text may hold a piece of the password
    if "@" in (engine.url.host or ""):
        raise ValueError  # a bare one in the password: the host would begin within it
    return store_class(engine, deadline=deadline)


def limited_engine(url: URL, options: Mapping[str, Any], deadline: float) -> Engine:
    """Make an engine whose connections are limited, each to one host of several.

    Without a limit, psycopg waits 130 seconds for a host that does not answer, pg8000 for ever.
    One that the URL, or `connect_args` among the options of `create_engine`, names counts.
    """
    from sqlalchemy import create_engine, event

    driver = url.get_driver_name()
    own: Mapping[str, object] = options.get("connect_args") or {}
    seconds = math.ceil(min(max(deadline, 2), 60))  # libpq and psycopg take less than two as two
    limits = dict.fromkeys(_LIMITS.get(driver, ()), seconds)
    is_named = any(name in url.query or name in own for name in limits)
    if is_named or (driver.startswith("psycopg") and "PGCONNECT_TIMEOUT" in os.environ):
        limits = {}
    engine = create_engine(url, **{**options, "connect_args": {**limits, **own}})
    if limits and driver in ("pg8000", "pymysql"):
        event.listen(engine, "connect", _relax)
    return engine


def _relax(connection: DBAPIConnection, _record: object) -> None:
    """Lift a limit that would hold for statements, too; there is no public way."""
    if hasattr(connection, "_usock"):
        connection._usock.settimeout(None)  # noqa: SLF001 - of pg8000
    else:
        connection._read_timeout = None  # noqa: SLF001 - of PyMySQL


# A store has schemes, a pattern that may follow them, and an opener.
_STORES: tuple[tuple[tuple[str, ...], str, Callable[..., Store]], ...] = (
    (("memory",), "", lambda _, **options: MemoryStore(**options)),
    (_OF_REDIS, "", _redis_store_at),
    (tuple(_DRIVERS), r"(\+\w+)?", _sql_store_at),
)
