"""Gives up on a server that does not answer.

The server's own time-outs help only while it runs: where it is frozen, or the network is gone, a
driver waits for ever. At the deadline the connection's socket is then shut down from outside, and
the driver finds the connection broken.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

from ..process import call_in_children, start_daemon

_LINGER = 5.0
"""Seconds without work after which the thread ends."""


class Watchdog:
    """One daemon thread that shuts down the sockets of overdue operations.

    It starts with the first operation and ends when there has been none for a while.
    """

    def __init__(self) -> None:
        self._begin()
        call_in_children(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._watched: dict[object, tuple[float, int]] = {}  # deadline and socket
        self._wake_at = 0.0
        self._is_running = False

    def watch(self, operation: object, file_number: int, deadline: float) -> None:
        """Shut a socket down at a time of the monotonic clock, unless the operation ends before.

        Call `unwatch` in any case.
        """
        with self._lock:
            self._watched[operation] = (deadline, file_number)
            is_running, self._is_running = self._is_running, True
            if is_running and deadline < self._wake_at:
                self._changed.notify()
        if not is_running and not start_daemon(self._run, "flask-idempotence-sql"):
            self._is_running = False  # out of threads: the next operation tries again

    def unwatch(self, operation: object) -> None:
        """End an operation, before its socket's number can be another connection's."""
        with self._lock:
            self._watched.pop(operation, None)

    def _run(self) -> None:
        with self._changed:
            idle_at = time.monotonic() + _LINGER
            while self._watched or time.monotonic() < idle_at:
                now = time.monotonic()
                overdue = [each for each, (at, _) in self._watched.items() if at <= now]
                for operation in overdue:
                    _shut_down(self._watched.pop(operation)[1])
                if self._watched:
                    idle_at = now + _LINGER
                deadlines = (at for at, _ in self._watched.values())
                self._wake_at = min(deadlines, default=idle_at)
                self._changed.wait(self._wake_at - now)
            self._is_running = False


def _shut_down(file_number: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(file_number)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
