"""A store in the memory of this process."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

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
from .process import WeakObjects, call_in_children, monotonic

_DUE_A_WRITE = 2  # a write removes so many due entries of the heap: more than the one it adds
_DUE_FOR_ROOM = 4096  # a write to a full store removes so many at most, in some milliseconds

# A key has its kind, its owner (a token's is the subject), its end, its fingerprint, and what its
# kind has more: the end of a claim's lease, the bytes of a record.
# The collector of cyclic garbage lets go of a plain tuple of such values when it first meets it;
# objects with attributes would be traversed in each full collection.
_Held = tuple[str, bytes, float, bytes, Any]

_EXPIRES: Final = 2
_ABSENT: _Held = ("", b"", float("-inf"), b"", None)


class MemoryStore(InspectableStore):
    """Claims and tokens in this process: for development, tests, and a single worker.

    Expired keys are dropped little by little, as others are stored. Keys that have not expired are
    never evicted, since that would let a repeat through: a full store refuses instead.

    Args:
        max_entries: how many keys it holds at most; beyond that, `StoreError`. It may be exceeded
            by one in 4,096 while the leases of all others are being renewed.
        clock: returns seconds that never go back; `time.monotonic` unless it is given.

    Raises:
        ConfigurationError: `max_entries` is not a whole number of 1 or more, or `clock` is no
            function.
    """

    shared = False
    clock: Callable[[], float] = staticmethod(monotonic)

    def __init__(
        self, *, max_entries: int = 100_000, clock: Callable[[], float] | None = None
    ) -> None:
        if type(max_entries) is not int or max_entries < 1:
            raise ConfigurationError("max_entries must be a whole number, 1 or more.")
        if clock is not None:
            if not callable(clock):
                raise ConfigurationError("clock must be a function that returns seconds.")
            self.clock = clock
        self._max_entries = max_entries
        self._values: dict[str, _Held] = {}
        self._heap: list[tuple[float, str]] = []
        self._begin()
        call_in_children(self._begin)
        _STORES.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, hold_after_crash: float
    ) -> ClaimOutcome:
        with self._lock:
            now = self.clock()
            kind, holder, expires, known, more = self._values.get(key, _ABSENT)
            lease_end = now + lease
            if expires > now:
                if kind == "record":
                    return Done(known == fingerprint, more, expires - now)
                if kind == "claim" and holder != owner:
                    left, matches = more - now, known == fingerprint
                    return Running(matches, left, holder) if left > 0 else Crashed(matches)
                if kind == "claim":
                    # A claim that was sent twice may arrive after its first renewal.
                    lease_end = max(lease_end, more)
            self._put(
                key, now, ("claim", owner, lease_end + hold_after_crash, fingerprint, lease_end)
            )
            return CLAIMED

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        return [self._renew(*renewal) for renewal in renewals]

    def _renew(self, key: str, owner: bytes, lease: float) -> Outcome:
        with self._lock:
            now = self.clock()
            kind, holder, expires, fingerprint, lease_end = self._values.get(key, _ABSENT)
            if (kind, holder) != ("claim", owner) or lease_end <= now:
                return Outcome.STALE
            end, hold = now + lease, expires - lease_end
            self._put(key, now, ("claim", owner, end + hold, fingerprint, end))
            return Outcome.OK

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, ttl: float
    ) -> Outcome:
        with self._lock:
            now = self.clock()
            kind, holder, expires, *_ = self._values.get(key, _ABSENT)
            if expires > now and (holder != owner or kind == "token"):
                return Outcome.STALE
            self._put(key, now, ("record", owner, now + ttl, fingerprint, record))
            return Outcome.OK

    def release(self, key: str, owner: bytes) -> Outcome:
        with self._lock:
            kind, holder, expires, *_ = self._values.get(key, _ABSENT)
            if (kind, holder) != ("claim", owner) and expires > self.clock():
                return Outcome.STALE
            self._values.pop(key, None)
            return Outcome.OK

    def put_token(self, key: str, subject: bytes, ttl: float) -> None:
        with self._lock:
            now = self.clock()
            self._put(key, now, ("token", subject, now + ttl, b"", None))

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        with self._lock:
            kind, bound_to, expires, *_ = self._values.get(key, _ABSENT)
            if kind != "token" or expires <= self.clock():
                return TokenOutcome.ABSENT
            if bound_to and bound_to != subject:
                return TokenOutcome.NOT_YOURS
            del self._values[key]
            return TokenOutcome.TAKEN

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        return [self._peek(key) for key in keys]

    def _peek(self, key: str) -> Entry | None:
        now = self.clock()
        kind, owner, expires, _, more = self._values.get(key, _ABSENT)
        if expires <= now:
            return None
        lease = max(0.0, more - now) if kind == "claim" else None
        size = len(more) if kind == "record" else 0
        return Entry(kind, expires - now, size, lease, owner)

    def scan(self, prefix: str) -> Iterator[str]:
        with self._lock:
            now = self.clock()
            live = [key for key, held in self._values.items() if held[_EXPIRES] > now]
        yield from (key for key in live if key.startswith(prefix))

    def remove(self, key: str) -> None:
        with self._lock:
            self._values.pop(key, None)

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        return [self._discard(key, entry) for key, entry in seen]

    def _discard(self, key: str, seen: Entry) -> Outcome:
        with self._lock:
            if self._values.get(key, _ABSENT)[:2] != (seen.kind, seen.mark):
                return Outcome.STALE
            del self._values[key]
            return Outcome.OK

    def empty(self) -> None:
        """Remove every key."""
        with self._lock:
            self._values, self._heap = {}, []

    def ping(self) -> None:
        """Return: there is no server that could fail to answer."""

    def _put(self, key: str, now: float, value: _Held) -> None:
        values, heap = self._values, self._heap
        if heap and heap[0][0] <= now:
            self._drop_due(now, _DUE_A_WRITE)
        if len(values) >= self._max_entries and key not in values:
            has_seen_all = self._drop_due(now, _DUE_FOR_ROOM)
            # Where none of many has expired, the key is stored all the same: one of the rest may
            # have.
            if has_seen_all and len(values) >= self._max_entries:
                raise StoreError(f"The memory store is full ({self._max_entries} entries).")
        values[key] = value
        heapq.heappush(heap, (value[_EXPIRES], key))
        if len(heap) > 2 * len(values) + 1000:  # most belong to keys that were renewed or removed
            heap[:] = [(held[_EXPIRES], key) for key, held in values.items()]
            heapq.heapify(heap)

    def _drop_due(self, now: float, most: int) -> bool:
        """Drop due entries of the heap, with keys that have expired; return whether all were."""
        for _ in range(most):
            if not self._heap or self._heap[0][0] > now:
                return True
            _, key = heapq.heappop(self._heap)
            if self._values.get(key, _ABSENT)[_EXPIRES] <= now:
                self._values.pop(key, None)
        return False


_STORES: WeakObjects[MemoryStore] = WeakObjects()


def empty_memory_stores() -> None:
    """Remove every key from every memory store of this process; for the beginning of a test."""
    for store in _STORES:
        store.empty()
