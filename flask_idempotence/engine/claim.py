"""One request at one guard: what it is called by, and what it holds while its view runs."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from flask import has_request_context, request
from flask.globals import request_ctx

from ..request.hashing import SHORT_HASH
from ..request.proxies import actual
from ..signals import emit
from ..stores.base import NO_FINGERPRINT

if TYPE_CHECKING:
    from blinker import NamedSignal
    from flask import Flask, Request, Response

    from ..exactly_once.transaction import Transaction
    from .engine import Engine
    from .guard import Guard


class Attempt:
    """A request (or a call outside one) at a guard, as signals and log lines name it.

    Attributes:
        app: the application.
        mode: `"token"`, `"lock"`, `"key"` or `"once"`.
        endpoint: the request's endpoint, the scope of `once`, or None.
        on_store_error: what its route says of a store that does not answer; None for the setting.
        key: the store key, once it is known.
    """

    __slots__ = ("app", "endpoint", "key", "mode", "on_store_error")

    def __init__(
        self, app: Flask, mode: str, endpoint: str | None, on_store_error: str | None = None
    ) -> None:
        self.app = app
        self.mode = mode
        self.endpoint = endpoint
        self.on_store_error = on_store_error
        self.key: str | None = None

    @property
    def short_key(self) -> str | None:
        """The first characters of the key's hash: enough to follow it, too few to find it out."""
        return self.key and self.key.rpartition(":")[2][:SHORT_HASH]

    def emit(self, signal: NamedSignal, **arguments: Any) -> None:
        """Send a signal about this attempt."""
        if signal.receivers:
            emit(
                signal,
                self.app,
                mode=self.mode,
                endpoint=self.endpoint,
                key=self.short_key,
                **arguments,
            )

    def __str__(self) -> str:
        return f"mode={self.mode} endpoint={self.endpoint} key={self.short_key}"


_numbers = itertools.count()


class Hold:
    """What a granted attempt holds until it is settled.

    Attributes:
        attempt: whose it is.
        key: the store key.
        context: the id of the request context in which it was granted.
        in_view: whether the view is running.
        owner: 16 random bytes; empty for a spent token, which has no lease.
        fingerprint: 16 bytes that stand for what is asked.
        keep: seconds for which the key tells of the claim if nobody settles it.
        lease: seconds of the lease that runs.
        leased_at: when that lease began, on the engine's clock, before it was asked for.
        granted_at: when the first one began.
        renewed: whether a renewal was sent; its answer may have been lost.
        lost: whether the claim turned out to have ended or to be another's.
        failed_by_hand: what the view decided of its result by hand, or None.
        raised: whether the view raised an exception.
        streaming: whether the response is settled when it is closed.
        result_failed: whether the response is a failed result.
        status: the status of the response that was recorded; 0 before that.
        unacknowledged: whether the response goes out before the store has its record.
        transaction: what its view writes in, where the engine commits it.
        commits: whether that transaction is to be committed, and not rolled back.
        detail: what the guard wants to remember.
        number: one that was granted later has a higher one.
    """

    __slots__ = (
        "_body",
        "_process",
        "_settling",
        "attempt",
        "commits",
        "context",
        "detail",
        "engine",
        "failed_by_hand",
        "fingerprint",
        "granted_at",
        "guard",
        "in_view",
        "keep",
        "key",
        "lease",
        "leased_at",
        "lost",
        "number",
        "owner",
        "raised",
        "renew_at",
        "renewed",
        "result_failed",
        "status",
        "streaming",
        "transaction",
        "unacknowledged",
    )

    def __init__(self, engine: Engine, guard: Guard, attempt: Attempt, key: str) -> None:
        self.engine = engine
        self.guard = guard
        self.attempt = attempt
        self.key = key
        self.context = 0
        self.in_view = False
        self.owner = b""
        self.fingerprint = NO_FINGERPRINT
        self.lease = self.keep = 0.0
        self.leased_at = self.granted_at = self.renew_at = 0.0
        self.renewed = False
        self.lost = False
        self.failed_by_hand: bool | None = None
        self.raised = False
        self.streaming = False
        self.result_failed = False
        self.status = 0
        self._body: Any = None
        self.unacknowledged = False
        self.transaction: Transaction | None = None
        self.commits = False
        self.detail: Any = None
        self.number = next(_numbers)
        self._settling = threading.Lock()
        self._process = os.getpid()

    @property
    def settled(self) -> bool:
        """Whether its settlement has begun, or is none of this process's business.

        A view may fork. What it holds stays the parent's, however the child goes on: it may leave
        by the same ways out, and settling there would free what the parent still works on.
        """
        return self._settling.locked() or self._process != os.getpid()

    def begin_settlement(self) -> bool:
        """Whether the caller is the one who settles it: true once, and in one process."""
        return self._process == os.getpid() and self._settling.acquire(blocking=False)

    def response_seen(self, response: Response) -> None:
        """Note the response of the view, as it is before the application's own hooks."""
        self.status = response.status_code
        self._body = response.response

    def is_changed(self, response: Response) -> bool:
        """Whether a response has another status or another body than the one that was seen.

        A compressed or streamed body does not count: it cannot be judged.
        """
        if response.status_code != self.status:
            return True
        is_readable = not response.is_streamed and "Content-Encoding" not in response.headers
        return response.response is not self._body and is_readable

    def begin_lease(self, lease: float, at: float) -> None:
        """Note a lease of so many seconds that was asked for at this time."""
        self.lease = lease
        self.leased_at = at
        self.renew_at = at + lease / 3

    @property
    def lease_end(self) -> float:
        """When the lease ends, on the engine's clock."""
        return self.leased_at + self.lease


_HOLDS = "_flask_idempotence_holds"
_REPLAYED = "_flask_idempotence_replayed"


def add_hold(request: Request, hold: Hold) -> None:
    """Note what a request holds from now on, while its view runs and until it is settled."""
    hold.context = id(actual(request_ctx))
    hold.in_view = True
    vars(request).setdefault(_HOLDS, []).append(hold)


def note_replay(request: Request) -> None:
    """Note that a request is answered by a remembered response."""
    vars(request)[_REPLAYED] = True


def is_replayed(request: Request) -> bool:
    """Whether a request is answered by a remembered response."""
    return _REPLAYED in vars(request)


def holds_of(request: Request) -> Sequence[Hold]:
    """Return what a request holds, outermost first."""
    holds: Sequence[Hold] = vars(request).get(_HOLDS, ())
    return holds


_blocks: ContextVar[tuple[Hold, ...]] = ContextVar("flask_idempotence_blocks", default=())


@contextmanager
def block_of(hold: Hold) -> Iterator[None]:
    """Note a hold that is about the code within, be there a request or not."""
    _blocks.set((*_open_blocks(), hold))
    try:
        yield
    finally:
        # Not by a token: blocks may end in another order than they began in, and a generator may
        # be closed in another context than it was begun in.
        _blocks.set(tuple(other for other in _blocks.get() if other is not hold))


def _open_blocks() -> Sequence[Hold]:
    # What is settled has ended elsewhere.
    return [hold for hold in _blocks.get() if not hold.settled]


def _around() -> Sequence[Hold]:
    """Return the holds of the guards around the code that is running, outermost first."""
    holds = holds_of(actual(request)) if has_request_context() else ()
    in_view = [hold for hold in holds if hold.in_view]
    around = sorted([*in_view, *_open_blocks()], key=attrgetter("number"))
    # A body that is still being made runs after its view has returned.
    return around if in_view else [*holds[:1], *around]


class CurrentGuard:
    """The innermost guard around the code that is running; a no-op where there is none.

    Where guards stand around one another, `ensure_held` is about all of them.
    """

    @property
    def _hold(self) -> Hold | None:
        return next(reversed(_around()), None)

    @property
    def mode(self) -> str | None:
        """`"token"`, `"lock"`, `"key"` or `"once"`, or None where nothing is guarded."""
        return None if (hold := self._hold) is None else hold.attempt.mode

    @property
    def key(self) -> str | None:
        """The shortened hash that log lines and signals show, or None."""
        return None if (hold := self._hold) is None else hold.attempt.short_key

    @property
    def replayed(self) -> bool:
        """Whether this request is answered by a remembered response.

        A replay does not run the view: it is `after_request` functions that may see True here.
        """
        return has_request_context() and is_replayed(actual(request))

    @property
    def lost(self) -> bool:
        """Whether the claim is known to have ended while the view ran."""
        return (hold := self._hold) is not None and hold.lost

    def release(self) -> None:
        """Let the same request be sent again, whatever the view answers."""
        if (hold := self._hold) is not None:
            hold.failed_by_hand = True

    def keep(self) -> None:
        """Let this count as done, whatever the view answers."""
        if (hold := self._hold) is not None:
            hold.failed_by_hand = False

    def ensure_held(self) -> None:
        """Renew the lease at the store, in one round trip; call it before what cannot be undone.

        At least two thirds of a lease are left afterwards. It narrows the gap in which a frozen
        process loses its claim without noticing; it does not close it.

        Raises:
            LeaseLost: the claim is no longer ours.
            StoreUnavailable: the store does not answer, and the policy is to refuse then.
        """
        for hold in _around():
            if hold.owner:
                hold.engine.ensure_held(hold)


current_guard: CurrentGuard = CurrentGuard()
"""What guards the running view: `mode`, `key`, `replayed`, `lost`; `release()`, `keep()`,
`ensure_held()`."""
