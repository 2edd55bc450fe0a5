"""Errors that are independent of HTTP; those that answer a request are in `response.refusals`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SLUGS = (
    *("repeat-submit", "token-missing", "token-invalid", "token-expired", "token-not-yours"),
    *("token-spent", "key-missing", "key-invalid", "key-reused", "key-in-progress"),
    *("key-repeated", "outcome-unknown", "response-not-stored", "lease-lost"),
    "store-unavailable",
)

# Every guard passes these methods: of RFC 9110, section 9.2.1, and QUERY of RFC 10008.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"})

# After these refusals another attempt may fare better; `idempotence.js` has the same.
PASSING = frozenset({"key-in-progress", "lease-lost", "store-unavailable"})


class IdempotenceError(Exception):
    """Base of every error that this library raises."""


class ConfigurationError(IdempotenceError):
    """The application cannot work as it is set up; the text names the remedy."""


class StoreError(IdempotenceError):
    """The store did not answer in time, or answered with an error.

    Attributes:
        sent: whether the operation may have reached the store and taken effect.
        answers: for a batch of renewals, the outcomes that are known nevertheless, None for each
            that is not. None where none is known.
        remedy: for the operator; quotes nothing of the store's answer.
    """

    answers: Sequence[Any] | None = None
    remedy: str = "Run 'flask idempotence doctor'."

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent

    @property
    def kind(self) -> str:
        """The class of the driver's error; the rest of the text may hold addresses."""
        kind, separator, _ = str(self).partition(":")
        return kind if separator and kind.isidentifier() else type(self).__name__


class StoreNotReady(StoreError):
    """The store answers, but is not set up: a table, a permission or a setting is missing."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(f"{message} {remedy}", sent=False)
        self.remedy = remedy


COMMITTED_BELOW = (
    "A view with within= has committed below its session, with its writes and without the record "
    "of its response: the key answers outcome-unknown from now on. Leave the commit to the guard: "
    "no commit() of a connection or a driver, no COMMIT as text, and on MySQL no statement that "
    "commits, such as CREATE TABLE."
)

NEEDS_DATABASE = (
    "within= needs the store in the session's own database: set IDEMPOTENCE_STORAGE_URI to the "
    "same URL, or pass store=SqlStore(engine) with the session's engine."
)
