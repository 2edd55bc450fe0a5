"""Connecting by host name: the look-up and each address have an end.

The system's resolver has no time limit, so a thread asks it: one at a time for a name, which all
callers share, each until its own deadline. Where no further thread can start, it has no limit.

    0 s      a look-up begins for a name that was resolved before
    0.05 s   no answer yet: the earlier addresses are tried, the one that was reached last first
    0.4 s    the first does not answer: the next one is tried
    0.5 s    reached: it is the first the next time, if the look-up still finds it
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from ..process import call_in_children, start_daemon
from .deadlines import deadline

Question = tuple[str, int, int]  # a host, a port, and the family of addresses, 0 for any
Address = tuple[Any, ...]  # `socket.getaddrinfo` returns them
_GRACE = 0.05  # seconds that a new look-up has before earlier addresses are tried
_LEAST = 0.3  # seconds that an address has to answer, at least, if the deadline leaves them


class Names:
    """The look-ups of this process that are under way, and the addresses found last.

    The order of addresses is that of the next attempt: the one that was reached, those that were
    not tried, those that failed.
    """

    def __init__(self) -> None:
        self.found: dict[Question, list[Address]] = {}
        self._begin()
        call_in_children(self._begin)  # a child lacks the threads of its parent

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Question, tuple[float, Future[None]]] = {}

    def connect(
        self, question: Question, reach: Callable[[Address], socket.socket]
    ) -> socket.socket:
        """Return a connection to the first address that `reach` returns one to."""
        (began, look_up), tried, good = self._look_up(question), list[Address](), None
        problem: OSError = OSError("The name has no address.")
        try:
            while True:
                patience, is_known = deadline.left(), question in self.found
                try:
                    look_up.result(min(_GRACE, patience) if is_known and not tried else patience)
                except (OSError, UnicodeError) as error:
                    if not is_known:
                        is_late = time.monotonic() >= began + deadline.now.length
                        raise TimeoutError(str(error)) if is_late else error from None
                is_last = look_up.done()
                pending = [each for each in self.found[question] if each not in tried]
                for number, address in enumerate(pending):
                    rest = len(pending) - number
                    share = max(_LEAST, deadline.left() / (rest + 1)) if rest > 1 else patience
                    try:
                        with deadline.limit(share):
                            connected = reach(address)
                    except OSError as error:
                        # A time-out says more than a refusal.
                        problem = problem if isinstance(problem, TimeoutError) else error
                        tried.append(address)
                        if look_up.done() and not is_last:
                            break  # the addresses that it has found come first
                    else:
                        good = address
                        return connected
                if is_last:
                    raise problem
        finally:
            if question in self.found:
                self.found[question] = sorted(
                    self.found[question], key=lambda each: 2 if each in tried else each != good
                )

    def _look_up(self, question: Question) -> tuple[float, Future[None]]:
        with self._lock:
            if question in self._under_way:
                return self._under_way[question]
            began, look_up = self._under_way[question] = time.monotonic(), Future()
        run = partial(self._run, look_up, question)
        # It holds no lock here: under gevent, starting a thread lets others run.
        if _is_address(question) or not start_daemon(run, "flask-idempotence-names"):
            run()
        return began, look_up

    def _run(self, look_up: Future[None], question: Question) -> None:
        problem = None
        try:
            new = socket.getaddrinfo(*question, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            problem = error
        else:
            known = [each for each in self.found.get(question, []) if each in new]
            self.found[question] = known + [each for each in new if each not in known]
        with self._lock:
            self._under_way.pop(question, None)
        look_up.set_exception(problem) if problem else look_up.set_result(None)


def _is_address(question: Question) -> bool:
    try:
        socket.getaddrinfo(*question, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


names: Names = Names()
