"""What happens when the store does not answer: the only place that catches a `StoreError`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..config.settings import ALLOW, ON_STORE_ERROR, REJECT, Config
from ..errors import ConfigurationError, StoreError
from ..response.refusals import StoreUnavailable
from ..signals import store_failed
from ..stores.process import call_in_children
from .claim import Attempt
from .instruments import Instrumentation

_logger = logging.getLogger("flask_idempotence")

T = TypeVar("T")

TELL_EVERY = 5.0
"""Seconds between two log lines about a store that does not answer."""


def checked_policy(guard: str, value: str | None) -> str | None:
    """Return what a route says of a store that does not answer.

    Args:
        guard: the name of its decorator.
        value: `"reject"`, `"allow"`, or None for the setting.

    Raises:
        ConfigurationError: it is none of these.
    """
    if value is not None and value not in ON_STORE_ERROR:
        raise ConfigurationError(
            f"{guard}(on_store_error=...) must be {REJECT!r}, {ALLOW!r}, or None for the setting."
        )
    return value


class FailurePolicy:
    """Carries out store operations, and decides what a missing answer means.

    Before a view runs, a missing answer is a matter of what its route says, else of
    `IDEMPOTENCE_ON_STORE_ERROR`: see `ask`.
    After it has run, its answer goes out whatever the store does: see `tell`.

    Every failure is a signal. The log gets a line for the first one, and from then on one every
    few seconds: in an outage, each request fails.

    Args:
        config: for the default.
        clock: returns seconds that never go back.

    Attributes:
        instrumentation: measures how long the store takes.
    """

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = config.on_store_error
        self._clock = clock
        self._lines = _Sparing()
        self.instrumentation = Instrumentation()
        call_in_children(self._forget)

    def _forget(self) -> None:
        self._lines = _Sparing()

    def ask(
        self,
        attempt: Attempt,
        operation: str,
        call: Callable[[], T],
        *,
        unsure: Callable[[], None] | None = None,
    ) -> T | None:
        """Carry out an operation on which it depends whether the view may run.

        Args:
            attempt: on whose behalf.
            operation: its name.
            call: carries it out.
            unsure: is called where it is unknown whether the operation took effect.

        Returns:
            What the store answered; None where it did not and the view shall run unguarded.

        Raises:
            StoreUnavailable: it did not answer, and the policy is to refuse.
        """
        try:
            return self.instrumentation.timed(operation, call)
        except StoreError as error:
            self._report(attempt, operation, error)
            if unsure is not None and error.sent:
                unsure()
            if (attempt.on_store_error or self._default) == REJECT:
                raise StoreUnavailable from error
            return None

    def tell(self, attempt: Attempt, operation: str, call: Callable[[], T]) -> T | None:
        """Carry out an operation whose outcome can no longer change the answer.

        Returns:
            What the store answered, a part of it where that is all there is; None for nothing.
        """
        try:
            return self.instrumentation.timed(operation, call)
        except StoreError as error:
            self._report(attempt, operation, error)
            known: T | None = error.answers  # type: ignore[assignment]  # what `call` would return
            return known

    def _report(self, attempt: Attempt, operation: str, error: StoreError) -> None:
        more = self._lines.due(self._clock())
        if more is not None:
            _logger.warning(
                "The store did not answer: operation=%s %s (%s)%s",
                operation,
                attempt,
                error,
                f"; {more} times more since the last such line" if more else "",
            )
        attempt.emit(store_failed, operation=operation, error=error)


class _Sparing:
    """Says when there may be a line again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_at = float("-inf")
        self._withheld = 0

    def due(self, now: float) -> int | None:
        """Return how many lines were withheld before this one; None where it is withheld, too."""
        with self._lock:
            if now < self._next_at:
                self._withheld += 1
                return None
            self._next_at = now + TELL_EVERY
            withheld, self._withheld = self._withheld, 0
            return withheld
