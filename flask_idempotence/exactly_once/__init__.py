"""`within=`: a session, its transaction, and the completion of a claim in it.

The engine and the guards import it; it imports the SQL store. SQLAlchemy, an extra, is imported
with the first SQL store or the first use of the argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

    from ..stores.base import Store
    from .transaction import Transaction

    Within = Session | scoped_session[Any] | Callable[[], Session]
    """The session of `within=`, or a function that returns it."""


class TransactionFactory:
    """Opens transactions, each in the current session.

    Attributes:
        session: returns the current session.
        of_thread: whether each thread has a session of its own.
    """

    def __init__(self, label: str, within: Any) -> None:
        """`label` names the argument in error texts."""
        try:
            from sqlalchemy.orm import Session, sessionmaker  # noqa: PLC0415 - an extra
            from sqlalchemy.util import ThreadLocalRegistry  # noqa: PLC0415 - an extra

            from . import transaction  # noqa: F401, PLC0415 - an extra; it registers its listeners
        except ImportError:
            raise ConfigurationError(
                f'{label} needs SQLAlchemy: pip install "flask-idempotence[sql]".'
            ) from None
        is_function = callable(within) and not isinstance(within, sessionmaker | type)

        def session() -> Session:
            found = within() if is_function else within
            if isinstance(found, Session):
                return found
            raise ConfigurationError(
                f"{label} takes the session in which the view writes: Flask-SQLAlchemy's "
                "db.session, another scoped_session, a Session, or a function that returns the "
                f"view's own; not {type(found).__name__}."
            )

        if not is_function:
            session()
        self.session: Callable[[], Session] = session
        self.of_thread: bool = isinstance(getattr(within, "registry", None), ThreadLocalRegistry)

    def __call__(self, store: Store | None) -> Transaction:
        """Open a transaction beside a claim in a store, or with None without a claim."""
        from .transaction import Transaction  # noqa: PLC0415 - an extra

        return Transaction(self.session(), store)


def takes_completions(store: Store) -> bool:
    """Whether a store may be in the database of a session; SQLAlchemy is installed."""
    from ..stores.sql import SqlStore  # noqa: PLC0415 - an extra

    return isinstance(store, SqlStore)


def listen_to_sessions() -> None:
    """Listen to the writes of sessions, where a SQL store exists.

    A session may begin before the first `within=` of the process.
    """
    if "flask_idempotence.stores.sql" in sys.modules:
        from . import database  # noqa: F401, PLC0415 - an extra; it registers listeners
