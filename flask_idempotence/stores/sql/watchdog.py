"""Gives up on a server that has fallen silent.

The time that a server is told to keep helps only while it keeps time: where it is frozen, or the
network is gone, a driver waits for ever. At the deadline the connection is then shut down from
outside, and the driver finds it broken.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LINGER = 5.0
"""Seconds without work after which the thread ends."""


class _Watched:
    __slots__ = ("file_number", "is_over", "lock")

    def __init__(self, file_number: int) -> None:
        self.file_number = file_number
        self.is_over = False
        self.lock = threading.Lock()

    def end(self) -> None:
        with self.lock:
            self.is_over = True

    def shut_down(self) -> None:
        with self.lock:  # so that the number is not another connection's by now
            if self.is_over:
                return
            with (
                contextlib.suppress(OSError),
                socket.socket(fileno=os.dup(self.file_number)) as it,
            ):
                it.shutdown(socket.SHUT_RDWR)


class Watchdog:
    """One daemon thread that shuts connections down whose time is over.

    It starts with the first work and ends when there has been none for a while.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a child process there is no thread."""
        self._changed = threading.Condition(threading.Lock())
        self._watched: list[tuple[float, int, _Watched]] = []
        self._count = 0
        self._wake_at = 0.0
        self._is_running = False

    @contextmanager
    def watch(self, file_number: int | None, at: float) -> Iterator[None]:
        """Shut a socket down at a time of the monotonic clock, unless the block ends before."""
        if file_number is None:
            yield
            return
        watched = _Watched(file_number)
        self._start(self._add(at, watched))
        try:
            yield
        finally:
            watched.end()

    def _add(self, at: float, watched: _Watched) -> threading.Thread | None:
        with self._changed:
            self._count += 1
            heapq.heappush(self._watched, (at, self._count, watched))
            if self._is_running:
                if at < self._wake_at:
                    self._changed.notify()
                return None
            self._is_running = True
            return threading.Thread(target=self._run, name="flask-idempotence-sql", daemon=True)

    def _start(self, thread: threading.Thread | None) -> None:
        if thread is None:
            return
        try:
            thread.start()
        except RuntimeError:  # out of threads: the next work tries again
            self._is_running = False

    def _run(self) -> None:
        while (late := self._next()) is not None:
            late.shut_down()

    def _next(self) -> _Watched | None:
        """Wait for somebody whose time is over; return None after a while without work."""
        with self._changed:
            idle_at = time.monotonic() + _LINGER
            while True:
                while self._watched and self._watched[0][2].is_over:
                    heapq.heappop(self._watched)
                now = time.monotonic()
                if self._watched and self._watched[0][0] <= now:
                    return heapq.heappop(self._watched)[2]
                if not self._watched and now >= idle_at:
                    self._is_running = False
                    return None
                if self._watched:
                    idle_at = now + _LINGER
                self._wake_at = self._watched[0][0] if self._watched else idle_at
                self._changed.wait(self._wake_at - now)
