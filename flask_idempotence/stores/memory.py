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
    InspectableStore,
    Outcome,
    Renewal,
    Running,
    TokenOutcome,
)
from .process import call_in_children


@dataclass(slots=True)
class _Held:
    """The value of a key: a claim, a record or a token."""

    kind: str
    owner: bytes  # of a token: its subject
    expires: float
    fingerprint: bytes = b""
    lease_end: float = 0.0
    keep: float = 0.0
    record: bytes = b""
    again: bool = False


class MemoryStore(InspectableStore):
    """Claims and tokens in this process: for development, tests, and a single worker.

    Expired keys are forgotten at the next operation on any key. Others are never evicted, since
    that would let a repeat through: a full store refuses instead.

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
        self._entries: dict[str, _Held] = {}
        self._expiries: list[tuple[float, str]] = []
        self._lock = threading.Lock()
        call_in_children(self._unlock)

    def __len__(self) -> int:
        return len(self._entries)

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        """Take the key for its first caller, or return its holder's state."""
        with self._lock:
            now = self._forget_expired()
            held, lease_end = self._entries.get(key), now + lease
            if held is not None and held.kind == "record":
                return Done(held.fingerprint == fingerprint, held.record)
            if held is not None and held.kind == "claim":
                if held.owner != owner:
                    matches, left = held.fingerprint == fingerprint, held.lease_end - now
                    return Running(matches, left) if left > 0 else Crashed(matches)
                # A claim that was sent twice may arrive after its first renewal.
                lease_end = max(lease_end, held.lease_end)
            expires = lease_end + keep
            self._put(key, _Held("claim", owner, expires, fingerprint, lease_end, keep))
            return CLAIMED

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew."""
        with self._lock:
            now = self._forget_expired()
            return [self._renew(now, *renewal) for renewal in renewals]

    def _renew(self, now: float, key: str, owner: bytes, lease: float) -> Outcome:
        held = self._entries.get(key)
        if held is None or not _is_claim_of(owner, held) or held.lease_end <= now:
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
            if held is not None and (held.owner != owner or held.kind == "token"):
                return Outcome.STALE
            self._put(key, _Held("record", owner, now + keep, fingerprint, record=record))
            return Outcome.OK

    def release(self, key: str, owner: bytes) -> Outcome:
        """Give the claim up."""
        with self._lock:
            self._forget_expired()
            held = self._entries.get(key)
            if held is not None and not _is_claim_of(owner, held):
                return Outcome.STALE
            self._entries.pop(key, None)
            return Outcome.OK

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        """Store a token."""
        with self._lock:
            now = self._forget_expired()
            self._put(key, _Held("token", subject, now + ttl, again=again))

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token."""
        with self._lock:
            self._forget_expired()
            held = self._entries.get(key)
            if held is None or held.kind != "token":
                return TokenOutcome.ABSENT
            if held.owner not in (b"", subject):
                return TokenOutcome.NOT_YOURS
            del self._entries[key]
            return TokenOutcome.TAKEN_AGAIN if held.again else TokenOutcome.TAKEN

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return the entries of some keys."""
        with self._lock:
            now = self._forget_expired()
            return [self._peek(now, key) for key in keys]

    def _peek(self, now: float, key: str) -> Entry | None:
        held = self._entries.get(key)
        if held is None:
            return None
        lease = max(0.0, held.lease_end - now) if held.kind == "claim" else None
        return Entry(held.kind, held.expires - now, len(held.record), lease, held.owner)

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`."""
        with self._lock:
            self._forget_expired()
            keys = [key for key in self._entries if key.startswith(prefix)]
        return iter(keys)

    def remove(self, key: str) -> None:
        """Remove a key of any kind."""
        with self._lock:
            self._entries.pop(key, None)

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys whose entries are still the same."""
        with self._lock:
            self._forget_expired()
            return [self._discard(key, entry) for key, entry in seen]

    def _discard(self, key: str, seen: Entry) -> Outcome:
        held = self._entries.get(key)
        if held is not None and (held.kind, held.owner) != (seen.kind, seen.mark):
            return Outcome.STALE
        self._entries.pop(key, None)
        return Outcome.OK

    def count_all(self) -> int:
        """Return how many keys there are."""
        return len(self)

    def ping(self) -> None:
        """Return: there is no server that could fail to answer."""

    def _put(self, key: str, entry: _Held) -> None:
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


def _is_claim_of(owner: bytes, held: _Held) -> bool:
    return held.kind == "claim" and held.owner == owner
