"""`once`: operations that the application names, in a request or outside.

`Block` is the part that `once` shares with `lock`: a claim around a block of code.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard, TypeVar

from flask import current_app

from ..engine.claim import Attempt, Claim
from ..engine.current import enter_block, leave_block, own_blocks
from ..engine.engine import Engine, engine_of
from ..engine.guard import FAILURES, Guard, Plan, Question, Verdict
from ..errors import ConfigurationError
from ..exactly_once.factory import transaction_factory
from ..request.proxies import actual
from ..response.records import RecordContext, UnreadableRecord
from ..response.refusals import Refusal, ResponseNotStored
from ..stores.base import Done
from . import arguments
from .operation import NO_ID, Id, OnceGuard, checked_scope

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_logger = logging.getLogger("flask_idempotence")


class Block:
    """A claim around a block of code."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._attempt: Attempt | None = None
        self._claim: Claim | None = None

    def _begin(
        self, engine: Engine, guard: Guard, part: str, plan: Plan[T], question: Question
    ) -> T | None:
        """Claim the operation of the block, or return the reply of the plan.

        A block within its own, of the same thread, task and request, is a part of it.

        Raises:
            Refusal: the plan refuses it, or the store does not answer.
        """
        app = engine.services.app
        self._engine = engine
        attempt = self._attempt = Attempt(app, guard.mode, part, guard.on_store_error)
        if engine.is_on(app, guard.toggle):
            found = engine.admit(attempt, plan, lambda: question, own_blocks(app))
        else:
            found = engine.bypass(attempt, plan, guard)
        if isinstance(found, Claim):
            self._claim = found
            enter_block(found)
            return None
        return found

    def _leave(self) -> tuple[Engine, Claim] | None:
        """Return the claim to settle, and its engine; None where the block has none of its own."""
        if self._claim is None or self._engine is None:
            return None
        leave_block(self._claim)
        return self._engine, self._claim


class Once(Block):
    """A named operation, made by `Idempotence.once`: a context manager and a decorator.

    As a context manager it is good for one `with` statement. Within itself (in the same thread,
    asyncio task and request) it is reentrant: an inner block is a part of the outer one. Its
    `first` is true, its `result` is its own, and the outer block alone settles.

    Attributes:
        first: whether this block is the first, and does the work.
    """

    def __init__(
        self,
        scope: str,
        id: Id = NO_ID,  # noqa: A002 - its name in the interface
        *,
        key: Callable[..., Id] | None = None,
        ttl: float | timedelta = 86400,
        wait: float | timedelta | None = None,
        within: Session | scoped_session[Any] | Callable[[], Session] | None = None,
    ) -> None:
        super().__init__()
        self._scope: str = checked_scope("once", scope)
        if (id is NO_ID) == (key is None):
            raise ConfigurationError(
                "once() takes an id, or as a decorator a function key= that returns it."
            )
        if key is not None and (not callable(key) or inspect.iscoroutinefunction(key)):
            raise ConfigurationError(
                "once(key=...) must be a function, not an async one, that takes the arguments of "
                "the decorated function and returns the id."
            )
        self._id: Id = id
        self._within: Any = within
        self._key: Callable[..., Id] | None = key
        seconds = arguments.duration("once", "ttl", ttl)
        if seconds is None:
            raise ConfigurationError("once(ttl=...): Must be a number of seconds or a timedelta.")
        self._guard: OnceGuard = OnceGuard(
            seconds, transaction_factory("once", within), arguments.wait("once", wait)
        )
        self.first: bool = False
        self._done: Done | None = None
        self._result: Any = None

    @property
    def result(self) -> Any:
        """The result of the operation.

        The first block sets it to a value that JSON can hold; it is stored when the block ends.
        Later blocks read it as JSON restores it: a tuple has become a list.

        Raises:
            ResponseNotStored: the operation was done, and its result was not stored, or cannot be
                read.
        """
        if self._done is None or self._engine is None or self._attempt is None:
            return self._result
        try:
            asked = RecordContext(self._attempt.key or "")
            return self._engine.services.records.result(asked, self._done.record)
        except UnreadableRecord as error:
            _logger.error("A result cannot be read: it is %s: %s", error, self._attempt)
            refusal = ResponseNotStored("The operation is done, but its result is not known.")
            refusal.apply(self._engine.config)
            raise refusal from None

    @result.setter
    def result(self, value: Any) -> None:
        if not self.first:
            raise RuntimeError("Only the first may set the result: check `.first` before.")
        self._result = value

    def __enter__(self) -> Once:
        """Claim the operation, or read its result.

        Raises:
            Running: it is running, still after `wait` seconds.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        if self._engine is not None or self._key is not None:
            raise RuntimeError(
                "once(scope, id) is good for one with statement: call it again for the next. "
                "With key= it is a decorator."
            )
        engine = engine_of(actual(current_app))
        plan = self._guard.plan(engine.services, None)
        question = plan.question_of(self._scope, self._id)
        self._done = self._begin(engine, self._guard, self._scope, plan, question)
        self.first = self._done is None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Settle: done, to be tried again, or (where the process is being ended) unknown.

        Raises:
            TypeError: JSON cannot hold the result; the operation counts as done, unless it is
                rolled back.
            LeaseLost: `within=` a session, the claim was lost: everything is rolled back.
            StoreUnavailable: `within=` a session, the database did not commit.
        """
        if (left := self._leave()) is None:
            return
        engine, claim = left
        if error is not None and not isinstance(error, Exception):
            engine.settling.abandon(claim)
            return
        claim.leave_view(raised=error is not None)
        if error is not None:
            claim.judge(Verdict.FAILED)
        problem = None if claim.verdict in FAILURES else self._take_record(engine, claim)
        if problem is not None and claim.transaction is not None:
            claim.judge(Verdict.FAILED)  # and rolled back: the next call does it again
        problem = engine.settling.settle(claim) or problem
        if problem is not None and error is None:
            if isinstance(problem, Refusal):
                problem.apply(engine.config)
            raise problem

    def _take_record(self, engine: Engine, claim: Claim) -> Exception | None:
        records, ttl = engine.services.records, self._guard.ttl
        try:
            claim.keep_record(records.remember_result(claim.sealed, self._result, ttl))
        except TypeError as problem:
            # It has been done, and must not be done again.
            claim.keep_record(records.remember_status(claim.sealed, 0, ttl))
            return problem
        return None

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function, sync or async, so that it runs once for each id.

        Later calls return the first call's result, as JSON restores it.

        Raises:
            TypeError: it is a generator, or no function.
        """
        if is_async(function, "once", self._guard.wait):

            @functools.wraps(function)
            async def async_once(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self._anew(*args, **kwargs) as once:
                    if not once.first:
                        return once.result
                    once.result = result = await function(*args, **kwargs)
                return result

            return async_once  # type: ignore[return-value]  # R is what it awaits to

        @functools.wraps(function)
        def run_once(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._anew(*args, **kwargs) as once:
                if not once.first:
                    remembered: R = once.result
                    return remembered
                once.result = result = returned("once", function(*args, **kwargs))
            return result

        return run_once

    def _anew(self, *args: Any, **kwargs: Any) -> Once:
        id_ = self._id if self._key is None else self._key(*args, **kwargs)
        ttl, wait = self._guard.ttl, self._guard.wait
        return Once(self._scope, id_, ttl=ttl, wait=wait, within=self._within)


def is_async(
    function: Callable[..., object], decorator: str, wait: float
) -> TypeGuard[Callable[..., Awaitable[Any]]]:
    """Whether a decorated function is a coroutine function.

    Raises:
        TypeError: it is no function, or a generator.
        ConfigurationError: it is async, and would block its event loop while it waits.
    """
    if (
        not callable(function)
        or inspect.isclass(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise TypeError(f"{decorator}() decorates a function that returns, not {function!r}.")
    if not inspect.iscoroutinefunction(function):
        return False
    if wait:
        raise ConfigurationError(
            f"{decorator}(wait=...) would block the event loop of an async function. Leave it "
            "out, catch Running, and try again after asyncio.sleep()."
        )
    return True


def returned(decorator: str, result: R) -> R:
    """Return the result of a decorated function.

    Raises:
        TypeError: it stands for work that is still to be done.
    """
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(
            f"{decorator}() decorates a function whose work is done when it returns. This one "
            f"returned {type(result).__name__}, whose work comes later."
        )
    return result
