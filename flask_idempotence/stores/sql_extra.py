"""The SQL store, as far as SQLAlchemy need not be installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from .sql import SqlStore

DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")
"""The first part of a scheme; a driver may follow a plus."""

_POSTGRESQL = ("'psycopg[binary]'", "postgresql+psycopg://")
_MYSQL = ("pymysql", "mysql+pymysql://")
"""A driver that is easy to install, and the scheme that names it."""

_OWN_OPTIONS = ("deadline",)


class ExtraMissing(ConfigurationError, ImportError):
    """SQLAlchemy is not installed; freezegun skips a name whose import fails, and nothing else."""


def sql_store_class() -> type[SqlStore]:
    """Return `SqlStore`; raise `ExtraMissing` where SQLAlchemy is not installed."""
    if importlib.util.find_spec("sqlalchemy") is None:
        raise ExtraMissing('The SQL store needs SQLAlchemy: pip install "flask-idempotence[sql]"')
    from .sql import SqlStore

    return SqlStore


def sql_store_at(uri: str, options: Mapping[str, Any]) -> SqlStore:
    """Make the store at SQLAlchemy's URL, with options of its own and of `create_engine`.

    Raises:
        ConfigurationError: SQLAlchemy or a driver is not installed, or the database will not do.
        TypeError: an unknown option.
        ValueError: the URL cannot be read.
    """
    store_class = sql_store_class()
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    from .sql.connect_timeout import ConnectTimeout

    own = {name: value for name, value in options.items() if name in _OWN_OPTIONS}
    rest = {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
    try:
        url = make_url(uri)
        limit = ConnectTimeout(url, rest, own.get("deadline"))
        engine = create_engine(url, **limit.options())
        limit.relax(engine)
    except NoSuchModuleError:
        raise ConfigurationError(
            "IDEMPOTENCE_STORAGE_URI: SQLAlchemy does not know the driver in its scheme. "
            f"Begin it with sqlite:///, {_POSTGRESQL[1]} or {_MYSQL[1]}"
        ) from None
    except ArgumentError:
        raise ValueError from None  # its text may hold a piece of the password
    except ModuleNotFoundError as error:
        is_mysql = uri.partition(":")[0].partition("+")[0] in ("mysql", "mariadb")
        name, (package, begin) = ("MySQL", _MYSQL) if is_mysql else ("PostgreSQL", _POSTGRESQL)
        raise ConfigurationError(
            f"IDEMPOTENCE_STORAGE_URI: its driver is not installed (no module {error.name!r}). "
            f"For {name}, pip install {package} and begin it with {begin}"
        ) from None
    if "@" in (engine.url.host or ""):
        raise ValueError  # a bare one in the password: the host would begin within it
    return store_class(engine, **own)
