"""A store in the memory of this process."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

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
from .process import Living, call_in_children

_DUE_A_WRITE = 2
"""Due entries of the heap that a write removes: more than the one it adds."""

_DUE_FOR_ROOM = 4096
"""Those that a write to a full store removes at most, in some milliseconds."""

_Held = tuple[str, bytes, float, bytes, float, float, bytes, bool, float]
"""The value of a key. The collector of cyclic garbage lets go of a plain tuple of such values when
it first meets it; objects with attributes would be traversed in each full collection."""

_KIND: Final = 0
_OWNER: Final = 1  # of a token: its subject
_EXPIRES: Final = 2
_FINGERPRINT: Final = 3
_LEASE_END: Final = 4
_KEEP: Final = 5
_RECORD: Final = 6
_AGAIN: Final = 7
_FILED: Final = 8  # the time of its entry in the heap, when it expires or earlier


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
    clock: Callable[[], float] = time.monotonic

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
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        with self._lock:
            now = self.clock()
            held, lease_end = self._values.get(key), now + lease
            if held is not None and held[_EXPIRES] > now:
                if held[_KIND] == "record":
                    matches = held[_FINGERPRINT] == fingerprint
                    return Done(matches, held[_RECORD], held[_EXPIRES] - now)
                if held[_KIND] == "claim":
                    if held[_OWNER] != owner:
                        matches, left = held[_FINGERPRINT] == fingerprint, held[_LEASE_END] - now
                        return (
                            Running(matches, left, held[_OWNER]) if left > 0 else Crashed(matches)
                        )
                    # A claim that was sent twice may arrive after its first renewal.
                    lease_end = max(lease_end, held[_LEASE_END])
            self._put(key, now, "claim", owner, lease_end + keep, fingerprint, lease_end, keep)
            return CLAIMED

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        return [self._renew(*renewal) for renewal in renewals]

    def _renew(self, key: str, owner: bytes, lease: float) -> Outcome:
        with self._lock:
            now = self.clock()
            held = self._values.get(key)
            if held is None or not _is_claim_of(owner, held) or held[_LEASE_END] <= now:
                return Outcome.STALE
            end, keep = now + lease, held[_KEEP]
            self._put(key, now, "claim", owner, end + keep, held[_FINGERPRINT], end, keep)
            return Outcome.OK

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, keep: float
    ) -> Outcome:
        with self._lock:
            now = self.clock()
            held = self._values.get(key)
            if (
                held is not None
                and held[_EXPIRES] > now
                and (held[_OWNER] != owner or held[_KIND] == "token")
            ):
                return Outcome.STALE
            self._put(key, now, "record", owner, now + keep, fingerprint, record=record)
            return Outcome.OK

    def release(self, key: str, owner: bytes) -> Outcome:
        with self._lock:
            held = self._values.get(key)
            if held is None:
                return Outcome.OK
            if not _is_claim_of(owner, held) and held[_EXPIRES] > self.clock():
                return Outcome.STALE
            del self._values[key]
            return Outcome.OK

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        with self._lock:
            now = self.clock()
            self._put(key, now, "token", subject, now + ttl, again=again)

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        with self._lock:
            held = self._values.get(key)
            if held is None or held[_KIND] != "token" or held[_EXPIRES] <= self.clock():
                return TokenOutcome.ABSENT
            if held[_OWNER] and held[_OWNER] != subject:
                return TokenOutcome.NOT_YOURS
            del self._values[key]
            return TokenOutcome.TAKEN_AGAIN if held[_AGAIN] else TokenOutcome.TAKEN

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        return [self._peek(key) for key in keys]

    def _peek(self, key: str) -> Entry | None:
        now = self.clock()
        held = self._values.get(key)
        if held is None or held[_EXPIRES] <= now:
            return None
        kind, owner, expires, _, lease_end, _, record, _, _ = held
        lease = max(0.0, lease_end - now) if kind == "claim" else None
        return Entry(kind, expires - now, len(record), lease, owner)

    def scan(self, prefix: str) -> Iterator[str]:
        yield from [key for key in self._live_keys() if key.startswith(prefix)]

    def remove(self, key: str) -> None:
        with self._lock:
            self._values.pop(key, None)

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        return [self._discard(key, entry) for key, entry in seen]

    def _discard(self, key: str, seen: Entry) -> Outcome:
        with self._lock:
            held = self._values.get(key)
            if held is None or (held[_KIND], held[_OWNER]) != (seen.kind, seen.mark):
                return Outcome.STALE
            del self._values[key]
            return Outcome.OK

    def empty(self) -> None:
        """Remove every key."""
        with self._lock:
            self._values, self._heap = {}, []

    def count_all(self) -> int:
        return len(self._live_keys())

    def ping(self) -> None:
        """Return: there is no server that could fail to answer."""

    def _live_keys(self) -> list[str]:
        with self._lock:
            now = self.clock()
            return [key for key, held in self._values.items() if held[_EXPIRES] > now]

    def _put(
        self,
        key: str,
        now: float,
        kind: str,
        owner: bytes,
        expires: float,
        fingerprint: bytes = b"",
        lease_end: float = 0.0,
        keep: float = 0.0,
        record: bytes = b"",
        again: bool = False,
    ) -> None:
        values, heap = self._values, self._heap
        for _ in range(_DUE_A_WRITE):
            if not heap or heap[0][0] > now:
                break
            self._drop_next(now)
        held, filed = values.get(key), expires
        if held is None and len(values) >= self._max_entries:
            self._make_room(now)
        if held is not None and held[_FILED] <= expires:
            filed = held[_FILED]  # a later expiry needs no other entry: see `_drop_next`
        else:
            heapq.heappush(heap, (expires, key))
        values[key] = (kind, owner, expires, fingerprint, lease_end, keep, record, again, filed)
        if len(heap) > 2 * len(values) + 1000:  # of keys that were released or removed
            heap[:] = [(held[_FILED], key) for key, held in values.items()]
            heapq.heapify(heap)

    def _drop_next(self, now: float) -> None:
        """Drop the key of the heap's first entry, or file it again if it expires later."""
        due, key = heapq.heappop(self._heap)
        held = self._values.get(key)
        if held is None or held[_FILED] != due:
            return  # it was removed, and perhaps stored again
        if held[_EXPIRES] <= now:
            del self._values[key]
        else:
            self._values[key] = (*held[:_FILED], held[_EXPIRES])
            heapq.heappush(self._heap, (held[_EXPIRES], key))

    def _make_room(self, now: float) -> None:
        """Drop expired keys until there is room for another one.

        Where none of many has expired, the key is stored all the same: one of the rest may have.

        Raises:
            StoreError: no key has expired.
        """
        for _ in range(_DUE_FOR_ROOM):
            if len(self._values) < self._max_entries:
                return
            if not self._heap or self._heap[0][0] > now:
                raise StoreError(f"The memory store is full ({self._max_entries} entries).")
            self._drop_next(now)


_STORES: Living[MemoryStore] = Living()


def empty_memory_stores() -> None:
    """Remove every key from every memory store of this process; for the beginning of a test."""
    for store in _STORES:
        store.empty()


def _is_claim_of(owner: bytes, held: _Held) -> bool:
    return held[_KIND] == "claim" and held[_OWNER] == owner
