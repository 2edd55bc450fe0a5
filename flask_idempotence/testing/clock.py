"""A clock that stands still until it is told to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask


class FakeClock:
    """Stands in for the monotonic clock and for the wall clock; calling it returns its seconds.

    Example:
        clock = FakeClock()
        Idempotence(app, store=MemoryStore(clock=clock))
        clock.rule(app)
        clock.advance(5)

    Args:
        start: seconds that it begins with.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start

    def __call__(self) -> float:
        """Return its seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Args:
            seconds: how much; not negative.

        Raises:
            ValueError: it is negative.
        """
        if seconds < 0:
            raise ValueError("A clock does not go back.")
        self._now += seconds

    def rule(self, app: Flask) -> None:
        """Make an application's leases, tokens and waiting go by this clock.

        The store has a clock of its own: give it this one too (`MemoryStore(clock=clock)`). A
        server's clock cannot be replaced.
        """
        engine = app.extensions["idempotence"].engine
        engine.clock = self
        engine.sleep = self.advance
        engine.services.tokens.clock = self
