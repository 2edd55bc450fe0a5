"""A clock that a test advances."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask


class FakeClock:
    """Replaces the monotonic clock and the wall clock; calling it returns its seconds.

    Example:
        clock = FakeClock()
        Idempotence(app, store=MemoryStore(clock=clock))
        clock.rule(app)
        clock.advance(5)

    Args:
        start: its first value, in seconds.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start

    def __call__(self) -> float:
        """Return the current seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Args:
            seconds: how much; not negative.

        Raises:
            ValueError: it is negative.
        """
        if seconds < 0:
            raise ValueError(f"FakeClock.advance({seconds}): a clock does not go back.")
        self._now += seconds

    def rule(self, app: Flask) -> None:
        """Time an application's leases, tokens and waiting by this clock.

        The store has a clock of its own: pass it this one, too (`MemoryStore(clock=clock)`). A
        server's clock cannot be replaced.
        """
        engine = app.extensions["idempotence"].engine
        engine.clock = self
        engine.sleep = self.advance
        engine.services.tokens.clock = self
