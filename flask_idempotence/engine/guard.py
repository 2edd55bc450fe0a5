"""The interface of a mode: its questions, its answers, its settlements.

A guard holds the arguments of a decorator. At the first request of a route it makes a plan, which
has the settings filled in and never changes. The engine asks the plan and acts:

    plan.question(request)   the operation to claim, or a reason to let the view run unguarded
    plan.answer(finding)     the reply to a repeat: a response, a refusal, or another question
    plan.settle(ending)      the end of a claim: release it, hold it, complete it with a record

A plan calls neither the engine nor the store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from ..stores.base import ClaimOutcome, TokenOutcome

if TYPE_CHECKING:
    from flask import Flask, Request, Response

    from ..config.runtime import Callbacks, FailedPredicate
    from ..config.settings import Config, OnStoreError
    from ..exactly_once.factory import TransactionFactory
    from ..request.hashing import Keyring
    from ..request.identity import Identities
    from ..request.near_misses import NearMisses
    from ..request.tokens import Token, Tokens
    from ..response.records import RecordContext, Records
    from ..response.refusals import Refusal

Reply_co = TypeVar("Reply_co", covariant=True)

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # RFC 9110, section 9.2.1


class Services(NamedTuple):
    """The parts of one application that plans are made from."""

    app: Flask
    config: Config
    callbacks: Callbacks
    identities: Identities
    keyring: Keyring
    near_misses: NearMisses
    records: Records
    tokens: Tokens


class Question(NamedTuple):
    """An operation to claim.

    Attributes:
        name: canonical text that names the operation; its keyed hash becomes the store key.
        content: canonical text of the request, which a repeat must share; None where the name says
            everything.
        lease: seconds of the first lease.
        renewed: seconds of each further lease; 0 for the setting `IDEMPOTENCE_LEASE`.
        keep: seconds for which the key outlives a claim that is never settled.
        wait: seconds to wait for a running claim of the same request.
        spends: the token to take out of the store, in place of a claim.
        refusal: the refusal of the operation, without a look at the store.
        identity: the sender; its sources go into the log in debug mode. None where the sender
            does not count.
    """

    name: bytes
    content: bytes | None = None
    lease: float = 0.0
    renewed: float = 0.0
    keep: float = 0.0
    wait: float = 0.0
    spends: Token | None = None
    refusal: Refusal | None = None
    identity: str | None = None


class Unguarded(NamedTuple):
    """The view runs without a claim, for this reason."""

    reason: str


class Finding(NamedTuple):
    """The state of an operation that could not be claimed.

    Attributes:
        question: the operation.
        sealed: the store key and the fingerprint of the request.
        outcome: the state, as the store reports it.
    """

    question: Question
    sealed: RecordContext
    outcome: ClaimOutcome | TokenOutcome


class Verdict(IntEnum):
    """The judgement about the result of a view or a block; of two, the higher one counts."""

    SUCCEEDED = 0
    FINAL = 1
    """It failed for good: its writes are rolled back, and its record is kept."""
    FAILED = 2
    """It failed, and may run again."""
    KEPT = 3
    """`current_guard.keep()` was called."""
    RELEASED = 4
    """`current_guard.release()` was called."""


FAILURES = (Verdict.FAILED, Verdict.RELEASED)
"""The operation may run again."""

SUCCESSES = (Verdict.SUCCEEDED, Verdict.KEPT)
"""The transaction of `within=` is committed."""


class Ending(NamedTuple):
    """A claim at its end; times are those of the engine's clock.

    Attributes:
        question: the operation.
        sealed: its store key and its fingerprint.
        verdict: the judgement about its result.
        record: the record of the response; None where there is none.
        granted_at: the start of the first lease.
        lease: seconds of the lease.
        is_overrun: whether the first lease was renewed, or has ended.
        now: the present.
        is_restored: whether the token that was spent had been put back before.
    """

    question: Question
    sealed: RecordContext
    verdict: Verdict
    record: bytes | None
    granted_at: float
    lease: float
    is_overrun: bool
    now: float
    is_restored: bool


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the claim to its lease; the token stays spent."""


@dataclass(frozen=True, slots=True)
class Release:
    """Release the claim."""


class HoldUntil(NamedTuple):
    """Hold the claim until a moment of the engine's clock."""

    moment: float


class Complete(NamedTuple):
    """Put a record in the claim's place, for `ttl` seconds."""

    record: bytes
    ttl: float


class Restore(NamedTuple):
    """Put a spent token back, for the rest of its lifetime."""

    token: Token


Settlement = Keep | Release | HoldUntil | Complete | Restore


class Plan(ABC, Generic[Reply_co]):
    """One mode with the settings of one application filled in; `Reply_co` answers a repeat.

    Attributes:
        within: opens the transactions of `within=`; None for none.
        part: stands for the endpoint in store keys; None for the endpoint itself.
        by_verdict: whether the settlement depends on the verdict.
        record: makes the record of a response; None where the mode keeps none.
        has_failed: returns whether the view's response frees the operation; None for the
            application's predicate.
        has_failed_since: the same for a response that was changed after the view.
    """

    within: TransactionFactory | None = None
    part: str | None = None
    by_verdict: bool = True
    record: Callable[[RecordContext, Response], bytes] | None = None
    has_failed: FailedPredicate | None = None
    has_failed_since: FailedPredicate | None = None

    @abstractmethod
    def answer(self, finding: Finding) -> Reply_co | Question:
        """Answer a request whose operation could not be claimed.

        Returns:
            The reply, such as the response to replay, or another operation to claim.

        Raises:
            Refusal: the request is refused.
        """

    @abstractmethod
    def settle(self, ending: Ending) -> Settlement:
        """Return how a claim ends."""


class ViewPlan(Plan["Response"]):
    """The plan of a guard around a view."""

    @abstractmethod
    def question(self, request: Request) -> Question | Unguarded:
        """Return the operation that a request asks for.

        Raises:
            Refusal: the request is refused without asking the store.
        """


class Guard(ABC):
    """The arguments of a decorator.

    Attributes:
        mode: the name of the mode, in store keys, signals and log lines.
        decorator: the public name of the decorator.
        toggle: the setting that switches the mode off.
        on_store_error: `"reject"` or `"allow"`; None for the setting.
    """

    mode: ClassVar[str]
    decorator: ClassVar[str]
    toggle: ClassVar[str]
    on_store_error: OnStoreError | None = None

    @abstractmethod
    def plan(self, services: Services, endpoint: str | None) -> Plan[object]:
        """Return the plan of a route."""


class ViewGuard(Guard):
    """The arguments of a decorator of views.

    Attributes:
        methods: safe methods that are guarded, too.
        only_methods: the methods that are guarded; None for all but the safe ones.
    """

    methods: Collection[str] = frozenset()
    only_methods: Collection[str] | None = None

    @abstractmethod
    def plan(self, services: Services, endpoint: str | None) -> ViewPlan:
        """Return the plan of a route."""

    def accept(self, view: Callable[..., object]) -> None:
        """Check a view that is put behind the guard.

        Raises:
            ConfigurationError: its guarantee does not hold there.
        """

    def check(self, endpoint: str, config: Config) -> None:
        """Check the guard of a view against the settings.

        Raises:
            ConfigurationError: its guarantee does not hold with these settings.
        """
