"""One key for all attempts at a request, and one time limit, whichever library sends it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Thread
from typing import Protocol, TypeVar

from .answers import Answer
from .retries import Attempts

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1

LATE = "No whole answer within the time that Retries(seconds=...) allows."


def new_key() -> str:
    """Return a new key: a UUID of 122 random bits, as text."""
    return str(uuid.uuid4())


def needs_key(method: str | None) -> bool:
    """Whether a method is unsafe, so that it must not be carried out twice."""
    return method is not None and method.upper() not in SAFE_METHODS


def put_key(headers: MutableMapping[str, str], name: str, *, quoted: bool) -> None:
    """Give a request its key: the one that it has, else a new one.

    The key stays with the request: it goes along where the request is redirected, and can be read
    from it (and sent again with it) when all attempts have failed.
    Quoted, it is a String of Structured Fields.
    """
    key = headers.get(name)
    if key is None:
        key = new_key()
    if quoted and isinstance(key, str) and not key.startswith('"'):
        key = '"' + re.sub(r'(["\\])', r"\\\1", key) + '"'
    headers[name] = key


class HasClose(Protocol):
    """A response of any library."""

    def close(self) -> object:
        """Give its connection back."""


R = TypeVar("R")
C = TypeVar("C", bound=HasClose)


async def exchange(
    attempts: Attempts,
    send: Callable[[float], Awaitable[tuple[R, Answer]] | tuple[R, Answer]],
    close: Callable[[object], object],
    sleep: Callable[[float], object],
    no_answer: tuple[type[Exception], ...],
) -> R:
    """Send a request until its answer is final, or one of the errors `no_answer` is.

    `send` makes one attempt within so many seconds. All three block, or return awaitables.
    """
    while True:
        response = None
        try:
            sent = send(attempts.begin())
            response, answer = sent if isinstance(sent, tuple) else await sent
            seconds = attempts.wait_after_answer(answer)
        except no_answer as error:
            seconds = attempts.wait_after_error(error)
            if seconds is None:
                raise
        else:
            if seconds is None:
                return response
        if response is not None:
            await _done(close(response))
        await _done(sleep(seconds))


async def _done(step: object) -> None:
    if isinstance(step, Awaitable):
        await step


def result_of(exchange: Coroutine[None, None, R]) -> R:
    """Return the result of an exchange whose steps block, and never suspend it."""
    try:
        exchange.send(None)
    except StopIteration as finished:
        result: R = finished.value
        return result
    raise RuntimeError("A synchronous exchange was suspended.")


def within(
    seconds: float, attempt: Callable[[], tuple[C, Answer]], late: Callable[[], Exception]
) -> tuple[C, Answer]:
    """Make an attempt in a thread, and raise the error `late` if it takes longer than it may.

    The time-outs of requests and httpx are for single steps: a server that sends a byte now and
    then never meets one, and resolving a name has none. A thread that is late is left behind; its
    own time-outs end it, or the end of the answer, which is closed.
    """
    done: Future[tuple[C, Answer]] = Future()

    def run() -> None:
        try:
            done.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            done.set_exception(error)

    try:
        Thread(target=copy_context().run, args=(run,), daemon=True).start()
    except RuntimeError:  # no threads at the interpreter's exit
        return attempt()
    in_time = False
    try:
        wait([done], seconds)
        in_time = done.done()
        if not in_time:
            raise late()
        return done.result()
    finally:
        if not in_time:  # also after a KeyboardInterrupt
            done.add_done_callback(_close)


def _close(done: Future[tuple[C, Answer]]) -> None:
    if done.exception() is None:
        done.result()[0].close()
