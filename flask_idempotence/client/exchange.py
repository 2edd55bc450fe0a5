"""One key for all attempts at a request, and one time limit, whichever library sends it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Thread
from typing import Protocol, TypeVar

from .retries import Answer, Attempts

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1

LATE = "No whole answer within the time that Retries(seconds=...) allows."


class HasClose(Protocol):
    """A response of any library."""

    def close(self) -> object:
        """Give its connection back."""


R = TypeVar("R", bound=HasClose)


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


def exchange(
    attempts: Attempts,
    send: Callable[[float], tuple[R, Answer]],
    sleep: Callable[[float], object],
    no_answer: tuple[type[Exception], ...],
) -> R:
    """Send a request until its answer is final, or one of the errors `no_answer` is.

    `send` makes one attempt within so many seconds.
    """
    while True:
        try:
            response, answer = send(attempts.begin())
        except no_answer as error:
            seconds = attempts.wait_after_error(error)
            if seconds is None:
                raise
        else:
            seconds = attempts.wait_after_answer(answer)
            if seconds is None:
                return response
            response.close()
        sleep(seconds)


def within(
    seconds: float, attempt: Callable[[], tuple[R, Answer]], late: Callable[[], Exception]
) -> tuple[R, Answer]:
    """Make an attempt in a thread, and raise the error `late` if it takes longer than it may.

    The time-outs of requests and httpx are for single steps: a server that sends a byte now and
    then never meets one, and resolving a name has none. A thread that is late is left behind; its
    own time-outs end it, or the end of the answer, which is closed.
    """
    done: Future[tuple[R, Answer]] = Future()

    def run() -> None:
        try:
            done.set_result(attempt())
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
            done.set_exception(error)

    try:
        Thread(target=copy_context().run, args=(run,), daemon=True).start()
    except RuntimeError:  # no threads at the interpreter's exit
        return attempt()
    try:
        if not wait([done], seconds).done:
            raise late()
    except BaseException:  # also a KeyboardInterrupt
        done.add_done_callback(_close)
        raise
    return done.result()


def _close(done: Future[tuple[R, Answer]]) -> None:
    if done.exception() is None:
        done.result()[0].close()
