"""Clocks that a test advances: one for every application, and one to hand over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from unittest import mock

from flask import Flask

from ..engine.engine import Engine, engine_of
from ..engine.keeper import KEEPERS, Keeper
from ..errors import ConfigurationError
from ..request.tokens import Tokens
from ..response.records import Records
from ..signals import claimed, rejected, replayed, token_issued, token_spent
from ..stores.memory import MemoryStore
from ..stores.process import monotonic

_LONGEST = timedelta(days=36_525)  # the clock of leases never goes back: infinity would stay

# Signals of requests and tasks; the keeper of an earlier test's application sends the others.
_DECISIONS = (claimed, rejected, replayed, token_issued, token_spent)

_SHORTEST_STEP = 0.05  # seconds that pass, at least, before a failed renewal is tried again


class _Ahead:
    """A clock that runs ahead of another one by `seconds`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.seconds = 0.0

    def __call__(self) -> float:
        return self._clock() + self.seconds


# This one stays ahead after a test: leases and log throttles need a clock that never goes back.
_monotonic = _Ahead(monotonic)


class MovableClock:
    """The clock of every application in this process; `control_time` makes one.

    It runs at the speed of real time, and `advance` moves it forward.
    """

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._wall = _Ahead(Tokens.clock)
        self._fixed: set[str] = set()

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass for every application.

        Leases of running views are renewed on the way, as in production, until
        `IDEMPOTENCE_MAX_HOLD`. A request that waits for another one wakes when its time has come.

        Args:
            seconds: seconds, or a `timedelta`, to let pass; from 0 to a century.

        Raises:
            ConfigurationError: an application has used a store that processes share, such as
                Redis, since the clock was taken over. Time passes for none.
            ValueError: `seconds` is negative, or longer than a century.
        """
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if not seconds >= 0:
            raise ValueError(f"advance({seconds}): time does not go back.")
        if seconds > _LONGEST.total_seconds():
            raise ValueError(f"advance({seconds}): a century at most.")
        if self._fixed:
            raise ConfigurationError(
                f"Time cannot be advanced for {' or '.join(sorted(self._fixed))}: the server has "
                "a clock of its own. Set IDEMPOTENCE_STORAGE_URI to memory:// in this test, or "
                "keep the store, leave the clock out and wait for short intervals."
            )
        end = _monotonic() + seconds
        keepers = [keeper for keeper in KEEPERS if not keeper.store.shared]
        while busy := [(at, keeper) for keeper in keepers if (at := keeper.due_at()) < end]:
            step = max(min(at for at, _ in busy) - _monotonic(), _SHORTEST_STEP)
            self._move(min(step, end - _monotonic()), [keeper for _, keeper in busy])
            # Keepers that follow another clock stay due: leave them out.
            stuck = {keeper for _, keeper in busy if keeper.due_at() <= _monotonic()}
            keepers = [keeper for keeper in keepers if keeper not in stuck]
        self._move(end - _monotonic(), keepers)

    def _move(self, seconds: float, keepers: list[Keeper]) -> None:
        with self._moved:
            for clock in (_monotonic, self._wall):
                clock.seconds += max(0.0, seconds)
            self._moved.notify_all()
        for keeper in keepers:
            keeper.tick()  # it also wakes the thread, which waits by the old time

    def _sleep(self, seconds: float) -> None:
        end = _monotonic() + seconds
        with self._moved:
            while (left := end - _monotonic()) > 0:
                self._moved.wait(left)

    def _collect_fixed(self, app: Flask, /, **_: object) -> None:
        store = engine_of(app).store
        if store.shared:  # the clock is the server's
            self._fixed.add(f"the application {app.name!r} on {type(store).__name__}")

    @contextmanager
    def _rule(self) -> Iterator[None]:
        Engine.clock = MemoryStore.clock = _monotonic
        with ExitStack() as stack:
            for owner in (Tokens, Records):
                stack.enter_context(mock.patch.object(owner, "clock", self._wall))
            stack.enter_context(mock.patch.object(Engine, "sleep", self._sleep))
            for signal in _DECISIONS:
                stack.enter_context(signal.connected_to(self._collect_fixed))
            yield


@contextmanager
def control_time() -> Iterator[MovableClock]:
    """Take over the clock of every application for a block: pytest's `idempotence_clock`.

    Locks, keys, tokens, `once()`, `lock()` and memory stores follow it, whether an application was
    made before the block or in it. It does not rule the clock of Redis and of databases, a store
    or an application with a `FakeClock` of its own, and the rest of the process.

    Example:
        with control_time() as clock:
            clock.advance(60)
    """
    clock = MovableClock()
    with clock._rule():  # noqa: SLF001 - its own module
        yield clock


class FakeClock:
    """A clock that moves only when a test advances it; calling it returns its seconds.

    For a store of your own and its tests. For applications, `control_time` is simpler.

    Example:
        clock = FakeClock()
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
        """Time an application by this clock: its leases, tokens, waiting and memory store.

        A memory store that was made with a clock keeps it. A server's clock cannot be replaced.
        """
        engine = engine_of(app)
        store = engine.store
        engine.clock = engine.services.tokens.clock = engine.services.records.clock = self
        engine.sleep = self.advance
        if isinstance(store, MemoryStore) and "clock" not in vars(store):
            store.clock = self
