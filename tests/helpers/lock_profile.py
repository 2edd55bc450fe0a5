"""A profile of the package's own locks: which are taken, and receives while one is held."""

import socket
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from unittest import mock

PACKAGE = "flask_idempotence"


class LockProfile:
    """Watches the locks that the package makes while this lasts.

    Attributes:
        taken: how often each lock was taken, by the class that made it.
        receivers: the identifiers of the threads that received from a socket.
        held_in_receive: receives from a socket by threads that held a lock, by that lock.
    """

    def __init__(self):
        self.taken = Counter()
        self.receivers: set[int] = set()
        self.held_in_receive = Counter()
        self._held = threading.local()

    def __enter__(self):
        self._patches = ExitStack()
        self._make = threading.Lock
        self._patches.enter_context(mock.patch.object(threading, "Lock", self._lock))
        for name in ("recv", "recv_into"):
            watched = self._watched(getattr(socket.socket, name))
            self._patches.enter_context(mock.patch.object(socket.socket, name, watched))
        return self

    def __exit__(self, *_):
        self._patches.close()

    def held(self) -> list[str]:
        """Return the names of the locks that this thread holds."""
        if not hasattr(self._held, "names"):
            self._held.names = []
        return self._held.names

    def _lock(self):
        maker = sys._getframe(1)
        module = maker.f_globals["__name__"]
        if module.partition(".")[0] != PACKAGE:
            return self._make()
        owner = maker.f_locals.get("self")
        name = module.removeprefix(f"{PACKAGE}.") + (f".{type(owner).__name__}" if owner else "")
        return _ProfiledLock(self, name, self._make())

    def _watched(self, receive):
        def watched(connection, *arguments):
            self.receivers.add(threading.get_ident())
            self.held_in_receive.update(self.held())
            return receive(connection, *arguments)

        return watched


class _ProfiledLock:
    def __init__(self, profile: LockProfile, name: str, lock):
        self._profile, self._name, self._lock = profile, name, lock

    def acquire(self, blocking=True, timeout=-1):
        if not self._lock.acquire(blocking, timeout):
            return False
        self._profile.taken[self._name] += 1  # may lose a count: a profile, no ledger
        self._profile.held().append(self._name)
        return True

    def release(self):
        self._profile.held().remove(self._name)
        self._lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()

    def __getattr__(self, name):
        return getattr(self._lock, name)
