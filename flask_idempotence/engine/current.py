"""`current_guard`: the innermost guard around the running code."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from itertools import dropwhile
from operator import attrgetter

from flask import Flask, has_request_context, request

from ..errors import ConfigurationError
from ..request.proxies import actual
from ..response.headers import note_on
from .engine import engine_of
from .guard import Claim, Runner, Verdict

_blocks: ContextVar[tuple[Claim, ...]] = ContextVar("flask_idempotence_blocks", default=())
"""Of the blocks around the running code, and of those that it has outlived."""


def enter_block(claim: Claim) -> None:
    claim.runner = _runner()
    _blocks.set((*_open_blocks(), claim))


def leave_block(claim: Claim) -> None:
    # Not by a token: blocks may end in another order than they began in, and a generator may be
    # closed in another context than it was begun in.
    _blocks.set(tuple(block for block in _blocks.get() if block is not claim))


def own_blocks(app: Flask) -> Sequence[Claim]:
    """Return the claims of an application whose blocks the running code has begun itself.

    Begun in the same thread, request and asyncio task: a context is copied into tasks, and may be
    into threads, which run beside the block. One that is known to be lost is no longer their own.
    """
    if not (blocks := _open_blocks()):
        return ()
    here = _runner()
    return [
        claim for claim in blocks if claim.app is app and claim.runner == here and not claim.lost
    ]


def _open_blocks() -> Sequence[Claim]:
    return [claim for claim in _blocks.get() if not claim.settled]


def _runner() -> Runner:
    """Return the process, the thread, the asyncio task and the request in which this code runs."""
    current, task = actual(request) if has_request_context() else None, None
    # A caller that runs a task has imported it; importing it takes longer than this package.
    if (asyncio := sys.modules.get("asyncio.tasks")) is not None:
        with suppress(RuntimeError):  # no event loop runs in this thread
            task = asyncio.current_task()
    return os.getpid(), threading.get_ident(), task, current


def _around(*, or_before: bool = True) -> Sequence[Claim]:
    """Return the claims around the running code, outermost first.

    After the view, they are `or_before` that of its guard.
    """
    claims: list[Claim] = note_on(request).claims if has_request_context() else []
    in_view = [claim for claim in claims if claim.in_view]
    around = sorted([*in_view, *_open_blocks()], key=attrgetter("number"))
    if in_view or not or_before:
        return around
    # A streamed body is made after its view has returned.
    return [*([claim for claim in claims if claim.streaming] or claims[:1]), *around]


def operations_around(app: Flask) -> Sequence[Claim]:
    """Return the claims by a key, `once` or `step` around the running code, outermost first."""
    found = [
        claim
        for claim in _around(or_before=False)
        if claim.app is app and claim.owner and claim.guard.mode in ("key", "once", "step")
    ]
    # A step whose operation is that of another request, which sends this one from its block.
    return list(dropwhile(lambda claim: claim.guard.mode == "step", found))


class CurrentGuard:
    """The innermost guard around the running code; a no-op where there is none.

    Where guards are nested, `ensure_held` is about all of them. In a block of `Idempotence.lock`,
    `release` and `keep` are about the guard around it.
    """

    @property
    def _claim(self) -> Claim | None:
        return next(reversed(_around()), None)

    @property
    def mode(self) -> str | None:
        """`"token"`, `"lock"`, `"key"`, `"once"`, `"step"` or `"mutex"`; None without a guard."""
        return None if (claim := self._claim) is None else claim.guard.mode

    @property
    def key(self) -> str | None:
        """The shortened hash that log lines and signals show, or None."""
        return None if (claim := self._claim) is None else claim.short_key

    @property
    def replayed(self) -> bool:
        """Whether this request is answered by a remembered response.

        A replay does not run the view: only `after_request` functions can see True here.
        """
        return has_request_context() and note_on(request).replayed is not None

    @property
    def lost(self) -> bool:
        """Whether the claim has ended while the view ran, as far as is known."""
        return (claim := self._claim) is not None and claim.lost

    def release(self) -> None:
        """Release the claim after the view, even a successful one: the request may run again."""
        self._decide(Verdict.RELEASED)

    def keep(self, *, ttl: float | timedelta | None = None) -> None:
        """Count this request as done, even if the view fails.

        Args:
            ttl: seconds, or a `timedelta`, for which the response is remembered; behind a key
                only. None: those of the route.

        Raises:
            ConfigurationError: `ttl` is no duration; the guard is no key; the response has been
                recorded already; or the key is a one-time token, and `ttl` is less than that of
                the route.
        """
        self._decide(Verdict.KEPT, ttl)

    @staticmethod
    def _decide(verdict: Verdict, ttl: float | timedelta | None = None) -> None:
        # A named lock is released anyway: the guard around it is meant.
        for claim in reversed(_around()):
            if claim.guard.by_verdict:
                if ttl is not None:
                    checked = claim.guard.time_to_keep(ttl)
                    if claim.record is not None or claim.settled:
                        raise ConfigurationError(
                            "current_guard.keep(ttl=...) comes too late: the response has been "
                            "recorded. Call it in the view."
                        )
                    claim.ttl = checked
                claim.by_hand = verdict
                return
        if has_request_context() and (observed := note_on(request).observed) is not None:
            for claim in observed.claims[-1:]:
                claim.by_hand = verdict

    def ensure_held(self) -> None:
        """Renew the lease in one round trip; call it before a step that cannot be undone.

        At least two thirds of a lease are left afterwards. It narrows the gap in which a frozen
        process loses its claim without noticing; it does not close it.

        Raises:
            LeaseLost: the claim has ended, or another owner has it; also in a task or thread that
                has outlived the block in which it was started, and in a forked child.
            StoreUnavailable: the store does not answer, and the policy is to reject.
        """
        here = _runner()
        # Blocks in which this code was started, and that are not its own: they have ended, or
        # belong to the parent process. A request that began later is not about them.
        outlived = [
            claim
            for claim in _blocks.get()
            if claim.settled and claim.runner not in (None, here) and claim.runner[-1] is here[-1]
        ]
        for claim in (*outlived, *_around()):
            if claim.owner:
                engine_of(claim.app).keeper.ensure_held(claim)


current_guard: CurrentGuard = CurrentGuard()
"""The guard around the running view: `mode`, `key`, `replayed`, `lost`; `release()`, `keep()`,
`ensure_held()`."""
