"""The publisher: sends the signals of an application to `flask idempotence watch`.

    receivers (any thread)       publisher's thread
    event -> bounded queue       does a command listen?
                                 yes: the events in one message; four times a second
                                 no: receivers stop queueing; asks once a second

A request never waits for it: a full queue drops events and counts them, and a store that does not
answer delays the thread only. The first event starts the thread.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections import deque
from contextvars import Context
from functools import partial
from typing import Any

from flask import Flask

from ..errors import StoreError
from ..signals import ALL_SIGNALS
from ..stores.base import BroadcastingStore
from ..stores.process import call_at_exit, call_in_children, start_daemon
from .figures import PASSED_ON

_logger = logging.getLogger("flask_idempotence")

MOST_EVENTS = 10_000
"""Events in the queue of a process; further ones are dropped."""

BATCH = 500
"""Events in a message, of some 150 bytes each."""

PUBLISH_EVERY = 0.25
POLL_EVERY = 1.0
"""Seconds between two questions whether a command listens: while one does, and else."""

LINGER = 5.0
"""Seconds for which events are queued after the last command has left, or the store has failed: a
command that lost its connection comes back."""

EXIT_TIMEOUT = 1.0
"""Seconds that the last messages may delay the exit of the process."""


def channel_of(prefix: str) -> str:
    return f"{prefix}:watch"


class Publisher:
    """Publishes the events of this process on a daemon thread, after a fork on the child's own."""

    def __init__(self, store: BroadcastingStore, prefix: str) -> None:
        self._store = store
        self._channel = channel_of(prefix)
        self._forget()
        call_in_children(self._forget)
        call_at_exit(self._shut_down)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[tuple[object, ...]] = deque()
        self._dropped = 0
        self._is_started = False
        self._ending = threading.Event()
        # Until the first answer, a command may listen.
        self._is_queueing = True
        self._is_heard = False
        self._linger_until = float("-inf")
        self._source: dict[str, object] = {
            "worker": f"{socket.gethostname().partition('.')[0]}/{os.getpid()}",
            "run": os.urandom(8).hex(),  # another process may get the same id
        }
        self._messages = 0
        self._unsent = b""
        self._has_warned = False

    def connect(self, app: Flask) -> None:
        for signal in ALL_SIGNALS:
            signal.connect(partial(self._receive, signal.name), app, weak=False)

    def _receive(self, name: str, _app: Flask, /, **sent: Any) -> None:
        """Queue the event of a signal, of values that no client has made up.

        It is made on the thread of the request: an error would keep the request itself in memory.
        """
        if not self._is_queueing:
            return
        if len(self._events) < MOST_EVENTS:
            place = (sent["mode"], sent["endpoint"], sent["key"])
            outcome = sent["error"].slug if name == "rejected" else name
            facts = {argument: sent[argument] for argument in PASSED_ON.get(name, ())}
            self._events.append((time.time(), name, *place, outcome, facts))
        else:
            with self._lock:
                self._dropped += 1
        if not self._is_started:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._is_started:
                return
            self._is_started = True
            self._ended = threading.Event()  # here: gevent may have patched threads since the fork
        # Without the context of the request that starts it, which some threads inherit; and not
        # under the lock: under gevent, this switches to the thread.
        run = partial(Context().run, self._run)
        if not start_daemon(run, "flask-idempotence-watch"):
            self._is_started = False  # out of threads: the next event tries again

    def _run(self) -> None:
        while not self._ending.is_set():
            self._work()
            self._ending.wait(PUBLISH_EVERY if self._is_heard else POLL_EVERY)
        if self._is_queueing:
            self._work()
        self._ended.set()

    def _work(self) -> None:
        try:
            self._publish(time.monotonic())
        except StoreError as error:
            self._is_heard = False  # the connections of the commands may be lost, too
            self._linger_until = time.monotonic() + LINGER
            if not self._has_warned:
                self._has_warned = True
                _logger.warning(
                    "The signals cannot be published for 'flask idempotence watch', which affects "
                    "no guard; trying again: %s",
                    error,
                )
        except Exception:
            _logger.exception("The publisher of signals failed, and continues.")

    def _publish(self, now: float) -> None:
        self._is_heard = self._store.count_listeners(self._channel) > 0
        if self._is_heard:
            self._linger_until = now + LINGER
        self._is_queueing = now < self._linger_until
        if not self._is_queueing:
            self._events.clear()
            self._dropped, self._unsent = 0, b""
        while self._is_heard and (self._unsent or self._events):
            # Kept until the store has answered: the command passes over one that comes twice.
            if not self._unsent:
                self._messages += 1
                events = [self._events.popleft() for _ in range(min(len(self._events), BATCH))]
                message = {"number": self._messages, "dropped": self._dropped, "events": events}
                self._unsent = json.dumps(self._source | message, separators=(",", ":")).encode()
            self._store.publish(self._channel, self._unsent)
            self._unsent = b""
        self._has_warned = False

    def _shut_down(self) -> None:
        self._ending.set()
        if self._is_started:
            self._ended.wait(EXIT_TIMEOUT)
        self._is_queueing = False
