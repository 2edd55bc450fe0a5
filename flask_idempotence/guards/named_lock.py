"""`lock`: mutual exclusion by a name, in a request or outside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, TypeVar

from flask import current_app

from ..config.settings import SHORTEST_LEASE
from ..engine.engine import engine_of
from ..engine.guard import Ending, Finding, Guard, Plan, Question, Release, Services
from ..errors import ConfigurationError
from ..request.fingerprint import canonical
from ..request.proxies import actual
from ..response.refusals import Running
from . import arguments
from .once import Block, is_async, returned
from .operation import Id, plain

P = ParamSpec("P")
R = TypeVar("R")

PART = "-"
"""Stands for the endpoint: a name may hold an id, and is hashed as a whole."""


class NamedLockPlan(Plan[NoReturn]):
    """The rules of one named lock."""

    by_verdict = False

    def __init__(self, guard: NamedLockGuard, services: Services) -> None:
        config = services.config
        self._lease = min(guard.lease or config.lease, config.max_hold)
        self._wait = guard.wait

    def question_of(self, name: bytes) -> Question:
        """Ask for a lock by the canonical text of its name."""
        return Question(name, lease=self._lease, renewed=self._lease, wait=self._wait)

    def answer(self, finding: Finding) -> NoReturn:
        """Refuse a lock that is held."""
        remaining = getattr(finding.outcome, "remaining", 0.0)
        raise Running("This is locked by another. Try again soon.", remaining=remaining)

    def settle(self, ending: Ending) -> Release:
        """Release the lock, however its block has ended."""
        del ending
        return Release()


@dataclass(eq=False)
class NamedLockGuard(Guard):
    """The arguments of `lock`, checked; 0 for the setting."""

    mode = "mutex"
    decorator = "lock"
    toggle = "IDEMPOTENCE_ENABLED"

    lease: float = 0.0
    wait: float = 0.0

    def plan(self, services: Services, endpoint: str | None) -> NamedLockPlan:
        """Return the plan of a lock."""
        del endpoint
        return NamedLockPlan(self, services)


class Lock(Block):
    """A named lock, made by `Idempotence.lock`: a context manager and a decorator.

    As a context manager it is good for one `with` statement. It is reentrant: within its own block
    (in the same thread, asyncio task and request) it is entered at once, and the outermost block
    releases it.
    """

    def __init__(
        self,
        name: Id,
        *,
        lease: float | timedelta | None = None,
        wait: float | timedelta | None = None,
    ) -> None:
        super().__init__()
        self._name: Id = name
        # Here already: a decorator with a wrong name, or without one, fails when it is applied.
        self._text: bytes = canonical(["mutex", plain(name)])
        seconds = arguments.duration("lock", "lease", lease) or 0.0
        if 0 < seconds < SHORTEST_LEASE:
            raise ConfigurationError(
                f"lock(lease=...): Must be {SHORTEST_LEASE} seconds or more: a shorter lease may "
                "end before its first renewal has been answered."
            )
        self._guard: NamedLockGuard = NamedLockGuard(seconds, arguments.wait("lock", wait))

    def __enter__(self) -> Lock:
        """Take the lock.

        Raises:
            Running: it is held, still after `wait` seconds.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        if self._engine is not None:
            raise RuntimeError(
                "lock(name) is good for one with statement: call it again for the next."
            )
        engine = engine_of(actual(current_app))
        plan = self._guard.plan(engine.services, None)
        self._begin(engine, self._guard, PART, plan, plan.question_of(self._text))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the lock, if this block has taken it and still owns it."""
        if (left := self._leave()) is not None:
            engine, claim = left
            engine.settling.settle(claim)

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function, sync or async, so that each call runs under the lock.

        Raises:
            TypeError: it is a generator, or no function.
            ConfigurationError: it is async, and would block its event loop while it waits.
        """
        if is_async(function, "lock", self._guard.wait):

            @functools.wraps(function)
            async def async_locked(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self._anew():
                    return await function(*args, **kwargs)

            return async_locked  # type: ignore[return-value]  # R is what it awaits to

        @functools.wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._anew():
                return returned("lock", function(*args, **kwargs))

        return locked

    def _anew(self) -> Lock:
        return Lock(self._name, lease=self._guard.lease or None, wait=self._guard.wait)
