"""`within=`: what is guarded runs in a transaction that the guard commits.

The claim comes first, then the transaction begins; `settling` ends both in one step, and
`transactions` knows how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from ..stores.base import Store
    from .transaction import Transaction


class Open:
    """Opens transactions in the session of the moment.

    Args:
        session: returns it.
        of_thread: whether every thread has one of its own.
    """

    def __init__(self, session: Callable[[], Session], *, of_thread: bool) -> None:
        self.session = session
        self.of_thread = of_thread

    def __call__(self, store: Store | None) -> Transaction:
        """Open one beside a store, or with None without a claim."""
        from .transaction import Transaction  # noqa: PLC0415 - an extra

        return Transaction(self.session(), store)


def opener(guard: str, within: Any) -> Open | None:
    """Return what opens the transactions of a guard, None where it has no `within=`.

    Args:
        guard: the name of what takes `within=`.
        within: a session, a `scoped_session`, or a function that returns a session.

    Raises:
        ConfigurationError: it is none of these, or SQLAlchemy is not installed.
    """
    if within is None:
        return None
    try:
        from .session import is_of_thread, source_of  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigurationError(
            f'{guard}(within=...) needs SQLAlchemy: pip install "flask-idempotence[sql]".'
        ) from None
    return Open(source_of(guard, within), of_thread=is_of_thread(within))
