"""The interface of a mode: a guard, and the claim that the engine makes for it.

A guard holds the arguments of a decorator. At the first request of a route it is bound: a copy,
has the settings in place of omitted arguments. The engine asks it and acts:

    operation(request)    the operation to claim, or a reason to let the view run unguarded
    answer(claim, found)  the reply to a repeat: a response, or a refusal
    settle(claim, now)    the end of a claim: release it, hold it, complete it with a record

A guard calls neither the engine nor the store.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from blinker import NamedSignal
from flask import Flask, Request, Response, has_request_context

from ..config.runtime import Callbacks, result_failed
from ..config.settings import Config, OnRepeat, OnStoreError
from ..errors import ConfigurationError
from ..exactly_once import TransactionFactory
from ..request.fingerprint import SHORT_HASH, Keyring
from ..request.identity import Identities
from ..request.input import CheckedInput
from ..request.proxies import current_request
from ..request.tokens import Tokens
from ..request.warnings import NearMisses
from ..response.records import Records
from ..response.refusals import Refusal
from ..signals import emit, lease_lost
from ..stores.base import NO_FINGERPRINT, Completion
from .values import NO_OPERATION, Found, Operation, Settlement, Unguarded, Verdict

if TYPE_CHECKING:
    from ..exactly_once.transaction import Transaction

_logger = logging.getLogger("flask_idempotence")


class Services(NamedTuple):
    """The parts of one application that guards need."""

    app: Flask
    config: Config
    callbacks: Callbacks
    identities: Identities
    keyring: Keyring
    near_misses: NearMisses
    records: Records
    tokens: Tokens


_NOT_RENEWED = (
    " (the keeper's thread did not run in time to renew it: the view let no other thread run, the "
    "process was stopped, or its server keeps threads from running, as uWSGI does without "
    "enable-threads)"
)

_GRAVEST_FIRST = (Verdict.NOT_RUN, Verdict.FAILED, Verdict.FINAL)

Runner = tuple[int, int, object]  # a process, a thread and an asyncio task
numbers = itertools.count(1)  # they rise from claim to claim, and from request to request


class Claim:
    """A request, or a call outside one, at a guard: it asks for a claim, which may be granted.

    It is the subject of signals and log lines. It may have no key: a view that is not claimed may
    still have a transaction. A spent token has a key and no owner.
    """

    observes = False  # its view always runs
    runner: Runner | None = None  # of the block whose claim it is
    request: Request | None = None  # in which that block has begun
    step_of: Claim | None = None  # the operation, where this is the claim of a step
    operation: Operation = NO_OPERATION
    key = ""  # in the store; empty before it is known
    fingerprint = NO_FINGERPRINT  # of the content that a repeat must share
    waited: float = 0.0  # seconds, for another request's claim to end
    owner: bytes = b""  # 16 random bytes; empty where there is no lease
    is_granted: bool = False  # it has a lease, or has spent a token
    granted_at: float = 0.0  # the time before the claim, when its first lease began
    was_renewed = False  # a renewal was sent; its answer may have been lost
    record: bytes | None = None
    ttl: float | None = None  # seconds for which the view keeps its response, if it says so
    transaction: Transaction | None = None
    facts: frozenset[Verdict] = frozenset()  # about the result, as they were noted
    by_hand: Verdict | None = None
    remembered_for: float | None = None  # seconds for which the store has taken the record
    body: object = None  # of the view's response, before the application's own hooks
    steps: frozenset[bytes] = frozenset()  # names of those that this run of the view has begun
    context: int = 0  # the id of the request context in which it was granted
    in_view: bool = False
    has_raised: bool = False
    is_stopped = False  # another guard has refused before the view could run
    status = 0  # of the response that decides the settlement
    streaming = False  # it is settled when the response is closed
    lost: bool = False  # it has ended early, or another owner has it
    unacknowledged = False  # the response goes out before the store has taken the record
    number: int  # rises from claim to claim
    renew_at: float
    app: Flask
    guard: Guard
    is_whole = False  # a repeat gets the response from its record
    input: CheckedInput | None = None  # of the request, if the claim is granted

    def __init__(self, app: Flask, guard: Guard, endpoint: str | None) -> None:
        self.app, self.guard = app, guard
        self.endpoint = endpoint  # of the request; the scope of `once`, or `-` for a mutex
        self.on_store_error = guard.on_store_error

    def grant(self, owner: bytes = b"", at: float = 0.0) -> Self:
        self.owner, self.granted_at = owner, at
        self.is_granted = bool(owner) or self.operation.token is not None
        self.extend(self.operation.lease, at)
        self.number = next(numbers)
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
        return self.key.rpartition(":")[2][:SHORT_HASH] or None

    @property
    def route(self) -> str:
        """The method and the rule of the request for a log line: an address holds arguments."""
        request = current_request() if has_request_context() else None
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

    # The view

    def leave(self, *, raised: bool) -> None:
        """Note that the view has returned or raised; a transaction is rolled back with it."""
        self.in_view, self.has_raised = False, raised
        if self.transaction is None or self._process != os.getpid():  # a child has its connection
            return
        if raised:
            self.judge(Verdict.FINAL)
            self.transaction.roll_back()
        else:
            self.transaction.is_view_over = True

    # The verdict

    def judge(self, verdict: Verdict) -> None:
        """Note a fact about the result; a failure is never taken back."""
        self.facts |= {verdict}

    @property
    def verdict(self) -> Verdict:
        """The facts, weighed: the gravest one counts."""
        if self.transaction is not None and self.transaction.is_committed_below:
            return Verdict.UNKNOWN
        # A view cannot keep the writes that its exception has rolled back.
        is_undone = self.transaction is not None and self.has_raised
        if self.by_hand is not None and not (self.by_hand is Verdict.KEPT and is_undone):
            return self.by_hand
        if self.input is not None and self.input.is_broken:
            return Verdict.CUT_OFF
        for fact in _GRAVEST_FIRST if self.facts else ():
            if fact in self.facts:
                return fact
        return Verdict.SUCCEEDED

    # The end

    def completion(self, settlement: Settlement) -> Completion:
        record, ttl = settlement.record, settlement.seconds
        return Completion(self.key, self.owner, self.fingerprint, record, ttl)

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


def argument(
    check: Callable[[str, Any], object] | None = None,
    default: object = None,
    *,
    setting: str | None = None,
) -> Any:
    metadata = {"check": check, "setting": setting}
    return dataclasses.field(default=default, metadata=metadata)


MODES: dict[str, type[Guard]] = {}  # the guard of each mode, by the mode's name


class Guard:
    """The arguments of a decorator, and the rules of its mode.

    A guard with arguments is a dataclass, whose fields are made by `argument`.
    """

    mode: ClassVar[str] = "-"  # its name in store keys, signals and log lines
    decorator: ClassVar[str]  # its public name
    toggle: ClassVar[str]  # the setting that switches the mode off
    by_verdict: ClassVar[bool] = True  # the settlement depends on the verdict
    makes_records: ClassVar[bool] = False  # it makes a record of each response
    takes_steps: ClassVar[bool] = False  # it guards an operation that may have steps
    outlasts_view: ClassVar[bool] = False  # its claim may be held after the view has ended
    has_steps = False  # of a bound guard: one was begun in this process, by whichever attempt
    on_store_error: OnStoreError | None = None
    within: TransactionFactory | None = None
    on_repeat: OnRepeat = "reject"
    ttl: float = 0.0  # seconds for which records are kept
    interval: float = 0.0  # seconds for which a lock is held, if its view ends earlier
    scope: str | None = None  # in place of the endpoint in store keys
    failed: Callable[[Response], bool] | None = None  # in place of the application's predicate
    services: Services  # of a bound guard only, as are the endpoint and the guard it is made of
    endpoint: str
    given: Self

    def __init_subclass__(cls) -> None:
        if "mode" in vars(cls):
            MODES[cls.mode] = cls

    def __post_init__(self) -> None:
        for field in arguments_of(self):
            check, value = field.metadata["check"], getattr(self, field.name)
            if check is not None and not (value is None and field.default is None):
                label = f"{self.decorator}({field.name}=...)"
                setattr(self, field.name, check(label, value))
        self.validate()

    def validate(self) -> None:
        """Check the arguments together; raise a ConfigurationError for a contradiction."""

    def bind(self, services: Services, endpoint: str | None, **unchecked: object) -> Self:
        """Return a copy for a route, with the settings in place of omitted arguments."""
        bound = copy(self)
        vars(bound).update(unchecked)
        bound.services, bound.endpoint, bound.given = services, endpoint or "", self
        for field in arguments_of(self):
            setting = field.metadata["setting"]
            if setting is not None and getattr(self, field.name) is None:
                setattr(bound, field.name, getattr(services.config, setting))
        bound.prepare()
        return bound

    def prepare(self) -> None:
        """Complete a bound guard."""

    def switched_off(self) -> Unguarded:
        return Unguarded(f"switched off by IDEMPOTENCE_ENABLED or {self.toggle}")

    def answer(self, claim: Claim, found: Found) -> object:
        """Return the reply to a repeat, such as the response to replay, or raise a Refusal."""
        raise NotImplementedError

    def settle(self, claim: Claim, now: float) -> Settlement:
        """Return how a claim ends."""
        raise NotImplementedError

    def accept_outer(self, outer: Claim) -> None:
        """Raise a ConfigurationError where an outer claim of the same key has other rules."""

    def time_to_keep(self, given: object) -> float:  # noqa: ARG002 - those of keys take it
        """Check the `ttl` of `current_guard.keep`; raise a ConfigurationError."""
        raise ConfigurationError(
            "current_guard.keep(ttl=...) is for the response of a view with @idempotent, not for "
            f"{self.decorator}."
        )

    def unknown(self, claim: Claim) -> bytes:
        return self.services.records.remember_unknown(claim, self.ttl)

    def has_failed(self, response: Response) -> bool:
        return (self.failed or self.services.callbacks.result_failed)(response)

    def has_failed_since(self, response: Response) -> bool:
        """The same for a response that was changed after the view.

        The application's own predicate expects the view's responses.
        """
        is_built_in = self.services.callbacks.result_failed is result_failed
        return result_failed(response) if is_built_in else response.status_code >= 400


def arguments_of(guard: Guard | type[Guard]) -> Collection[dataclasses.Field[Any]]:
    fields: dict[str, dataclasses.Field[Any]] = getattr(guard, "__dataclass_fields__", {})
    return [field for field in fields.values() if field.metadata]


class ViewGuard(Guard):
    """The guard of a view."""

    place: ClassVar[int] = 25  # among the guards that a Blueprint carries: the lowest is outermost
    placed_by: str = ""  # the setting or Blueprint that has put it around a view
    methods: Collection[str] = frozenset()  # safe ones that are guarded, too
    only_methods: Collection[str] | None = None  # None for all but the safe ones
    unless: Callable[[], object] | None = None  # returns whether a request needs no guard
    key: Any = None  # a function of the application, or a header's name
    compare: Any = None  # a function of the application, or False
    observe: bool | None = None  # it only counts what it would have done; None for the setting

    @property
    def refuses_with(self) -> Sequence[type[Refusal]]:
        """The refusals of a bound guard, besides that of a store that does not answer."""
        return ()

    def operation(self, request: Request) -> Operation | Unguarded:
        """Return the operation that a request asks for, or raise a Refusal."""
        raise NotImplementedError

    def accept(self, view: Callable[..., object]) -> None:
        """Raise a ConfigurationError for a view at which the guarantee does not hold."""

    def check(self, endpoint: str, config: Config) -> None:
        """Raise a ConfigurationError for settings with which the guarantee does not hold."""
