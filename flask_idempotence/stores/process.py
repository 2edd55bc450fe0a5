"""Clocks, forks, exit, threads, sockets and the circuit breaker, for all that waits."""

from __future__ import annotations

import atexit
import os
import re
import select
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")

OPEN_AFTER = 3  # time-outs in a row that open the circuit
PROBE_EVERY = 0.5  # seconds from one operation that is sent while it is open to the next

# Clocks and sleep, for attributes and defaults. Each looks up the function of `time` when it is
# called: gevent or a frozen clock may have replaced it since.


def monotonic() -> float:
    """Return seconds that never go back."""
    return time.monotonic()


def time_of_day() -> float:
    """Return the seconds since 1970."""
    return time.time()


def sleep(seconds: float) -> None:
    """Let other threads or greenlets run for so many seconds."""
    time.sleep(seconds)


class _Process:
    """This process, and the methods that a child of it has to call.

    Attributes:
        id: the process for which they were called last.
    """

    def __init__(self) -> None:
        self.id = os.getpid()
        # A `WeakMethod` of a module's object fails when the process exits: the object is the key.
        self._methods: weakref.WeakKeyDictionary[object, Callable[[object], None]]
        self._methods = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)

    def add(self, method: Callable[[], None]) -> None:
        """Call a bound method in every child process, for as long as its object lives."""
        bound: Any = method
        self._methods[bound.__self__] = bound.__func__

    def notice_fork(self) -> None:
        """Call the methods in a child whose parent has forked without running any hook."""
        with self._lock:
            if self.id != os.getpid():
                self._begin()

    def _begin(self) -> None:
        for reference in self._methods.keyrefs():
            if (owner := reference()) is not None:
                self._methods[owner](owner)
        self.id = os.getpid()  # last: until then, other threads wait for the lock


# Its hooks set it, but a server that forks in C, such as uWSGI, runs none.
current = _Process()

call_in_children = current.add


def call_at_exit(method: Callable[[], None]) -> None:
    """Call a bound method when the interpreter ends, if its object is still alive by then.

    All threads that are not daemons have ended at that time.
    """
    reference = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    atexit.register(call)


def start_daemon(run: Callable[[], None], name: str) -> bool:
    """Start a daemon thread; return False where the process can have no further thread."""
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


def has_input(file_number: int) -> Callable[[], object]:
    """Return a function that tells whether a socket has something to receive; the end, too."""
    if hasattr(select, "poll"):
        poller = select.poll()
        poller.register(file_number, select.POLLIN)
        return partial(poller.poll, 0)
    # Windows lacks poll, and gevent removes it.
    return lambda: select.select([file_number], [], [], 0)[0]


class WeakObjects(Generic[T]):
    """The objects of one kind in this process, for as long as each lives."""

    def __init__(self) -> None:
        self._objects: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()

    def add(self, each: T) -> None:
        self._objects[id(each)] = each

    def __iter__(self) -> Iterator[T]:
        # A list of references is made in one step: other threads may add at the same time.
        return (each for known in self._objects.valuerefs() if (each := known()) is not None)


def threads_stand_still() -> bool:
    """Whether threads run only while a view does: under an old uWSGI without `enable-threads`."""
    uwsgi = sys.modules.get("uwsgi")
    # The option is the default since 2.0.27.
    if uwsgi is None or [*map(int, re.findall(rb"\d+", uwsgi.version))] >= [2, 0, 27]:
        return False
    options = {str(name): value for name, value in vars(uwsgi).get("opt", {}).items()}
    enabled = options.get("enable-threads", False) not in (False, b"false", b"off", b"no", b"0")
    return not enabled and not {"threads", "gevent"}.intersection(options)


class CircuitBreaker:
    """Counts the time-outs of one server, or of its replicas.

    Attributes:
        timeouts: how many there were in a row.
    """

    def __init__(self) -> None:
        self._begin()
        call_in_children(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self.timeouts = 0
        self._probe_at = 0.0
        self._answered = 0.0  # when the last operation began that was answered

    def allows(self, probed_until: float = 0.0) -> bool:
        """Return whether the circuit is closed, or this operation is the probe.

        The next probe is counted from the time `probed_until`, if that is to come.
        """
        if self.timeouts < OPEN_AFTER:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._probe_at:
                return False
            self._probe_at = max(now, probed_until) + PROBE_EVERY
            return True

    def count(self, began: float, *, timed_out: bool) -> None:
        """Count an operation that was sent: a time-out, or an answer."""
        if not timed_out:
            self.timeouts, self._answered = 0, max(began, self._answered)
        elif began > self._answered:  # an older one says nothing about the server now
            with self._lock:
                self.timeouts += 1
                self._probe_at = time.monotonic() + PROBE_EVERY

    def probe_next(self) -> None:
        """Let the next operation through: the server seems to answer again."""
        self._probe_at = 0.0
