"""Interfaces of a store: `Store` for requests; for commands, two more that add to it."""

from __future__ import annotations

import enum
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from .facts import Facts

OWNER_BYTES = 16  # six are the wall-clock time in milliseconds, the rest is random
_LONGEST_AGE = 366 * 86400  # seconds; an owner that seems older is not the engine's

FINGERPRINT_BYTES = 16  # a fingerprint is a keyed hash of this many bytes

NO_FINGERPRINT = bytes(FINGERPRINT_BYTES)  # the key identifies the operation already


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim is granted: the caller is the first, or already held it."""


@dataclass(frozen=True, slots=True)
class Running:
    """Another owner holds a live claim.

    Attributes:
        matches: whether its fingerprint is the caller's.
        remaining: seconds until its lease ends.
        owner: that of the claim; empty where the store does not say.
    """

    matches: bool
    remaining: float
    owner: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Done:
    """The operation was completed before.

    Attributes:
        matches: whether its fingerprint is the caller's.
        record: the value that its owner stored.
        remaining: seconds until the store forgets it; None where it does not say.
    """

    matches: bool
    record: bytes = field(repr=False)
    remaining: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Crashed:
    """Another owner's lease ended without a settlement, and its claim asked to be held after that.

    Attributes:
        matches: whether its fingerprint is the caller's.
        remaining: 0: nothing is left of its lease.
    """

    matches: bool
    remaining: ClassVar[float] = 0.0


ClaimOutcome = Claimed | Running | Done | Crashed
CLAIMED = Claimed()


class Outcome(enum.Enum):
    """Outcome of a fenced write, which counts only if the caller is still the owner."""

    OK = "ok"
    STALE = "stale"


class TokenOutcome(enum.Enum):
    """Outcome of an attempt to take a token."""

    TAKEN = "taken"
    ABSENT = "absent"
    NOT_YOURS = "not yours"

    @property
    def matches(self) -> bool:
        """Always true: a token has no fingerprint."""
        return True

    @property
    def remaining(self) -> float:
        """Always 0: a token has no lease."""
        return 0.0


class Renewal(NamedTuple):
    """One entry of a batch of renewals: the claim's key and owner, the new lease in seconds."""

    key: str
    owner: bytes
    lease: float


class Completion(NamedTuple):
    """The arguments of `Store.complete`, in order."""

    key: str
    owner: bytes
    fingerprint: bytes
    record: bytes
    ttl: float

    def __repr__(self) -> str:
        return "<Completion>"


@dataclass(frozen=True, slots=True)
class Entry:
    """The value of a key, for commands and tests.

    Attributes:
        kind: `"claim"`, `"record"` or `"token"`.
        expires_in: seconds until the store forgets it.
        size: bytes of the stored value.
        lease: seconds that are left of a claim's lease, 0 where it has ended; None for all else.
        mark: distinguishes this value from another one in its place, and ends with the owner of a
            claim. Renewing keeps it.
    """

    kind: str
    expires_in: float
    size: int
    lease: float | None = None
    mark: bytes = field(default=b"", repr=False)


class Store(ABC):
    """Keeps claims, records and tokens.

    Keys are complete names, made by the caller. All durations are seconds, counted on the store's
    own clock. Every operation is atomic on its one key. `flask_idempotence.testing.StoreContract`
    is the suite that every implementation has to pass.

    Every method raises `StoreError` where the store does not answer within its deadline; whether
    the operation took effect is then unknown. Claim, renew, complete and release may be repeated
    by an implementation within that deadline. Putting and taking a token are sent once.
    """

    shared: bool = True
    """Whether other processes see the claims of this one. Then its clock is a server's, which
    `flask_idempotence.testing` cannot move."""

    @abstractmethod
    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, hold_after_crash: float
    ) -> ClaimOutcome:
        """Take the key for its first caller, or return its holder's state.

        Args:
            key: the store key.
            owner: 16 bytes of this claim alone. The owner of a live claim is granted it again, and
                the lease restarts; but it never ends earlier than it would have, for a claim that
                was sent twice may arrive after the first renewal.
            fingerprint: 16 bytes that identify the request.
            lease: how long the claim lives without renewal.
            hold_after_crash: for how long the key answers `Crashed` after its last lease has ended
                without a settlement. 0: the key is free when the lease ends.
        """

    @abstractmethod
    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Restart the leases of live claims, in one round trip where that is possible.

        Returns:
            One outcome each, in order: STALE where the claim has ended or is not the owner's.

        Raises:
            StoreError: not all was answered. A store made of several servers lists the outcomes of
                the others in its `answers`, since their leases are renewed all the same.
        """

    @abstractmethod
    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, ttl: float
    ) -> Outcome:
        """Replace the claim by a record, for `ttl` seconds.

        Depends on the owner only, never on the lease's time: a claim whose lease has ended and
        that no owner took over is completed, and an absent key is stored. The owner may repeat it.
        """

    @abstractmethod
    def release(self, key: str, owner: bytes) -> Outcome:
        """Release the claim. Never removes a record.

        Returns:
            OK where nothing of this owner's is left, STALE where the key is another owner's claim
            or holds a record.
        """

    @abstractmethod
    def put_token(self, key: str, subject: bytes, ttl: float) -> None:
        """Store a token for `ttl` seconds.

        Args:
            key: the store key.
            subject: its user, hashed; empty for a guest's.
            ttl: its lifetime.
        """

    @abstractmethod
    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token; it stays where it is another subject's."""

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        """Cap this thread's deadline of each operation, where the cap is lower than the deadline.

        For an operation that must be retried soon, such as the renewal of a short lease. A store
        that cannot do so keeps its usual deadline.
        """
        del seconds
        return nullcontext()


class InspectableStore(Store):
    """A store whose keys can be listed and removed by hand: for commands and tests.

    No request needs it. Without it, `flask idempotence stats`, `inspect`, `release` and `purge`
    cannot be used, nor `flask_idempotence.testing.clear_store`.
    """

    @abstractmethod
    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return the entries of some keys, in order; in one round trip where that is possible."""

    def peek(self, key: str) -> Entry | None:
        """Return the entry of a key, or None."""
        return self.peek_all([key])[0]

    @abstractmethod
    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`, without blocking the store."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Remove a key of any kind."""

    def clear(self, prefix: str) -> int:
        """Remove every key that begins with `prefix`; returns how many."""
        keys = list(self.scan(prefix))
        for key in keys:
            self.remove(key)
        return len(keys)

    @abstractmethod
    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys whose entries are still the same, each in one step.

        Args:
            seen: pairs of a key and its entry.

        Returns:
            One outcome each, in order: OK where this call has removed that entry, STALE where
            the key has none or another one by now. Of several callers, one gets OK.
        """

    @abstractmethod
    def ping(self) -> None:
        """Return if the store answers."""

    def facts(self) -> Sequence[Facts]:
        """Return the version, settings and state of each server behind the store."""
        return ()


def began_at(owner: bytes) -> float:
    """Return the time of an owner's claim, by the clock of its machine; 0 for unknown."""
    began = int.from_bytes(owner[:6]) / 1000
    return began if abs(time.time() - began) < _LONGEST_AGE else 0.0


def milliseconds(seconds: float) -> int:
    """Return a duration as servers count it: 1 at the least."""
    return max(1, round(seconds * 1000))


class TimeLimit:
    """The longest deadline of operations in a block, for the thread or greenlet that runs it."""

    def __init__(self) -> None:
        self._cap = ContextVar("cap", default=float("inf"))

    @property
    def cap(self) -> float:
        return self._cap.get()

    @contextmanager
    def capped(self, seconds: float) -> Iterator[None]:
        token = self._cap.set(seconds)
        try:
            yield
        finally:
            self._cap.reset(token)


def check_deadline(seconds: Any) -> None:
    """Raise a `ConfigurationError` where a store's deadline is no number that threads wait for."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= threading.TIMEOUT_MAX:
        raise ConfigurationError("deadline must be a number of seconds greater than 0.")


def inspectable(store: Store) -> InspectableStore:
    """Return a store whose keys can be listed, or raise a `ConfigurationError`."""
    if isinstance(store, InspectableStore):
        return store
    raise ConfigurationError(
        f"This store cannot be listed: {type(store).__name__} is a Store, but not an "
        "InspectableStore (flask_idempotence.stores.base)."
    )
