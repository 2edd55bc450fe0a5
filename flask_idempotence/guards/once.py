"""`once`: operations that the application names, each carried out once; and `step`, their parts.

A step is carried out once, however often its operation runs.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
import uuid
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from flask import Flask, current_app

from ..engine.current import check_time_of_steps, operations_around, unguarded_operation
from ..engine.engine import Engine, engine_of
from ..engine.guard import Claim, argument
from ..engine.state import claims_around
from ..engine.values import FAILURES, RELEASE, Found, Operation, Settlement, Unguarded, Verdict
from ..errors import ConfigurationError
from ..exactly_once import TransactionFactory
from ..request.fingerprint import KEYSPACE, half_of
from ..request.proxies import actual
from ..response.refusals import KeyReused, OutcomeUnknown, Refusal, Running
from ..stores import process
from ..stores.base import Done, Outcome, inspectable
from . import arguments
from .blocks import Block, BlockGuard, Id, name_of

_logger = logging.getLogger("flask_idempotence")

NO_ID: Any = object()

_SCOPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def checked_scope(function: str, scope: object) -> str:
    if isinstance(scope, str) and _SCOPE.fullmatch(scope):
        return scope
    raise ConfigurationError(
        f"{function}(scope): must be 1 to 64 letters, digits, '_', '.' and '-'."
    )


@dataclass(eq=False)
class OnceGuard(BlockGuard):
    """The arguments of `once` that do not name the operation, and its rules."""

    mode = "once"
    decorator = "once"
    takes_steps = True

    ttl: float = argument(arguments.duration, 86400)
    wait: float | None = argument(arguments.wait)
    within: TransactionFactory | None = argument(TransactionFactory)

    def validate(self) -> None:
        if self.within is not None:
            self.on_store_error = "reject"

    def answer(self, claim: Claim, found: Found) -> bytes:
        if not isinstance(found, Done):
            raise Running(remaining=found.remaining)
        if self.services.records.is_unknown(claim, found.record):
            raise OutcomeUnknown(
                "This operation was committed in part, and whether the rest took effect is "
                "unknown. Look it up, and forget() the operation before it runs again."
            )
        return found.record

    def settle(self, claim: Claim, _now: float) -> Settlement:
        if claim.verdict in FAILURES or claim.record is None:
            return RELEASE
        return Settlement("complete", self.ttl, claim.record)


class Once(Block):
    """A named operation, made by `Idempotence.once`: a context manager and a decorator.

    As a context manager it is good for one `with` statement. Within itself (in the same thread,
    asyncio task and request) it is reentrant: an inner block is a part of the outer one. Its
    `first` is true, its `result` is its own, and the outer block alone settles.

    Attributes:
        first: whether this block is the first, and does the work.
    """

    _guard: OnceGuard

    def __init__(
        self,
        scope: str,
        id: Id = NO_ID,  # noqa: A002 - its name in the interface
        *,
        key: Callable[..., Id] | None = None,
        **given: Any,
    ) -> None:
        checked_scope("once", scope)
        if (id is NO_ID) == (key is None):
            raise ConfigurationError(
                "once() takes an id, or as a decorator a function key= that returns it."
            )
        if key is not None and (not callable(key) or inspect.iscoroutinefunction(key)):
            raise ConfigurationError(
                "once(key=...) must be a function, not an async one, that takes the arguments of "
                "the decorated function and returns the id."
            )
        text = b"" if key is not None else name_of("once", scope, id=id)
        super().__init__(OnceGuard(**given), scope, text)
        self._key = key
        self.first: bool = False

    @property
    def result(self) -> Any:
        """The result of the operation.

        The first block sets it to a value that `app.json` can write; it is stored when the block
        ends. Later blocks read it as JSON restores it: a tuple has become a list, and a UUID, a
        date or a Decimal a text.

        Raises:
            ResponseNotStored: the operation was done, and its result was not stored, or cannot be
                read.
        """
        return self._remembered

    @result.setter
    def result(self, value: object) -> None:
        if not self.first:
            raise RuntimeError("Only the first may set the result: check `.first` before.")
        self._result = self._checked(value)

    def _checked(self, value: object) -> object:
        return value

    def __enter__(self) -> Self:
        """Claim the operation, or read its result.

        Raises:
            OutcomeUnknown: `within=` a session, it was committed below that session.
            Running: it is running, still after `wait` seconds.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        if self._key is not None:
            raise RuntimeError("once(key=...) is a decorator; a with statement needs an id.")
        super().__enter__()
        self.first = self._done is None
        return self

    def _end(self, engine: Engine, claim: Claim, error: BaseException | None) -> None:
        """Settle: done, to be tried again, or (where the process is being ended) unknown."""
        if error is not None and not isinstance(error, Exception):
            engine.settling.abandon(claim)
            return
        claim.leave(raised=error is not None)
        if error is not None:
            claim.judge(Verdict.FAILED)
        problem: Exception | None = None
        if claim.verdict not in FAILURES:
            records, ttl = engine.services.records, self._guard.ttl
            try:
                claim.record = records.remember_result(claim, self._result, ttl, claim.app.json)
            except TypeError as no_json:
                problem = no_json
                # It has been done, and must not be done again.
                claim.record = records.remember_status(claim, 0, ttl)
                if claim.transaction is not None:
                    claim.judge(Verdict.FAILED)  # and rolled back: the next call does it again
        problem = engine.settling.settle(claim) or problem
        if problem is not None and error is None:
            if isinstance(problem, Refusal):
                problem.apply(engine.config)
            raise problem


def forget(app: Flask, scope: str, id: Id) -> bool:  # noqa: A002 - its name in the interface
    """Remove the record of an operation; never a claim, which is its owner's."""
    scope, engine = checked_scope("forget", scope), engine_of(app)
    process.current.notice_fork()
    guard = OnceGuard().bind(engine.services, None, on_store_error="reject")
    claim = Claim(app, guard, scope)
    engine.identify(claim, guard.operation(name_of("once", scope, id=id)))
    key = claim.key
    store, policy = inspectable(engine.store), engine.store_calls
    steps_gone = partial(policy.call, claim, "scan", partial(forget_steps, engine, key))
    try:
        while entry := policy.call(claim, "peek", partial(store.peek, key)):
            if entry.lease:
                raise Running(remaining=entry.lease)
            if entry.kind != "record":
                break
            steps_gone()  # first: without its record, the operation may begin, and have new ones
            discard = partial(store.discard, [(key, entry)])
            if policy.call(claim, "discard", discard) == [Outcome.OK]:
                _logger.info("Forgotten by hand: %s", claim)
                return True
            # Another call was faster, and the operation may run again: read its state once more.
        steps_gone()
    except Refusal as refusal:
        refusal.apply(engine.config)
        raise
    return False


def forget_steps(engine: Engine, key: str) -> None:
    """Remove the records of an operation's steps; none of them while one is running."""
    store = inspectable(engine.store)
    steps = store.scan(f"{engine.config.prefix}:{KEYSPACE}:step:")
    keys = [step for step in steps if half_of(step) == half_of(key)]
    entries = zip(keys, store.peek_all(keys), strict=True)
    found = [(step, entry) for step, entry in entries if entry]
    for _, entry in found:
        if entry.lease:
            raise Running(remaining=entry.lease)
    store.discard(found)


@dataclass(eq=False)
class StepGuard(OnceGuard):
    """The rules of a step: those of `once`, for the time of its operation."""

    mode = "step"
    decorator = "step"
    takes_steps = False

    def answer(self, claim: Claim, found: Found) -> bytes:
        if not found.matches:
            raise KeyReused
        return super().answer(claim, found)


class Step(Once):
    """A step of an operation, made by `Idempotence.step`: a context manager.

    Attributes:
        first: whether this block does the work, and sets `result`; else `result` is that of the
            attempt that did it. Setting it makes of it at once what later attempts read:
            of a tuple a list, of a UUID, a date or a Decimal a text. A value that `app.json`
            cannot write raises a TypeError or a ValueError, as does one that is longer than
            `IDEMPOTENCE_KEY_MAX_BODY`.
        key: a text that is the same each time the operation runs, to hand on as an idempotency
            key; a random one where the operation runs unguarded. Known from the beginning of the
            block.
    """

    def __init__(
        self,
        name: str,
        id: Id | None = None,  # noqa: A002 - its name in the interface
        **given: Any,
    ) -> None:
        super().__init__(checked_scope("step", name), "-")
        self._text = name_of("step", id=name) if id is None else name_of("step", name, id=id)
        self._guard = StepGuard(**given)
        self.key: str = ""

    def _checked(self, value: object) -> object:
        # An error leaves the step unfinished: its effect may be repeated with the same key.
        app = actual(current_app)
        text = json.dumps(
            value, allow_nan=False, default=lambda each: json.loads(app.json.dumps(each))
        )
        if len(text) > engine_of(app).config.key_max_body:
            raise ValueError(
                f"The result of the step {self._scope!r} is longer than IDEMPOTENCE_KEY_MAX_BODY."
            )
        return json.loads(text)  # as later attempts read it

    def _operation(self, guard: BlockGuard) -> Operation | Unguarded:
        outer = self._outer
        if outer is None or not outer.owner:
            return Unguarded("a step of an operation that runs unguarded")
        operation = guard.operation(self._text)
        return operation._replace(content=outer.operation.content, below=outer.key)

    def __enter__(self) -> Self:
        """Renew the operation's claim, and claim the step, or read its result.

        Raises:
            ConfigurationError: no operation is around it, or it is not one of at-least-once; the
                operation has had this step already; or its response is kept for less time than its
                steps.
            KeyReused: the step was finished for another request with the same key.
            LeaseLost: the operation's claim has ended.
            Running: another attempt holds the step.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        engine = engine_of(actual(current_app))
        outer = self._outer = _operation_around(engine.services.app, self._scope)
        if outer is None or not outer.key:
            self.key = uuid.uuid4().hex
            return super().__enter__()
        if self._text in outer.steps:
            raise ConfigurationError(
                f"This operation has a step {self._scope!r} already. Give each its name, or in a "
                "loop its id: step(name, id). Put a decorator that calls the view again outside "
                "its guard."
            )
        outer.guard.has_steps = True
        if outer.ttl is not None:
            check_time_of_steps(outer, outer.ttl)
        if outer.owner:
            engine.keeper.ensure_held(outer)
        self._guard = copy(self._guard)
        self._guard.ttl = outer.guard.ttl
        self._guard.on_store_error = self._guard.on_store_error or outer.on_store_error
        name = name_of("step key", outer.key, self._text.hex(), id="-")
        self.key = engine.services.keyring.digest(engine.services.app, name).hex()
        super().__enter__()
        outer.steps |= {self._text}
        if self._entered is not None:
            self._entered.step_of = outer
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Settle the step; after an exception, it may be tried again."""
        if error is not None and self._outer is not None:
            self._outer.steps -= {self._text}
        super().__exit__(kind, error, trace)


def _operation_around(app: Flask, step: str) -> Claim | None:
    """Return the claim of the outermost operation.

    It has no lease where the operation runs unguarded; None where not even its key is known.
    """
    if found := operations_around(app):
        # Within another's transaction, a step would be done whose writes are rolled back with it.
        if any(
            claim.operation.hold_after_crash or claim.guard.within is not None for claim in found
        ):
            raise ConfigurationError(
                f"The step {step!r} is part of an operation that is at-most-once or within= a "
                "session, and never runs again: take within= or the guarantee off the route, and "
                "give within= to the step."
            )
        return found[0].step_of or found[0]
    if (unguarded := unguarded_operation()) is not None:
        return unguarded
    if engine_of(app).is_on(app, "IDEMPOTENCE_ENABLED"):
        if any(claim.streaming and claim.guard.takes_steps for claim in claims_around()):
            raise ConfigurationError(
                f"The step {step!r} is in a streamed body, which is made after the view: take the "
                "step in the view, and stream its result."
            )
        raise ConfigurationError(
            f"The step {step!r} needs an operation around it: the view of a route with "
            "@idempotent(), or a block of once()."
        )
    return None
