"""Streamed responses: their body is made while it is being sent."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flask import Response


def settle_when_closed(
    response: Response,
    *,
    settle: Callable[[bool, bool], object],
    abandon: Callable[[], None],
    defer: Callable[[Callable[[], None]], None],
) -> None:
    """Settle when a streamed response is closed, or is dropped without having been closed.

    Args:
        response: the response; its body is replaced.
        settle: takes whether the body came to its end, and whether an exception ended it; may be
            called more than once.
        abandon: called where a `BaseException` that is no `Exception` ended it.
        defer: runs a callback soon, in another thread: the garbage collector finalizes a dropped
            response at any point, where waiting for a lock is not safe.
    """
    body = _Watched(response.response, abandon)

    def end() -> None:
        settle(body.has_ended, body.has_failed)

    response.response = body
    response.call_on_close(end)
    # Another hook may replace the response, and a HEAD request never opens it.
    weakref.finalize(response, defer, end).atexit = False


class _Watched(Iterator[Any]):
    """An iterable body that notes how it ended."""

    def __init__(self, body: Iterable[Any], abandon: Callable[[], None]) -> None:
        self._body = body
        self._parts = iter(body)
        self._abandon = abandon
        self.has_ended = self.has_failed = False

    def __next__(self) -> Any:
        try:
            return next(self._parts)
        except StopIteration:
            self.has_ended = True
            raise
        except Exception:
            self.has_failed = True
            raise
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        if hasattr(self._body, "close"):
            try:
                self._body.close()
            except Exception:  # a generator may raise here
                self.has_failed = True
                raise
