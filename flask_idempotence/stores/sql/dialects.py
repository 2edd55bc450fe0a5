"""The databases that are known."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine

from ...errors import ConfigurationError
from .dialect import Dialect
from .postgresql import PostgreSQL
from .sqlite import SQLite

_DIALECTS: dict[str, Callable[[], Dialect]] = {"postgresql": PostgreSQL, "sqlite": SQLite}


def dialect_of(engine: Engine) -> Dialect:
    """Return what is particular to an engine's database.

    Raises:
        ConfigurationError: the database is not supported, or is one that each connection has for
            itself.
    """
    if not isinstance(engine, Engine):
        raise ConfigurationError(
            "A sqlalchemy.Engine is needed (of an AsyncEngine, its sync_engine cannot be used by "
            "other threads: make an engine with create_engine)."
        )
    if engine.dialect.is_async:
        raise ConfigurationError("The engine's driver must be a synchronous one.")
    if engine.dialect.name not in _DIALECTS:
        raise ConfigurationError(
            f"The SQL store knows {' and '.join(_DIALECTS)}, and not {engine.dialect.name}."
        )
    dialect = _DIALECTS[engine.dialect.name]()
    dialect.check(engine)
    return dialect
