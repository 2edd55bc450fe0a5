"""What `within=` takes: sessions, and the store that goes with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.util import ThreadLocalRegistry

from ..errors import ConfigurationError
from ..stores.sql import SqlStore

if TYPE_CHECKING:
    from sqlalchemy import URL

    from ..stores.base import Store


def source_of(guard: str, within: Any) -> Callable[[], Session]:
    """Return what gives the session of the moment.

    Args:
        guard: the name of what takes `within=`.
        within: a session, a `scoped_session`, or a function that returns a session.

    Raises:
        ConfigurationError: it is none of these.
    """
    if isinstance(within, Session):
        return lambda: within
    if isinstance(within, scoped_session) or (
        callable(within) and not isinstance(within, sessionmaker | type)
    ):
        return lambda: _checked(guard, within())
    raise ConfigurationError(_wrong(guard, within))


def is_of_thread(within: Any) -> bool:
    """Whether each thread gets a session of its own."""
    return isinstance(within, scoped_session) and isinstance(within.registry, ThreadLocalRegistry)


def _checked(guard: str, session: Any) -> Session:
    if isinstance(session, Session):
        return session
    raise ConfigurationError(_wrong(guard, session))


def _wrong(guard: str, thing: Any) -> str:
    return (
        f"{guard}(within=...) takes the session in which the view writes: Flask-SQLAlchemy's "
        "db.session, another scoped_session, a Session, or a function that returns the view's "
        f"own; not {type(thing).__name__}."
    )


def engine_of(session: Session) -> Engine:
    """Return where a session writes unless it is told otherwise.

    Raises:
        ConfigurationError: nowhere.
    """
    try:
        return session.get_bind().engine
    except SQLAlchemyError as error:
        raise ConfigurationError(f"The session of within= has no database: {error}") from None


def checked_store(store: Store, engine: Engine) -> SqlStore:
    """Return a store that is a table in the database of an engine.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(store, SqlStore) or not _is_same(engine, store.engine):
        raise ConfigurationError(
            "within= needs the store in the session's own database: set IDEMPOTENCE_STORAGE_URI "
            "to the same URL, or pass store=SqlStore(engine) with the session's engine."
        )
    return store


def _is_same(one: Engine, other: Engine) -> bool:
    return one is other or one.pool is other.pool or _place(one.url) == _place(other.url)


def _place(url: URL) -> tuple[Any, ...]:
    database = url.database
    if url.get_backend_name() == "sqlite":
        return ("sqlite", str(Path(database or "").resolve()))
    return (url.get_backend_name(), url.host, url.port, database, url.query)
