"""The interface of a mode: its questions, its answers, its settlements.

A guard holds the arguments of a decorator. At the first request of a route it is bound: a copy,
which never changes, has the settings in place of omitted arguments. The engine asks it and acts:

    question(request)         the operation to claim, or a reason to let the view run unguarded
    answer(operation, found)  the reply to a repeat: a response, a refusal, or another question
    settle(operation, now)    the end of a claim: release it, hold it, complete it with a record

A guard calls neither the engine nor the store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from copy import copy
from enum import IntEnum
from typing import Any, ClassVar, Literal, NamedTuple, Self

from flask import Flask, Request, Response

from ..config.runtime import Callbacks
from ..config.settings import Config, OnStoreError
from ..errors import ConfigurationError
from ..exactly_once import TransactionFactory
from ..request.fingerprint import Keyring
from ..request.identity import Identities, Identity
from ..request.tokens import Token, Tokens
from ..request.warnings import NearMisses
from ..response.records import Records, Slot
from ..response.refusals import Refusal
from ..stores.base import ClaimOutcome, TokenOutcome

_SUCCESS = b'"success"'

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1


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


class Question(NamedTuple):
    """An operation to claim; times are in seconds."""

    name: bytes  # canonical text that names it; its keyed hash becomes the store key
    content: bytes | None = None  # what a repeat must share; None where the name says everything
    lease: float = 0.0  # the first one
    renewed: float = 0.0  # each further lease; 0 for the setting `IDEMPOTENCE_LEASE`
    keep: float = 0.0  # for which the key outlives a claim that is never settled
    wait: float = 0.0  # for a running claim of the same request
    spends: Token | None = None  # out of the store, in place of a claim
    refusal: Refusal | None = None  # of the operation, without a look at the store
    below: str = ""  # the store key of the operation of which it is a step
    identity: Identity | None = None  # the sender, for the log in debug mode, if it counts

    def __repr__(self) -> str:
        return "<Question>"


class Unguarded(NamedTuple):
    """The view runs without a claim, for this reason."""

    reason: str


class Verdict(IntEnum):
    """The judgement about the result of a view or a block; of two, the higher one counts."""

    SUCCEEDED = 0
    FINAL = 1
    """It failed for good: its writes are rolled back, and its record is kept."""
    FAILED = 2
    """It failed, and may run again."""
    NOT_RUN = 3
    """An inner guard has refused, and the view has not run: it may, even under at-most-once."""
    KEPT = 4
    """`current_guard.keep()` was called."""
    RELEASED = 5
    """`current_guard.release()` was called."""
    CUT_OFF = 6
    """The body of the request broke off: the client sends it again."""
    UNKNOWN = 7
    """Some of its writes were committed below the session, without its record."""


FAILURES = (Verdict.FAILED, Verdict.NOT_RUN, Verdict.RELEASED, Verdict.CUT_OFF)
"""The operation may run again."""

SUCCESSES = (Verdict.SUCCEEDED, Verdict.KEPT)
"""The transaction of `within=` is committed."""


class Operation:
    """What a guard sees of a claim; times are those of the engine's clock."""

    question: Question
    slot: Slot
    granted_at: float = 0.0  # the time before the claim, when its first lease began
    was_renewed: bool = False  # a renewal was sent; its answer may have been lost
    is_restored: bool = False  # the token that was spent had been put back before
    record: bytes | None = None
    ttl: float | None = None  # seconds for which the view keeps its response, if it says so

    @property
    def verdict(self) -> Verdict:
        raise NotImplementedError


Found = ClaimOutcome | TokenOutcome
"""The state of an operation that could not be claimed, as the store reports it."""


class Settlement(NamedTuple):
    """How a claim ends.

    `keep` leaves the claim to its lease, and a token spent; `release` releases it; `renew` holds
    it for so many seconds more; `complete` puts a record in its place for so many seconds;
    `put_token` puts a spent token back, for the rest of its lifetime.
    """

    call: Literal["keep", "release", "renew", "complete", "put_token"]
    seconds: float = 0.0
    record: bytes = b""
    again: bool = False  # the token is not put back after another failure

    def __repr__(self) -> str:
        return f"<Settlement {self.call}>"


KEEP = Settlement("keep")
RELEASE = Settlement("release")


def argument(
    check: Callable[[str, Any], object] | None = None,
    default: object = None,
    *,
    setting: str | None = None,
) -> Any:
    metadata = {"check": check, "setting": setting}
    return dataclasses.field(default=default, metadata=metadata)


class Guard:
    """The arguments of a decorator, and the rules of its mode.

    A guard with arguments is a dataclass, whose fields are made by `argument`.
    """

    mode: ClassVar[str] = "-"  # its name in store keys, signals and log lines
    decorator: ClassVar[str]  # its public name
    toggle: ClassVar[str]  # the setting that switches the mode off
    by_verdict: ClassVar[bool] = True  # the settlement depends on the verdict
    keeps_records: ClassVar[bool] = False  # it makes a record of each response
    on_store_error: OnStoreError | None = None
    within: TransactionFactory | None = None
    ttl: float = 0.0  # seconds for which records are kept
    interval: float = 0.0  # seconds for which a lock is held, if its view ends earlier
    part: str | None = None  # in place of the endpoint in store keys
    failed: Callable[[Response], bool] | None = None  # in place of the application's predicate
    services: Services  # of a bound guard only, as is the endpoint
    endpoint: str

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
        bound.services, bound.endpoint = services, endpoint or ""
        for field in arguments_of(self):
            setting = field.metadata["setting"]
            if setting is not None and getattr(self, field.name) is None:
                setattr(bound, field.name, getattr(services.config, setting))
        bound.prepare(services.config, self)
        return bound

    def prepare(self, config: Config, given: Self) -> None:
        """Complete a bound guard, made of the guard that is given."""

    def switched_off(self) -> Unguarded:
        return Unguarded(f"switched off by IDEMPOTENCE_ENABLED or {self.toggle}")

    def answer(self, operation: Operation, found: Found) -> object:
        """Answer a request whose operation could not be claimed, or raise a Refusal.

        Returns the reply, such as the response to replay, or another Question.
        """
        raise NotImplementedError

    def settle(self, operation: Operation, now: float) -> Settlement:
        """Return how a claim ends."""
        raise NotImplementedError

    def time_to_keep(self, given: object) -> float:  # noqa: ARG002 - those of keys take it
        """Check the `ttl` of `current_guard.keep`; raise a ConfigurationError."""
        raise ConfigurationError(
            "current_guard.keep(ttl=...) is for the response of a view with @idempotent, not for "
            f"{self.decorator}."
        )

    def unknown(self, slot: Slot) -> bytes:
        return self.services.records.remember_unknown(slot, self.ttl)

    def has_failed(self, response: Response) -> bool:
        return (self.failed or self.services.callbacks.result_failed or result_failed)(response)

    def has_failed_since(self, response: Response) -> bool:
        """The same for a response that was changed after the view.

        The application's own predicate expects the view's responses.
        """
        is_built_in = self.services.callbacks.result_failed is None
        return result_failed(response) if is_built_in else response.status_code >= 400


def arguments_of(guard: Guard | type[Guard]) -> Collection[dataclasses.Field[Any]]:
    fields: dict[str, dataclasses.Field[Any]] = getattr(guard, "__dataclass_fields__", {})
    return [field for field in fields.values() if field.metadata]


class TokenIssue(Guard):
    """The issue of a token: it is answered by nothing but the store."""

    mode = "token"
    decorator = "one_time_token"


class ViewGuard(Guard):
    """The guard of a view."""

    methods: Collection[str] = frozenset()  # safe ones that are guarded, too
    only_methods: Collection[str] | None = None  # None for all but the safe ones
    unless: Callable[[], object] | None = None  # returns whether a request needs no guard
    observe: bool | None = None  # it only counts what it would have done; None for the setting

    def question(self, request: Request) -> Question | Unguarded:
        """Return the operation that a request asks for, or raise a Refusal."""
        raise NotImplementedError

    def accept(self, view: Callable[..., object]) -> None:
        """Raise a ConfigurationError for a view at which the guarantee does not hold."""

    def check(self, endpoint: str, config: Config) -> None:
        """Raise a ConfigurationError for settings with which the guarantee does not hold."""


def result_failed(response: Response) -> bool:
    """Whether a response is a failed result.

    That is a status of 400 or more, or a JSON object whose `success` is `false`.
    """
    if response.status_code >= 400:
        return True
    chunks: object = response.response
    if type(chunks) is list and len(chunks) == 1:  # as Flask makes it, and read without a copy
        [body] = chunks
        if type(body) is bytes and _SUCCESS not in body:
            return False
    if response.is_streamed or _SUCCESS not in response.data or not response.is_json:
        return False
    result = response.get_json(silent=True)
    return isinstance(result, dict) and result.get("success") is False
