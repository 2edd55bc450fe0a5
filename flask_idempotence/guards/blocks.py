"""Claims around a block of code, in a request or outside; and `lock`, such a block by a name."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, ParamSpec, Self, TypeGuard, TypeVar
from uuid import UUID

from flask import current_app

from ..engine.engine import Engine, engine_of
from ..engine.guard import Claim, Guard, argument
from ..engine.state import enter_block, leave_block, own_blocks
from ..engine.values import RELEASE, Found, Operation, Settlement, Unguarded
from ..errors import ConfigurationError
from ..request.fingerprint import canonical
from ..request.proxies import actual
from ..response.records import UnreadableRecord
from ..response.refusals import ResponseNotStored, Running
from . import arguments

_logger = logging.getLogger("flask_idempotence")

P = ParamSpec("P")
R = TypeVar("R")

# The id of an operation. `7` and `"7"` are two; a tuple is for ids of several parts.
Id = str | int | UUID | tuple["Id", ...]


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

    def operation(self, name: bytes) -> Operation:
        config = self.services.config
        lease = min(self.lease or config.lease, config.max_hold)
        return Operation(name, lease=lease, renewal=lease, wait=self.wait or 0.0)


class Block:
    """A claim around a block of code: a context manager and a decorator.

    As a context manager it is good for one `with` statement. A block within its own, of the same
    thread, asyncio task and request, is a part of it, and the outermost alone settles.
    """

    _key: Callable[..., Id] | None = None  # takes the arguments of a call, and returns its id

    def __init__(self, guard: BlockGuard, part: str, text: bytes) -> None:
        self._guard = guard
        self._scope = part  # stands for the endpoint in store keys
        self._text = text  # names the operation
        self._entered: Claim | None = None
        self._claim: Claim | None = None  # the same, where it is granted
        self._done: bytes | None = None  # the record of an operation that is done
        self._result: Any = None

    def _of_call(self, *args: object, **kwargs: object) -> Self:
        block, text = copy(self), self._text
        if self._key is not None:
            text = name_of(self._guard.mode, self._scope, id=self._key(*args, **kwargs))
        Block.__init__(block, self._guard, self._scope, text)
        block._key = None
        return block

    def _operation(self, guard: BlockGuard) -> Operation | Unguarded:
        return guard.operation(self._text)

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
        claim = self._entered = Claim(app, guard, self._scope)
        is_on = engine.is_on(app, guard.toggle)
        ask = partial(self._operation, guard) if is_on else guard.switched_off
        self._claim, self._done = engine.enter(claim, ask, own_blocks(app))
        if self._done is None:
            enter_block(self._claim or claim.grant())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Settle, if this block has claimed the operation."""
        if self._entered is not None:
            leave_block(self._entered)
        if self._claim is not None:
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
            return engine.services.records.result(claim, self._done)
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

    def answer(self, _claim: Claim, found: Found) -> NoReturn:
        left = found.remaining or 0.0
        raise Running("This is locked by another. Try again soon.", remaining=left)

    def settle(self, _claim: Claim, _now: float) -> Settlement:
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
