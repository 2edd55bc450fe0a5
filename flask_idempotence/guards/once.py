"""`once`: what happens once by the name that the application gives it, in a request or outside."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from flask import current_app
from marshmallow import ValidationError

from ..config.settings import REJECT, seconds
from ..engine.claim import Attempt, Hold, block_of
from ..engine.engine import Engine, engine_of
from ..engine.guard import Guard, Settlement
from ..engine.transactions import begin, open_transaction
from ..errors import ConfigurationError
from ..exactly_once.within import Open, opener
from ..request.fingerprint import canonical
from ..request.proxies import actual
from ..response.records import RecordContext, UnreadableRecord
from ..response.refusals import Refusal, ResponseNotStored, Running
from ..stores.base import NO_FINGERPRINT, Done
from .names import NO_ID, SCOPE, Id, plain

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, scoped_session

P = ParamSpec("P")
R = TypeVar("R")

_logger = logging.getLogger("flask_idempotence")


class OnceGuard(Guard):
    """What `once` does in its own way.

    Args:
        ttl: seconds for which it is remembered that the operation is done.
    """

    mode = "once"
    toggle = "IDEMPOTENCE_ENABLED"

    def __init__(self, ttl: float) -> None:
        self.ttl: float = ttl

    def claim(
        self, engine: Engine, attempt: Attempt, digest: bytes, within: Open | None
    ) -> Hold | Done | None:
        """Claim an operation, or say what came of it before.

        Raises:
            Running: another one is at it.
            StoreUnavailable: the store does not answer, and the policy is to refuse.
        """
        key = engine.name_key(attempt, digest)
        transaction = None
        if within is not None:
            transaction = open_transaction(engine, attempt, within, claims=True)
        found = engine.claim(self, attempt, key, NO_FINGERPRINT, engine.config.lease, 0.0)
        if isinstance(found, Hold) and transaction is not None:
            return begin(found, transaction)
        if found is None or isinstance(found, Hold | Done):
            return found
        raise Running(remaining=getattr(found, "remaining", 0.0))

    def pass_by(self, engine: Engine, attempt: Attempt, within: Open | None) -> Hold | None:
        """Return what is held although the extension is switched off: the transaction, if any."""
        if within is None:
            return None
        transaction = open_transaction(engine, attempt, within, claims=False)
        return begin(Hold(engine, self, attempt, key=""), transaction)

    def settle(self, engine: Engine, hold: Hold, *, failed: bool) -> Settlement:
        """Remember that it is done, or release what shall be tried again."""
        if failed:
            return engine.release(hold)
        return engine.complete(hold, hold.detail, self.ttl)


class Once:
    """One operation, as `Idempotence.once` names it: a context manager, and a decorator.

    As a context manager it is good for one `with` statement.

    Attributes:
        first: whether the block is to do the work: nobody has done it before.
    """

    def __init__(
        self,
        scope: str,
        id: Id = NO_ID,  # noqa: A002 - its name in the interface
        *,
        key: Callable[..., Id] | None = None,
        ttl: float | timedelta = 86400,
        within: Session | scoped_session[Any] | Callable[[], Session] | None = None,
    ) -> None:
        if not isinstance(scope, str) or not SCOPE.fullmatch(scope):
            raise ConfigurationError(
                "once(scope): must be 1 to 64 letters, digits, '_', '.' and '-'."
            )
        if (id is NO_ID) == (key is None):
            raise ConfigurationError(
                "once() takes an id, or for a decorator a function key= that returns it."
            )
        if key is not None and (not callable(key) or inspect.iscoroutinefunction(key)):
            raise ConfigurationError(
                "once(key=...) must be a function, and no async one: it is called with the "
                "arguments of what is decorated, and returns the id."
            )
        self._scope: str = scope
        self._id: Id = id
        self._within: Any = within
        self._open: Open | None = opener("once", within)
        self._key: Callable[..., Id] | None = key
        try:
            self._guard: OnceGuard = OnceGuard(seconds(ttl))
        except ValidationError as error:
            raise ConfigurationError(f"once(ttl=...): {error.messages[0]}") from None
        self.first: bool = False
        self._engine: Engine | None = None
        self._hold: Hold | None = None
        self._done: Done | None = None
        self._attempt: Attempt | None = None
        self._result: Any = None
        self._block: ExitStack[bool | None] = ExitStack()

    @property
    def result(self) -> Any:
        """What the operation came to.

        The first sets it, made of what JSON is made of; it is remembered when the block ends. The
        others read what JSON makes of it: a tuple is a list then.

        Raises:
            ResponseNotStored: the operation was done, and its result was not stored, or cannot be
                read.
        """
        if self._done is None or self._engine is None or self._attempt is None:
            return self._result
        try:
            asked = RecordContext(self._attempt.key or "")
            return self._engine.records.result(asked, self._done.record)
        except UnreadableRecord as error:
            _logger.error("A result cannot be read: it is %s: %s", error, self._attempt)
            refusal = ResponseNotStored("The operation is done, but its result is not known.")
            self._engine.finish(refusal)
            raise refusal from None

    @result.setter
    def result(self, value: Any) -> None:
        if not self.first:
            raise RuntimeError("Only the first sets the result: look at `.first` before.")
        self._result = value

    def __enter__(self) -> Once:
        """Claim the operation, or find out what came of it.

        Raises:
            Running: another one is at it.
            StoreUnavailable: the store does not answer, and the policy is to refuse.
        """
        if self._engine is not None or self._key is not None:
            raise RuntimeError(
                "once(scope, id) is good for one with statement: call it anew for the next. "
                "With key= it is a decorator."
            )
        app = actual(current_app)
        engine = self._engine = engine_of(app)
        named = canonical(["once", self._scope, plain(self._id)])
        policy = None if self._open is None else REJECT
        attempt = self._attempt = Attempt(app, self._guard.mode, self._scope, policy)
        if engine.switches.is_on(app, self._guard.toggle):
            digest = engine.keyring.digest(app, named)
            claim = partial(self._guard.claim, engine, attempt, digest, self._open)
            found = engine.admit(attempt, claim)
        else:
            pass_by = partial(self._guard.pass_by, engine, attempt, self._open)
            found = engine.decide(attempt, pass_by)
        if isinstance(found, Done):
            self._done = found
            return self
        self.first = True
        if found is not None:
            self._hold = found
            self._block.enter_context(block_of(found))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Settle: done, to be tried again, or (where the process is being ended) unknown.

        Raises:
            TypeError: the result is not made of what JSON is made of; the operation counts as
                done, unless it is rolled back.
            LeaseLost: `within=` a session, the claim was lost: everything is rolled back.
            StoreUnavailable: `within=` a session, the database did not commit.
        """
        self._block.close()
        hold, engine = self._hold, self._engine
        if hold is None or engine is None:
            return
        if error is not None and not isinstance(error, Exception):
            engine.settling.abandon(hold)
            return
        failed = error is not None if hold.failed_by_hand is None else hold.failed_by_hand
        if error is not None and hold.transaction is not None:
            failed = True  # what it has rolled back cannot be kept
        problem = None if failed else self._note_result(engine, hold)
        if problem is not None and hold.transaction is not None:
            failed = True  # and rolled back: the next one does it again
        hold.raised = error is not None
        hold.commits = not hold.raised and not failed
        problem = engine.settling.settle(hold, failed=failed) or problem
        if problem is not None and error is None:
            if isinstance(problem, Refusal):
                engine.finish(problem)
            raise problem

    def _note_result(self, engine: Engine, hold: Hold) -> Exception | None:
        try:
            hold.detail = engine.records.remember_result(hold, self._result, self._guard.ttl)
        except TypeError as problem:
            # It has been done, and must not be done again.
            hold.detail = engine.records.remember_status(hold, 0, self._guard.ttl)
            return problem
        return None

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Have a function, sync or async, run once for each id.

        Further calls get what the first returned, as JSON gives it back.

        Raises:
            TypeError: it is a generator, or no function.
        """
        if (
            not callable(function)
            or inspect.isclass(function)
            or inspect.isgeneratorfunction(function)
            or inspect.isasyncgenfunction(function)
        ):
            raise TypeError(f"once() decorates a function that returns, not {function!r}.")

        if inspect.iscoroutinefunction(function):

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
                once.result = result = _returned(function(*args, **kwargs))
            return result

        return run_once

    def _anew(self, *args: Any, **kwargs: Any) -> Once:
        id_ = self._id if self._key is None else self._key(*args, **kwargs)
        return Once(self._scope, id_, ttl=self._guard.ttl, within=self._within)


def _returned(result: R) -> R:
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(
            "once() decorates a function that has done its work when it returns: what returned "
            f"{type(result).__name__} has not done its work yet."
        )
    return result
