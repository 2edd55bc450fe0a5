"""A store in the memory of this process."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import ConfigurationError, StoreError
from .base import (
    CLAIMED,
    ClaimOutcome,
    Crashed,
    Done,
    Entry,
    Outcome,
    Renewal,
    Running,
    Store,
    TokenOutcome,
)
from .process import call_in_children


@dataclass(slots=True)
class _Claim:
    owner: bytes
    fingerprint: bytes
    lease_end: float
    keep: float
    expires: float


@dataclass(slots=True)
class _Record:
    owner: bytes
    fingerprint: bytes
    record: bytes
    expires: float


@dataclass(slots=True)
class _Token:
    subject: bytes
    again: bool
    expires: float


class MemoryStore(Store):
    """Claims and tokens in this process: for development, tests, and a single worker.

    What has expired is forgotten at the next operation on any key. What has not is never evicted,
    since that would let a repeat through: a full store refuses instead.

    Args:
        max_entries: how many keys it holds at most; beyond that, `StoreError`.
        clock: returns seconds that never go back.

    Raises:
        ConfigurationError: `max_entries` is not a whole number of 1 or more, or `clock` is no
            function.
    """

    shared = False

    def __init__(
        self, *, max_entries: int = 100_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if type(max_entries) is not int or max_entries < 1:
            raise ConfigurationError("max_entries must be a whole number, 1 or more.")
        if not callable(clock):
            raise ConfigurationError("clock must be a function that returns seconds.")
        self._max_entries = max_entries
        self._clock = clock
        self._entries: dict[str, _Claim | _Record | _Token] = {}
        self._expiries: list[tuple[float, str]] = []
        self._lock = threading.Lock()
        call_in_children(self._unlock)

    def __len__(self) -> int:
        return len(self._entries)

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        """Take the key for its first caller, or say what is there."""
        with self._lock:
            now = self._forget_expired()
            held = self._entries.get(key)
            if isinstance(held, _Claim) and held.owner != owner:
                matches = held.fingerprint == fingerprint
                if now < held.lease_end:
                    return Running(matches, held.lease_end - now)
                return Crashed(matches)
            if isinstance(held, _Record):
                return Done(held.fingerprint == fingerprint, held.record)
            lease_end = now + lease
            if isinstance(held, _Claim):
                # Its own: a claim that was sent twice may arrive after the first renewal.
                lease_end = max(lease_end, held.lease_end)
            self._put(key, _Claim(owner, fingerprint, lease_end, keep, lease_end + keep))
            return CLAIMED

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew."""
        with self._lock:
            now = self._forget_expired()
            return [self._renew(now, *renewal) for renewal in renewals]

    def _renew(self, now: float, key: str, owner: bytes, lease: float) -> Outcome:
        held = self._entries.get(key)
        if not isinstance(held, _Claim) or held.owner != owner or held.lease_end <= now:
            return Outcome.STALE
        held.lease_end = now + lease
        held.expires = held.lease_end + held.keep
        self._put(key, held)
        return Outcome.OK

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, keep: float
    ) -> Outcome:
        """Replace the claim by a record."""
        with self._lock:
            now = self._forget_expired()
            held = self._entries.get(key)
            if held is not None and getattr(held, "owner", None) != owner:
                return Outcome.STALE
            self._put(key, _Record(owner, fingerprint, record, now + keep))
            return Outcome.OK

    def release(self, key: str, owner: bytes) -> Outcome:
        """Give the claim up."""
        with self._lock:
            self._forget_expired()
            held = self._entries.get(key)
            if held is None:
                return Outcome.OK
            if not isinstance(held, _Claim) or held.owner != owner:
                return Outcome.STALE
            del self._entries[key]
            return Outcome.OK

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        """Store a token."""
        with self._lock:
            now = self._forget_expired()
            self._put(key, _Token(subject, again, now + ttl))

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token."""
        with self._lock:
            self._forget_expired()
            held = self._entries.get(key)
            if not isinstance(held, _Token):
                return TokenOutcome.ABSENT
            if held.subject not in (b"", subject):
                return TokenOutcome.NOT_YOURS
            del self._entries[key]
            return TokenOutcome.TAKEN_AGAIN if held.again else TokenOutcome.TAKEN

    def peek(self, key: str) -> Entry | None:
        """Return what a key holds, or None."""
        with self._lock:
            return self._peek(self._forget_expired(), key)

    def _peek(self, now: float, key: str) -> Entry | None:
        held = self._entries.get(key)
        if held is None:
            return None
        size = len(held.record) if isinstance(held, _Record) else 0
        lease = max(0.0, held.lease_end - now) if isinstance(held, _Claim) else None
        mark = held.subject if isinstance(held, _Token) else held.owner
        kind = type(held).__name__[1:].lower()
        return Entry(kind, held.expires - now, size, lease, mark)

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`."""
        with self._lock:
            self._forget_expired()
            keys = [key for key in self._entries if key.startswith(prefix)]
        return iter(keys)

    def remove(self, key: str) -> None:
        """Remove a key, whatever it holds."""
        with self._lock:
            self._entries.pop(key, None)

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys that still hold what they were seen to hold."""
        with self._lock:
            now = self._forget_expired()
            return [self._discard(now, key, entry) for key, entry in seen]

    def _discard(self, now: float, key: str, seen: Entry) -> Outcome:
        held = self._peek(now, key)
        if held is not None and (held.kind, held.mark) != (seen.kind, seen.mark):
            return Outcome.STALE
        self._entries.pop(key, None)
        return Outcome.OK

    def count_all(self) -> int:
        """Return how many keys there are."""
        return len(self)

    def ping(self) -> None:
        """Return: there is nobody who could not answer."""

    def _put(self, key: str, entry: _Claim | _Record | _Token) -> None:
        if key not in self._entries and len(self._entries) >= self._max_entries:
            raise StoreError(f"The memory store is full ({self._max_entries} entries).")
        self._entries[key] = entry
        heapq.heappush(self._expiries, (entry.expires, key))
        if len(self._expiries) > 2 * len(self._entries) + 64:
            # Renewed and removed entries leave their old expiries behind: drop them together.
            self._expiries = [(entry.expires, key) for key, entry in self._entries.items()]
            heapq.heapify(self._expiries)

    def _forget_expired(self) -> float:
        now = self._clock()
        while self._expiries and self._expiries[0][0] <= now:
            _, key = heapq.heappop(self._expiries)
            entry = self._entries.get(key)
            if entry is not None and entry.expires <= now:
                del self._entries[key]
        return now

    def _unlock(self) -> None:
        self._lock = threading.Lock()
