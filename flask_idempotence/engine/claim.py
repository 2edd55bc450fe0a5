"""The claim of an operation: asked for, granted or refused, and settled."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from blinker import NamedSignal
from flask import Flask, has_request_context
from flask.globals import request_ctx
from flask.logging import default_handler, has_level_handler

from ..request.body import WATCHED, WatchedInput
from ..request.fingerprint import SHORT_HASH
from ..request.identity import Identity
from ..request.proxies import actual
from ..response.headers import RequestNote
from ..signals import emit, lease_lost
from ..stores.base import OWNER_BYTES, Outcome
from ..stores.process import call_in_children
from .guard import Guard, Operation, Question, Settlement, Verdict

if TYPE_CHECKING:
    from ..exactly_once.transaction import Transaction

_logger = logging.getLogger("flask_idempotence")
_debug_logger = _logger.getChild("debug")


class Owners:
    """Draws the owners of claims: the time, which commands show, and 80 random bits each.

    Many are drawn in one call of the kernel: in about half of all processes, the first such call
    of a request takes longer than a claim in memory. Two claims with one owner would be one: so a
    child process draws again, and so does one after a pause, in which a snapshot of it may have
    been restored many times.
    """

    _AT_ONCE = 16
    _GOOD_FOR = 0.1

    def __init__(self) -> None:
        self._forget()
        call_in_children(self._forget)

    def _forget(self) -> None:
        self._drawn: list[bytes] = []
        self._drawn_at = 0.0

    def draw(self) -> bytes:
        # By the wall clock: the others may be frozen in a snapshot.
        now = time.time()
        if not 0 <= now - self._drawn_at < self._GOOD_FOR:
            self._drawn, self._drawn_at = [], now
        drawn = self._drawn
        try:
            return drawn.pop()
        except IndexError:
            beginning = int(now * 1000).to_bytes(6)
            size = OWNER_BYTES - len(beginning)
            more = os.urandom(self._AT_ONCE * size)
            owners = [beginning + more[n : n + size] for n in range(0, len(more), size)]
            drawn.extend(owners[1:])
            return owners[0]


_NOT_RENEWED = (
    " (the keeper's thread did not run in time to renew it: the view let no other thread run, the "
    "process was stopped, or its server keeps threads from running, as uWSGI does without "
    "enable-threads)"
)

_REASONS = {
    Verdict.RELEASED: "current_guard.release()",
    Verdict.KEPT: "current_guard.keep()",
    Verdict.CUT_OFF: "the body of the request broke off",
}

Runner = tuple[int, int, object, object]
"""A process, a thread, an asyncio task and a request."""

_numbers = itertools.count()


class Claim(Operation):
    """A request, or a call outside one, at a guard: it asks for a claim, which may be granted.

    It is the subject of signals and log lines. It may have no key: a view that is not claimed may
    still have a transaction. A spent token has a key and no owner.
    """

    observes = False  # its view always runs
    runner: Runner | None = None  # of the block whose claim it is
    key: str | None = None  # in the store; None before it is known
    waited = 0.0  # seconds, for another request's claim to end
    traced: Question | None = None  # in debug mode, for its log
    owner = b""  # 16 random bytes; empty where there is no lease
    transaction: Transaction | None = None
    result: Verdict = Verdict.SUCCEEDED  # decisions by hand aside
    by_hand: Verdict | None = None
    kept: float | None = None  # seconds for which the store has taken the record
    body: object = None  # of the view's response, before the application's own hooks
    steps: frozenset[bytes] = frozenset()  # names of those that the view has begun
    context = 0  # the id of the request context in which it was granted
    in_view = False
    has_raised = False
    is_stopped = False  # another guard has refused before the view could run
    status = 0  # of the response that decides the settlement
    streaming = False  # it is settled when the response is closed
    lost = False  # it has ended early, or another owner has it
    unacknowledged = False  # the response goes out before the store has taken the record
    _input: WatchedInput | None = None

    def __init__(self, app: Flask, guard: Guard, endpoint: str | None) -> None:
        self.app, self.guard = app, guard
        self.endpoint = endpoint  # of the request; the scope of `once`, or `-` for a mutex
        self.on_store_error = guard.on_store_error

    def grant(self, owner: bytes = b"", at: float = 0.0) -> Self:
        self.owner, self.granted_at = owner, at
        self.extend(self.question.lease, at)
        self.number = next(_numbers)  # rises from claim to claim
        self._process = os.getpid()
        self._settling = threading.Lock()
        return self

    def extend(self, lease: float, at: float) -> None:
        """Note a lease, in seconds, and the time before the store was asked for it."""
        self.lease = lease
        self.leased_at = at
        self.renew_at = at + lease / 3

    @property
    def short_key(self) -> str | None:
        """The first characters of the hash: enough to find log lines, too few to recover it."""
        return self.key and self.key.rpartition(":")[2][:SHORT_HASH]

    @property
    def route(self) -> str:
        """The method and the rule of the request for a log line: an address holds arguments."""
        request = actual(request_ctx).request if has_request_context() else None
        if request is None or request.url_rule is None:
            return ""
        return f" route={request.method} {request.url_rule.rule}"

    def emit(self, signal: NamedSignal, **arguments: object) -> None:
        if signal.receivers:
            emit(
                signal,
                self.app,
                mode=self.guard.mode,
                endpoint=self.endpoint,
                key=self.short_key,
                **arguments,
            )

    # Error reports show the `repr` of local variables: no object says more of a request than this.
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __str__(self) -> str:
        return f"mode={self.guard.mode} endpoint={self.endpoint} key={self.short_key}"

    # The log in debug mode

    def note(self, decision: str, identity: Identity | None = None) -> None:
        """In debug mode, log the decision about this claim, with its facts.

        The decision must hold no credentials, addresses, arguments, keys or tokens. Of the
        identity, by default the question's, the line has the sources only.
        """
        if not self.app.debug:
            return
        _show_debug_log()
        facts = (" ".join(self._facts(identity)) + self.route).lstrip()
        text = f"{decision} ({facts})" if facts else decision
        _debug_logger.debug(
            "Flask-Idempotence: %s at %r: %s", self.guard.decorator, self.endpoint, text
        )

    def _facts(self, identity: Identity | None) -> Iterator[str]:
        if (question := self.traced) is not None:
            identity = identity or question.identity
        if identity is not None:
            yield f"identity={identity.sources or 'none'}"
        if question is not None:
            if question.lease:
                yield f"lease={question.lease:g}s"
            if question.wait:
                yield f"wait={question.wait:g}s"
            if self.waited:
                yield f"waited={self.waited:.3g}s"
        if self.short_key is not None:
            yield f"key={self.short_key}"

    def note_settlement(self, settlement: Settlement, outcome: Outcome | None) -> None:
        """Log how the claim was settled, and why; outcome is None without the store's answer."""
        ends = {
            "keep": "token stays spent",
            "release": "released",
            "renew": f"held for another {settlement.seconds:.3g} s",
            "complete": f"record kept for {settlement.seconds:g} s",
            "put_token": "token put back",
        }
        if self.owner:
            ends["keep"] = f"held until {self.lease:g} s after the claim"
        text = f"{self.reason}: {ends[settlement.call]}"
        if outcome is None:
            text += ", but the store has not acknowledged it"
        elif outcome is Outcome.STALE:
            text += ", but the lease was lost before"
        self.note(text)

    @property
    def reason(self) -> str:
        """The reason for the verdict."""
        if (verdict := self.verdict) in _REASONS:
            return _REASONS[verdict]
        raised = "an exception" if self.has_raised else ""
        if not self.status:
            return raised or "end of the block"
        failed = ", a failure" if verdict > Verdict.SUCCEEDED else ""
        return f"status {self.status}{raised and ' after an exception'}{failed}"

    # The view

    def enter_view(self, on_request: RequestNote) -> None:
        context = actual(request_ctx)
        self.context = id(context)
        self.in_view = True
        on_request.claims.append(self)
        if self.slot.key:
            self._input = context.request.environ.get(WATCHED)

    def leave_view(self, *, raised: bool) -> None:
        """Note that the view has returned or raised; a transaction is rolled back with it."""
        self.in_view, self.has_raised = False, raised
        if self.transaction is None or self._process != os.getpid():  # a child has its connection
            return
        if raised:
            self.result = max(self.result, Verdict.FINAL)
            self.transaction.roll_back()
        else:
            self.transaction.is_view_over = True

    # The verdict

    def judge(self, verdict: Verdict) -> None:
        """Note a verdict about the result; a failure is never taken back."""
        self.result = max(self.result, verdict)

    @property
    def verdict(self) -> Verdict:
        # A view cannot keep the writes that its exception has rolled back.
        is_undone = self.transaction is not None and self.has_raised
        if self.by_hand is not None and not (self.by_hand is Verdict.KEPT and is_undone):
            return self.by_hand
        is_cut_off = self._input is not None and self._input.is_broken
        return Verdict.CUT_OFF if is_cut_off else self.result

    # The end

    @property
    def settled(self) -> bool:
        """Whether its settlement has begun, or belongs to another process.

        A view may fork. The claim stays the parent's, however the child continues: it may leave by
        the same ways, and settling there would free an operation that still runs in the parent.
        """
        return self._settling.locked() or self._process != os.getpid()

    def begin_settlement(self) -> bool:
        """Whether the caller settles it: true once, and in one process."""
        return self._process == os.getpid() and self._settling.acquire(blocking=False)

    def lose(self, during: str, now: float) -> None:
        """Note and announce that the claim has ended early, or that another owner has it."""
        if not self.lost:
            self.lost = True
            # The next renewal is overdue by so much that the lease has ended without it.
            is_missed = now >= self.renew_at + self.lease * 2 / 3
            reason = _NOT_RENEWED if is_missed else ""
            _logger.warning("A lease was lost: %s%s", self, reason)
            self.emit(lease_lost, during=during)


def _show_debug_log() -> None:
    """Show the lines on the console unless logging is set up otherwise, as Flask does its own."""
    if not (_debug_logger.level or _logger.level):
        _debug_logger.setLevel(logging.DEBUG)
    if not has_level_handler(_debug_logger):
        _debug_logger.addHandler(default_handler)
