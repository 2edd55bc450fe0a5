"""The errors that know nothing of HTTP; those that answer a request are in `response.refusals`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class IdempotenceError(Exception):
    """Base of every error that this library raises."""


class ConfigurationError(IdempotenceError):
    """The application is set up in a way that cannot work; the text says what to change."""


class StoreError(IdempotenceError):
    """The store did not answer in time, or answered with an error.

    Attributes:
        sent: whether the operation may have reached the store and taken effect.
        answers: of a batch of renewals, what is known in spite of it: an outcome each, None for
            those of which nothing is known. None where nothing is known of any.
    """

    answers: Sequence[Any] | None = None

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class StoreNotReady(StoreError):
    """The store answers, and lacks what it needs.

    Attributes:
        remedy: what to do; holds nothing that the store has said.
    """

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(f"{message} {remedy}", sent=False)
        self.remedy = remedy
