"""Streamed responses: their body is made while it is being sent."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flask import Response


def settle_when_closed(
    response: Response,
    *,
    settle: Callable[[bool], object],
    abandon: Callable[[], None],
    defer: Callable[[Callable[[], None]], None],
) -> None:
    """Settle when a streamed response is closed, or is dropped without having been closed.

    Args:
        response: the response; its body is replaced.
        settle: takes whether an exception ended the body; may be called more than once.
        abandon: called where a `BaseException` that is no `Exception` ended it.
        defer: runs a callback soon, in another thread: the garbage collector finalizes a dropped
            response at any point, where waiting for a lock is not safe.
    """
    broken = [False]

    def end() -> None:
        settle(broken[0])

    response.response = _Watched(response.response, broken, abandon)
    response.call_on_close(end)
    # Another hook may replace the response, and a HEAD request never opens it.
    weakref.finalize(response, defer, end).atexit = False


class _Watched(Iterator[Any]):
    """An iterable body that notes how it ended."""

    def __init__(
        self,
        body: Iterable[Any],
        broken: list[bool],
        abandon: Callable[[], None],
    ) -> None:
        self._body = body
        self._parts = iter(body)
        self._broken = broken
        self._abandon = abandon

    def __next__(self) -> Any:
        try:
            return next(self._parts)
        except StopIteration:
            raise
        except Exception:
            self._broken[0] = True
            raise
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        """Close the body that is watched."""
        close = getattr(self._body, "close", None)
        if close is not None:
            close()
