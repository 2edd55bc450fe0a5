"""Storage URIs: the store that one names, and the remedy for common mistakes in it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ..config.settings import NAMESPACE
from ..errors import ConfigurationError
from .base import Store
from .memory import MemoryStore

if TYPE_CHECKING:
    from .sql import SqlStore

_URI = "IDEMPOTENCE_STORAGE_URI"
_OPTIONS = "IDEMPOTENCE_STORAGE_OPTIONS"

_TRANSPORTS = ("redis", "rediss", "valkey", "valkeys")

_OF_REDIS = (
    *_TRANSPORTS,
    "unix",
    *(f"{transport}+{kind}" for kind in ("sentinel", "cluster") for transport in _TRANSPORTS),
)


DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")
"""The first part of a scheme; a driver may follow a plus."""

_WITH_PSYCOPG = ("PostgreSQL", "'psycopg[binary]'", "postgresql+psycopg://")
_WITH_PYMYSQL = ("MySQL", "pymysql", "mysql+pymysql://")
"""A driver that is easy to install for a database, and the scheme that names it."""


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
    scheme = uri.partition(":")[0].lower() if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri) else ""
    if mistake := _mistake_in(scheme, uri):
        raise ConfigurationError(f"{_URI}: {mistake}")
    try:
        return _open(scheme, uri, options)
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


def _open(scheme: str, uri: str, options: Mapping[str, Any]) -> Store:
    if scheme == "memory":
        return MemoryStore(**options)
    if scheme in _OF_REDIS:
        from .redis.clients import deployment_at
        from .redis.store import RedisStore

        deployment, own = deployment_at(uri, options)
        return RedisStore(deployment, **own)  # type: ignore[arg-type]  # not of the public type
    return _sql_store_at(scheme + uri[len(scheme) :], options)


class ExtraMissing(ConfigurationError, ImportError):
    """SQLAlchemy is not installed; freezegun skips a name whose import fails, and nothing else."""


def sql_store_class() -> type[SqlStore]:
    """Return `SqlStore`; raise `ExtraMissing` where SQLAlchemy is not installed."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise ExtraMissing('The SQL store needs SQLAlchemy: pip install "flask-idempotence[sql]"')
    from .sql import SqlStore

    return SqlStore


def _sql_store_at(uri: str, options: Mapping[str, Any]) -> SqlStore:
    """Make the store at SQLAlchemy's URL, with options of its own and of `create_engine`.

    Raises:
        ConfigurationError: SQLAlchemy or a driver is not installed, or the database will not do.
        TypeError: an unknown option.
        ValueError: the URL cannot be read.
    """
    store_class = sql_store_class()
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    from .sql.connection import limited_engine

    rest = dict(options)
    own = {"deadline": rest.pop("deadline")} if "deadline" in rest else {}
    try:
        engine = limited_engine(make_url(uri), rest, own.get("deadline"))
    except NoSuchModuleError:
        raise ConfigurationError(
            "IDEMPOTENCE_STORAGE_URI: SQLAlchemy does not know the driver in its scheme. "
            f"Begin it with sqlite:///, {_WITH_PSYCOPG[2]} or {_WITH_PYMYSQL[2]}"
        ) from None
    except ArgumentError:
        raise ValueError from None  # its text may hold a piece of the password
    except ModuleNotFoundError as error:
        is_mysql = uri.partition(":")[0].partition("+")[0] in ("mysql", "mariadb")
        name, package, begin = _WITH_PYMYSQL if is_mysql else _WITH_PSYCOPG
        raise ConfigurationError(
            f"IDEMPOTENCE_STORAGE_URI: its driver is not installed (no module {error.name!r}). "
            f"For {name}, pip install {package} and begin it with {begin}"
        ) from None
    if "@" in (engine.url.host or ""):
        raise ValueError  # a bare one in the password: the host would begin within it
    return store_class(engine, **own)


def _mistake_in(scheme: str, uri: str) -> str | None:
    """Return the remedy for a mistake, without any part of the URI; None where there is none."""
    kind, rest = scheme.partition("+")[0], uri.partition(":")[2]
    if kind == "memory":
        if not rest.strip("/"):
            return None
        return f"nothing follows memory://. Options, such as max_entries, go to {_OPTIONS}."
    if kind == "sqlite":  # two slashes and nothing else mean in memory
        if rest.startswith("///") or rest.partition("?")[0] == "//":
            return None
        path = "sqlite:////var/lib/app/app.db"
        return f"three slashes and a path follow sqlite, four an absolute path: {path}"
    if scheme in _OF_REDIS:
        return _mistake_of_redis(scheme, rest)
    if kind == "postgres":
        begin = "Begin it with postgresql+psycopg:// instead."
        return f"SQLAlchemy no longer knows postgres://. {begin}"
    if kind not in DATABASES:
        known = ", ".join(f"{name}://" for name in ("memory", *_OF_REDIS, *DATABASES))
        return f"the scheme must be one of {known}."
    place = rest.removeprefix("//").partition("?")[0]
    if kind in ("mysql", "mariadb") and not place.partition("/")[2]:
        return "the name of the database follows the host: mysql+pymysql://user@host/shop."
    return None


def _mistake_of_redis(scheme: str, rest: str) -> str | None:
    # redis-py would read these as another server, or as another database.
    place, _, query = rest.removeprefix("//").partition("?")
    tail = place.partition("/")[2]
    path = unquote(tail)
    if scheme.endswith("+sentinel"):
        path = path.partition("/")[2]  # behind the service
    database = path.removesuffix("/")
    if not rest.startswith("//"):
        return "two slashes follow the scheme: redis://host:6379/0"
    if "#" in rest:
        return "a bare '#' ends a URI. Write it as %23, as in a password."
    if "@" in tail + query:
        return (
            "the host ends before the last '@'. In a password, percent-encode '/' as %2F and '?' "
            "as %3F; behind the host, '@' as %40."
        )
    if scheme == "unix" or not database or (database.isascii() and database.isdecimal()):
        return None
    return "the database of Redis is a number, such as the 0 of redis://localhost:6379/0."
