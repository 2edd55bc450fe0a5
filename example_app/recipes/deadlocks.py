"""Deadlocks: run a transaction again after the database rolled it back to end one.

InnoDB makes deadlocks of plain duplicates. Copies of an insert wait at the unique index for the
first; when the first is rolled back, all of them get a shared lock on its place, each waits for
the others, and all but one are rolled back with error 1213. There is no row then, so this is no
duplicate: run the transaction again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError
from werkzeug.exceptions import ServiceUnavailable

from .sessions import session

P = ParamSpec("P")
R = TypeVar("R")

ATTEMPTS = 5

ROLLED_BACK = (
    1213,  # MySQL and MariaDB: ER_LOCK_DEADLOCK
    1020,  # MariaDB with innodb_snapshot_isolation: ER_CHECKREAD
    "40P01",  # PostgreSQL: deadlock_detected
    "40001",  # PostgreSQL: serialization_failure
)
"""Errors after which the transaction is gone, and may be run again as it was."""


def retry_on_deadlock(view: Callable[P, R]) -> Callable[P, R]:
    """Run a view again if the database rolled its transaction back to end a deadlock.

    The view must be one whole transaction, and effects outside of it must be safe to repeat. Put
    this decorator below all guards, next to the function. After five attempts the client gets 503.
    """

    @wraps(view)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(ATTEMPTS):
            try:
                return view(*args, **kwargs)
            except DBAPIError as error:
                session().rollback()
                if not was_rolled_back(error):
                    raise
        raise ServiceUnavailable("The database is busy.", retry_after=1)

    return run


def was_rolled_back(error: DBAPIError) -> bool:
    """Return whether the database rolled the transaction back for another one to go on."""
    driver_error: Any = error.orig
    codes = (getattr(driver_error, "sqlstate", None), *driver_error.args[:1])
    return any(code in ROLLED_BACK for code in codes)


def explain_deadlock(error: DBAPIError) -> Any:
    """Answer with 503 where a view without a retry was rolled back."""
    if not was_rolled_back(error):
        raise error
    session().rollback()
    return ServiceUnavailable("The database rolled this back: try again.", retry_after=1)
