"""Run a transaction again after the database rolled it back to end a deadlock.

On InnoDB, duplicates of an insert can deadlock. They wait at the unique index for the first; when
it is rolled back, all of them get a shared lock on its place, each waits for the others, and all
but one are rolled back with error 1213. The row does not exist then, so this is no duplicate: run
the transaction again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from sqlalchemy.exc import DBAPIError
from werkzeug.exceptions import ServiceUnavailable

from .answers import explain
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
"""Errors after which the transaction is rolled back, and may be run again unchanged."""


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
    """Return whether the database rolled the transaction back so that another can continue."""
    driver_error: Any = error.orig
    codes = (getattr(driver_error, "sqlstate", None), *driver_error.args[:1])
    return any(code in ROLLED_BACK for code in codes)


def explain_deadlock(error: DBAPIError) -> Any:
    """Answer 503 for a view that has no retry."""
    if not was_rolled_back(error):
        raise error
    session().rollback()
    busy = ServiceUnavailable("The database rolled this back: try again.", retry_after=1)
    return explain(busy)
