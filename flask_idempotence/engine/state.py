"""Which claims are around the running code: those of its request, and those of blocks.

The claims of guards hang on the request, so they are seen wherever the request is, also in
`copy_current_request_context`. Blocks (`once`, `lock`, `step`) are in a ContextVar. A request that
Flask dispatches is an operation of its own: blocks that began before it are not around its code. A
request context that was only pushed belongs to the blocks around it.
"""

from __future__ import annotations

import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from flask import Flask, Request, Response, has_request_context

from ..request.body import check_input
from ..request.input import CHECKED
from ..request.proxies import current_context, current_request
from .guard import Claim, Runner, numbers
from .values import Verdict

if TYPE_CHECKING:
    from flask.ctx import RequestContext

_STATE = "_flask_idempotence"  # the attribute of a request that holds its state

# Of the blocks around the running code, and of those that it has outlived.
_begun_blocks: ContextVar[tuple[Claim, ...]] = ContextVar("flask_idempotence_blocks", default=())

# The number of the last request that Flask has dispatched in this context.
dispatched: ContextVar[int] = ContextVar("flask_idempotence_dispatched", default=0)


class Observed(ABC):
    """What the guards of a request have found that only observe."""

    @abstractmethod
    def decide(self, enforced: Claim | None, verdict: Verdict, ttl: Any) -> None:
        """Note a decision of the view, unless it is about an enforced guard further in."""

    @abstractmethod
    def finish(self, response: Response | None) -> None:
        """End the claims by the response that is sent; None where there is none."""


@dataclass(eq=False, repr=False, slots=True)
class RequestState:
    """A request's claims and replay."""

    number: int = 0  # those of claims within it are higher; 0 for a context that was only pushed
    before: int = 0  # the number of the request around it
    context: int = 0  # the id of the context in which it was dispatched
    claims: list[Claim] = field(default_factory=list)  # of its guards, outermost first
    replayed: int | None = None  # status of the response that is replayed; 0 until it is certain
    unguarded: Claim | None = None  # of an operation with steps that runs without a claim
    observed: Observed | None = None
    has_met_outage: bool = False  # the store has not answered a guard of it

    def enter(self, claim: Claim, context: RequestContext) -> None:
        """Note that the view of a claim begins: for the first time, or once more under it.

        The names of its steps begin again. A decision to keep the claim stays, for the earlier run
        has had its effects; one to release it does not.
        """
        claim.context, claim.in_view, claim.has_raised = id(context), True, False
        if claim in self.claims:  # blocks may have begun around it since then
            self.claims.remove(claim)
            claim.number, claim.steps = next(numbers), frozenset()
            if claim.by_hand is Verdict.RELEASED:
                claim.by_hand = None
            if claim.transaction is not None:
                claim.transaction.is_view_over = False
        self.claims.append(claim)
        if claim.is_granted:
            claim.input = context.request.environ.get(CHECKED)

    def run_unguarded(self, claim: Claim) -> None:
        """Let an operation with steps run without a claim; the outermost one counts.

        Where its view is called again, the names of its steps begin again.
        """
        outermost = self.unguarded
        if claim.guard.takes_steps and (outermost is None or outermost.guard is claim.guard):
            self.unguarded = claim


def state_of(request: Request) -> RequestState:
    try:
        state: RequestState = vars(request)[_STATE]
    except KeyError:
        state = vars(request)[_STATE] = RequestState()
    return state


def begin_request(_: Flask, **__: object) -> None:
    """Note that a request is an operation of its own; receives the signal `request_started`.

    Its body is checked from now on, since the application may read it before a guard does.
    """
    context = current_context()
    state = state_of(context.request)
    state.number, state.before, state.context = next(numbers), dispatched.get(), id(context)
    dispatched.set(state.number)
    check_input(context.request.environ)


def enter_block(claim: Claim) -> None:
    claim.runner = this_runner()
    claim.request = current_request() if has_request_context() else None
    _begun_blocks.set((*(block for block in _begun_blocks.get() if not block.settled), claim))


def leave_block(claim: Claim) -> None:
    # Not by a token: blocks may end in another order than they began in, and a generator may be
    # closed in another context than it was begun in.
    _begun_blocks.set(tuple(block for block in _begun_blocks.get() if block is not claim))


def this_runner() -> Runner:
    """Return the process, the thread and the asyncio task in which this code runs."""
    task = None
    # A caller that runs a task has imported it; importing it takes longer than this package.
    if (asyncio := sys.modules.get("asyncio.tasks")) is not None:
        with suppress(RuntimeError):  # no event loop runs in this thread
            task = asyncio.current_task()
    return os.getpid(), threading.get_ident(), task


def open_blocks() -> Sequence[Claim]:
    """Return the claims of the blocks around the running code, outermost first.

    Some have no lease: `once` without an answer of the store.
    """
    if not (blocks := _begun_blocks.get()):
        return ()
    begun = 0
    if has_request_context():
        begun = state_of(current_request()).number or dispatched.get()
    return [block for block in blocks if block.number > begun and not block.settled]


def own_blocks(app: Flask) -> Sequence[Claim]:
    """Return the claims of an application whose blocks the running code has begun itself.

    Begun in the same thread, asyncio task and request: a context is copied into tasks, and may be
    into threads, which run beside the block. One that is known to be lost is no longer their own.
    """
    if not (blocks := open_blocks()):
        return ()
    here = this_runner()
    return [
        claim for claim in blocks if claim.app is app and claim.runner == here and not claim.lost
    ]


def outlived_blocks() -> Sequence[Claim]:
    """Return the claims of blocks in which this code was started, and that are not its own.

    They have ended, or belong to the parent process. A request that began later is not about them.
    """
    here = this_runner()
    request = current_request() if has_request_context() else None
    return [
        claim
        for claim in _begun_blocks.get()
        if claim.settled and claim.runner != here and claim.request is request
    ]


def claims_around(*, after_view: bool = True) -> Sequence[Claim]:
    """Return the claims around the running code, outermost first.

    `after_view`: once the views of a request have ended, its claims are around their error
    handlers, its hooks and its streamed body.
    """
    claims = state_of(current_request()).claims if has_request_context() else []
    in_view = [claim for claim in claims if claim.in_view]
    blocks = [block for block in open_blocks() if block.is_granted or block.transaction]
    if in_view or not after_view:
        return sorted([*in_view, *blocks], key=attrgetter("number"))
    return [*claims, *blocks]
