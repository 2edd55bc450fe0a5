"""Claims around a block of code, in a request or outside: `once`, its steps, and `lock`.

An operation that the application names is carried out once; a step, however often its operation
runs; and one block at a time holds a named lock.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, ParamSpec, Self, TypeGuard, TypeVar
from uuid import UUID

from flask import Flask, current_app, has_request_context, request

from ..engine.claim import Claim
from ..engine.current import enter_block, leave_block, operations_around, own_blocks
from ..engine.engine import Engine, engine_of
from ..engine.guard import (
    FAILURES,
    RELEASE,
    Found,
    Guard,
    Operation,
    Question,
    Settlement,
    Unguarded,
    Verdict,
    argument,
)
from ..errors import ConfigurationError
from ..exactly_once import TransactionFactory, transaction_factory
from ..request.fingerprint import KEYSPACE, canonical, half_of
from ..request.proxies import actual
from ..response.headers import note_on
from ..response.records import UnreadableRecord
from ..response.refusals import KeyReused, OutcomeUnknown, Refusal, ResponseNotStored, Running
from ..stores import process
from ..stores.base import Done, Outcome, inspectable
from . import arguments

_logger = logging.getLogger("flask_idempotence")

NO_ID: Any = object()

_unguarded: ContextVar[int] = ContextVar("flask_idempotence_unguarded", default=0)
"""Blocks of `once` around the running code that no claim guards."""

P = ParamSpec("P")
R = TypeVar("R")

Id = str | int | UUID | tuple["Id", ...]
"""The id of an operation. `7` and `"7"` are two; a tuple is for ids of several parts."""


def name_of(*parts: str, id: object) -> bytes:  # noqa: A002 - its name in the interface
    """Return the canonical text that names an operation; a TypeError where the id is none."""
    return canonical([*parts, _plain(id)])


def _plain(id_: object) -> object:
    """Return an id as a JSON value that no other id has."""
    if isinstance(id_, UUID):
        return ["uuid", id_.hex]
    if isinstance(id_, tuple) and id_:
        return ["tuple", *map(_plain, id_)]
    if isinstance(id_, int) and not isinstance(id_, bool):
        return id_
    if isinstance(id_, str) and id_:
        return id_
    kind = type(id_).__name__
    found = {"str": "an empty string", "tuple": "an empty tuple"}.get(kind, kind)
    raise TypeError(
        "The id of once() and the name of lock() must be a string that is not empty, an integer, "
        f"a UUID, or a tuple of these, not {found}."
    )


class BlockGuard(Guard):
    """The arguments of `once` or `lock` that do not name the operation."""

    toggle = "IDEMPOTENCE_ENABLED"
    lease: float | None = None
    wait: float | None = None

    def question(self, name: bytes) -> Question:
        config = self.services.config
        lease = min(self.lease or config.lease, config.max_hold)
        return Question(name, lease=lease, renewed=lease, wait=self.wait or 0.0)


class Block:
    """A claim around a block of code: a context manager and a decorator.

    As a context manager it is good for one `with` statement. A block within its own, of the same
    thread, asyncio task and request, is a part of it, and the outermost alone settles.
    """

    _key: Callable[..., Id] | None = None  # takes the arguments of a call, and returns its id

    def __init__(self, guard: BlockGuard, part: str, text: bytes) -> None:
        self._guard = guard
        self._part = part  # stands for the endpoint in store keys
        self._text = text  # names the operation
        self._entered: Claim | None = None
        self._claim: Claim | None = None  # the same, where it is granted
        self._done: bytes | None = None  # the record of an operation that is done
        self._result: Any = None

    def _of_call(self, *args: object, **kwargs: object) -> Self:
        block, text = copy(self), self._text
        if self._key is not None:
            text = name_of(self._guard.mode, self._part, id=self._key(*args, **kwargs))
        Block.__init__(block, self._guard, self._part, text)
        block._key = None
        return block

    def _question(self, guard: BlockGuard) -> Question | Unguarded:
        return guard.question(self._text)

    def __enter__(self) -> Self:
        """Claim the operation, or read its result.

        Raises:
            Running: it is running elsewhere, still after `wait` seconds.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        if self._entered is not None:
            raise RuntimeError(
                f"{self._guard.decorator}() is good for one with statement: call it again for the "
                "next."
            )
        engine = engine_of(actual(current_app))
        app, guard = engine.services.app, self._guard.bind(engine.services, None)
        claim = self._entered = Claim(app, guard, self._part)
        is_on = engine.is_on(app, guard.toggle)
        ask = partial(self._question, guard) if is_on else guard.switched_off
        found = engine.admit(claim, ask, own_blocks(app))
        if found is claim:
            self._claim = claim
            enter_block(claim)
        else:
            self._done = found
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._claim is not None:
            leave_block(self._claim)
            self._end(engine_of(self._claim.app), self._claim, error)

    def _end(self, engine: Engine, claim: Claim, _error: BaseException | None) -> None:
        engine.settling.settle(claim)

    @property
    def _remembered(self) -> Any:
        claim = self._entered
        if self._done is None or claim is None:
            return self._result
        engine = engine_of(claim.app)
        try:
            return engine.services.records.result(claim.slot, self._done)
        except UnreadableRecord as error:
            _logger.error("A result cannot be read: it is %s: %s", error, claim)
            refusal = ResponseNotStored("The operation is done, but its result is not known.")
            refusal.apply(engine.config)
            raise refusal from None

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function, sync or async, whose calls each run in a block.

        Where the operation is done already, a call returns the first call's result, as JSON
        restores it.

        Raises:
            TypeError: it is a generator, or no function.
            ConfigurationError: it is async, and would block its event loop while it waits.
        """
        if _is_async(function, self._guard):

            @functools.wraps(function)
            async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self._of_call(*args, **kwargs) as block:
                    if block._done is None:
                        block._result = await function(*args, **kwargs)
                    return block._remembered

            return run_async  # type: ignore[return-value]  # R is what it awaits to

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            with self._of_call(*args, **kwargs) as block:
                if block._done is None:
                    block._result = _returned(self._guard, function(*args, **kwargs))
                return block._remembered

        return run


def _is_async(
    function: Callable[..., object], guard: BlockGuard
) -> TypeGuard[Callable[..., Awaitable[object]]]:
    if (
        not callable(function)
        or inspect.isclass(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise TypeError(
            f"{guard.decorator}() decorates a function that returns, not {function!r}."
        )
    if not inspect.iscoroutinefunction(function):
        return False
    if guard.wait:
        raise ConfigurationError(
            f"{guard.decorator}(wait=...) would block the event loop of an async function. Leave "
            "it out, catch Running, and try again after asyncio.sleep()."
        )
    return True


def _returned(guard: BlockGuard, result: R) -> R:
    """Return the result of a decorated function, unless it stands for work still to be done."""
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError(
            f"{guard.decorator}() decorates a function whose work is done when it returns. This "
            f"one returned {type(result).__name__}, whose work comes later."
        )
    return result


@dataclass(eq=False)
class MutexGuard(BlockGuard):
    """The arguments of `lock` that do not name it, and its rules."""

    mode = "mutex"
    decorator = "lock"
    by_verdict = False

    lease: float | None = arguments.of_setting("lease")
    wait: float | None = argument(arguments.wait)

    def answer(self, _operation: Operation, found: Found) -> NoReturn:
        remaining = getattr(found, "remaining", 0.0)
        raise Running("This is locked by another. Try again soon.", remaining=remaining)

    def settle(self, _operation: Operation, _now: float) -> Settlement:
        return RELEASE


class Lock(Block):
    """A named lock, made by `Idempotence.lock`: a context manager and a decorator.

    As a context manager it is good for one `with` statement. It is reentrant: within its own block
    (in the same thread, asyncio task and request) it is entered at once, and the outermost block
    releases it.
    """

    def __init__(self, name: Id, **given: Any) -> None:
        # Here already: a decorator with a wrong name, or without one, fails when it is applied.
        text = name_of("mutex", id=name)
        super().__init__(MutexGuard(**given), "-", text)  # hashed as a whole: it may hold an id


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

    ttl: float = argument(arguments.duration, 86400)
    wait: float | None = argument(arguments.wait)
    within: TransactionFactory | None = argument(transaction_factory)

    def validate(self) -> None:
        if self.within is not None:
            self.on_store_error = "reject"

    def answer(self, operation: Operation, found: Found) -> bytes:
        if not isinstance(found, Done):
            raise Running(remaining=getattr(found, "remaining", 0.0))
        if self.services.records.is_unknown(operation.slot, found.record):
            raise OutcomeUnknown(
                "This operation was committed in part, and whether the rest took effect is "
                "unknown. Look it up, and forget() the operation before it runs again."
            )
        return found.record

    def settle(self, operation: Operation, _now: float) -> Settlement:
        if operation.verdict in FAILURES or operation.record is None:
            return RELEASE
        return Settlement("complete", self.ttl, operation.record)


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

        The first block sets it to a value that JSON can hold; it is stored when the block ends.
        Later blocks read it as JSON restores it: a tuple has become a list.

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
        if self._claim is None and self.first:
            _unguarded.set(_unguarded.get() + 1)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Settle, if this block has claimed the operation."""
        if self._claim is None and self.first:
            _unguarded.set(_unguarded.get() - 1)
        super().__exit__(kind, error, trace)

    def _end(self, engine: Engine, claim: Claim, error: BaseException | None) -> None:
        """Settle: done, to be tried again, or (where the process is being ended) unknown."""
        if error is not None and not isinstance(error, Exception):
            engine.settling.abandon(claim)
            return
        claim.leave_view(raised=error is not None)
        if error is not None:
            claim.judge(Verdict.FAILED)
        problem: Exception | None = None
        if claim.verdict not in FAILURES:
            records, ttl = engine.services.records, self._guard.ttl
            try:
                claim.record = records.remember_result(claim.slot, self._result, ttl)
            except TypeError as no_json:
                problem = no_json
                # It has been done, and must not be done again.
                claim.record = records.remember_status(claim.slot, 0, ttl)
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
    engine.locate(claim, guard.question(name_of("once", scope, id=id)))
    key = claim.slot.key
    store, policy = inspectable(engine.store), engine.policy
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

    def answer(self, operation: Operation, found: Found) -> bytes:
        if not getattr(found, "matches", True):
            raise KeyReused
        return super().answer(operation, found)


class Step(Once):
    """A step of an operation, made by `Idempotence.step`: a context manager.

    Attributes:
        first: whether this block does the work, and sets `result`; else `result` is that of the
            attempt that did it. Setting a value that JSON cannot hold raises a TypeError or a
            ValueError, as does one that is longer than `IDEMPOTENCE_KEY_MAX_BODY`.
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
        text = json.dumps(value, allow_nan=False)
        if len(text) > engine_of(actual(current_app)).config.key_max_body:
            raise ValueError(
                f"The result of the step {self._part!r} is longer than IDEMPOTENCE_KEY_MAX_BODY."
            )
        return json.loads(text)  # as later attempts read it

    def _question(self, guard: BlockGuard) -> Question | Unguarded:
        operation = self._operation
        if operation is None:
            return Unguarded("a step of an operation that runs unguarded")
        question = guard.question(self._text)
        return question._replace(content=operation.question.content, below=operation.slot.key)

    def __enter__(self) -> Self:
        """Renew the operation's claim, and claim the step, or read its result.

        Raises:
            ConfigurationError: no operation is around it, or it is not one of at-least-once; or
                the operation has had this step already.
            KeyReused: the step was finished for another request with the same key.
            LeaseLost: the operation's claim has ended.
            Running: another attempt holds the step.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        engine = engine_of(actual(current_app))
        operation = self._operation = _operation(engine.services.app, self._part)
        if operation is None:
            self.key = uuid.uuid4().hex
            return super().__enter__()
        if self._text in operation.steps:
            raise ConfigurationError(
                f"This operation has a step {self._part!r} already. Give each its name, or in a "
                "loop its id: step(name, id)."
            )
        operation.steps |= {self._text}
        engine.keeper.ensure_held(operation)
        self._guard = copy(self._guard)
        self._guard.ttl = operation.guard.ttl
        self._guard.on_store_error = self._guard.on_store_error or operation.on_store_error
        name = name_of("step key", operation.slot.key, self._text.hex(), id="-")
        self.key = engine.services.keyring.digest(engine.services.app, name).hex()
        return super().__enter__()


def _operation(app: Flask, step: str) -> Claim | None:
    """Return the claim of the outermost operation; None where it runs unguarded."""
    if found := operations_around(app):
        # Within another's transaction, a step would be done whose writes are rolled back with it.
        if any(claim.question.keep or claim.guard.within is not None for claim in found):
            raise ConfigurationError(
                f"The step {step!r} is part of an operation that is at-most-once or within= a "
                "session, and never runs again: take within= or the guarantee off the route, and "
                "give within= to the step."
            )
        return found[0]
    if _unguarded.get():
        return None
    is_unclaimed = False
    if has_request_context() and (note := note_on(request)).runs_unguarded:
        is_unclaimed = not any(claim.owner and claim.guard.mode == "key" for claim in note.claims)
    if not is_unclaimed and engine_of(app).is_on(app, "IDEMPOTENCE_ENABLED"):
        raise ConfigurationError(
            f"The step {step!r} needs an operation around it: the view of a route with "
            "@idempotent(), or a block of once()."
        )
    return None
