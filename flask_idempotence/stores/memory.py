"""A store in the memory of this process."""

from __future__ import annotations

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

_PART = 512
"""Keys of a part in a full store, about: its dictionary grows, and is swept, within 0.1 ms."""

_MOST_PARTS = 4096

_TURN = 256
"""Stored values between two turns of sweeping."""

_PARTS_A_TURN = 64

_VALUES_A_TURN = 512
"""Values after which a turn ends: two for each that was stored. In a large store from which as
many keys go as come, up to a third of the values have expired."""

_VALUES_FOR_ROOM = 8192
"""Values after which an operation on a full store searches no further: a millisecond or two."""

_Held = tuple[str, bytes, float, bytes, float, float, bytes, bool]
"""The value of a key. The collector of cyclic garbage lets go of a tuple of such values when it
first meets it; objects with attributes would be traversed in each full collection."""

_KIND: Final = 0
_OWNER: Final = 1  # of a token: its subject
_EXPIRES: Final = 2
_FINGERPRINT: Final = 3
_LEASE_END: Final = 4
_KEEP: Final = 5
_RECORD: Final = 6
_AGAIN: Final = 7

_NEVER = float("inf")


class _Part:
    """One part of the keys, chosen by hash.

    Attributes:
        values: the values by key, expired ones included until the next sweep.
        earliest: none of them expires before.
    """

    __slots__ = ("earliest", "values")

    def __init__(self) -> None:
        self.values: dict[str, _Held] = {}
        self.earliest = _NEVER

    def sweep(self, now: float) -> int:
        """Drop the values that have expired; return how many they were."""
        before = len(self.values)
        # A new dictionary, since one whose keys are deleted keeps its size.
        self.values = {key: held for key, held in self.values.items() if held[_EXPIRES] > now}
        self.earliest = min([held[_EXPIRES] for held in self.values.values()], default=_NEVER)
        return before - len(self.values)


class MemoryStore(InspectableStore):
    """Claims and tokens in this process: for development, tests, and a single worker.

    Expired keys are dropped little by little, as others are stored. Keys that have not expired are
    never evicted, since that would let a repeat through: a full store refuses instead.

    Args:
        max_entries: how many keys it holds at most; beyond that, `StoreError`. Of more than 8,192,
            it may be exceeded by one in 256.
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
        count = 1  # a power of two, for the mask
        while count < min(max_entries / _PART, _MOST_PARTS):
            count *= 2
        self._parts = tuple(_Part() for _ in range(count))
        self._mask = count - 1
        self._size = 0
        self._stored = 0
        self._next = 0
        self._lock = threading.Lock()
        call_in_children(self._unlock)
        _STORES.add(self)

    def __len__(self) -> int:
        return sum(len(self._live(part)) for part in self._parts)

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        """Take the key for its first caller, or return its holder's state."""
        with self._lock:
            now = self.clock()
            part = self._parts[hash(key) & self._mask]
            held, lease_end = part.values.get(key), now + lease
            if held is not None and held[_EXPIRES] > now:
                if held[_KIND] == "record":
                    return Done(held[_FINGERPRINT] == fingerprint, held[_RECORD])
                if held[_KIND] == "claim":
                    if held[_OWNER] != owner:
                        matches, left = held[_FINGERPRINT] == fingerprint, held[_LEASE_END] - now
                        return Running(matches, left) if left > 0 else Crashed(matches)
                    # A claim that was sent twice may arrive after its first renewal.
                    lease_end = max(lease_end, held[_LEASE_END])
            expires = lease_end + keep
            value = ("claim", owner, expires, fingerprint, lease_end, keep, b"", False)
            self._put(part, key, value, now)
            return CLAIMED

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Restart the leases of live claims."""
        return [self._renew(*renewal) for renewal in renewals]

    def _renew(self, key: str, owner: bytes, lease: float) -> Outcome:
        with self._lock:
            now = self.clock()
            part = self._parts[hash(key) & self._mask]
            held = part.values.get(key)
            if held is None or not _is_claim_of(owner, held) or held[_LEASE_END] <= now:
                return Outcome.STALE
            end, keep = now + lease, held[_KEEP]
            value = ("claim", owner, end + keep, held[_FINGERPRINT], end, keep, b"", False)
            self._put(part, key, value, now)
            return Outcome.OK

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, keep: float
    ) -> Outcome:
        """Replace the claim by a record."""
        with self._lock:
            now = self.clock()
            part = self._parts[hash(key) & self._mask]
            held = part.values.get(key)
            if (
                held is not None
                and held[_EXPIRES] > now
                and (held[_OWNER] != owner or held[_KIND] == "token")
            ):
                return Outcome.STALE
            value = ("record", owner, now + keep, fingerprint, 0.0, 0.0, record, False)
            self._put(part, key, value, now)
            return Outcome.OK

    def release(self, key: str, owner: bytes) -> Outcome:
        """Release the claim."""
        with self._lock:
            part = self._parts[hash(key) & self._mask]
            held = part.values.get(key)
            if held is None:
                return Outcome.OK
            if not _is_claim_of(owner, held) and held[_EXPIRES] > self.clock():
                return Outcome.STALE
            del part.values[key]
            self._size -= 1
            return Outcome.OK

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        """Store a token."""
        with self._lock:
            now = self.clock()
            part = self._parts[hash(key) & self._mask]
            value = ("token", subject, now + ttl, b"", 0.0, 0.0, b"", again)
            self._put(part, key, value, now)

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token."""
        with self._lock:
            part = self._parts[hash(key) & self._mask]
            held = part.values.get(key)
            if held is None or held[_KIND] != "token" or held[_EXPIRES] <= self.clock():
                return TokenOutcome.ABSENT
            if held[_OWNER] and held[_OWNER] != subject:
                return TokenOutcome.NOT_YOURS
            del part.values[key]
            self._size -= 1
            return TokenOutcome.TAKEN_AGAIN if held[_AGAIN] else TokenOutcome.TAKEN

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return the entries of some keys."""
        return [self._peek(key) for key in keys]

    def _peek(self, key: str) -> Entry | None:
        now = self.clock()
        held = self._part_of(key).values.get(key)
        if held is None or held[_EXPIRES] <= now:
            return None
        kind, owner, expires, _, lease_end, _, record, _ = held
        lease = max(0.0, lease_end - now) if kind == "claim" else None
        return Entry(kind, expires - now, len(record), lease, owner)

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`."""
        for part in self._parts:
            yield from [key for key in self._live(part) if key.startswith(prefix)]

    def remove(self, key: str) -> None:
        """Remove a key of any kind."""
        with self._lock:
            part = self._part_of(key)
            if key in part.values:
                del part.values[key]
                self._size -= 1

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys whose entries are still the same."""
        return [self._discard(key, entry) for key, entry in seen]

    def _discard(self, key: str, seen: Entry) -> Outcome:
        with self._lock:
            part = self._part_of(key)
            held = part.values.get(key)
            if held is None or (held[_KIND], held[_OWNER]) != (seen.kind, seen.mark):
                return Outcome.STALE
            del part.values[key]
            self._size -= 1
            return Outcome.OK

    def empty(self) -> None:
        """Remove every key."""
        with self._lock:
            if self._size:
                self._parts = tuple(_Part() for _ in self._parts)
                self._size = 0

    def count_all(self) -> int:
        """Return how many keys there are."""
        return len(self)

    def ping(self) -> None:
        """Return: there is no server that could fail to answer."""

    def _part_of(self, key: str) -> _Part:
        return self._parts[hash(key) & self._mask]

    def _live(self, part: _Part) -> list[str]:
        with self._lock:
            now = self.clock()
            return [key for key, held in part.values.items() if held[_EXPIRES] > now]

    def _put(self, part: _Part, key: str, value: _Held, now: float) -> None:
        if key not in part.values:
            if self._size >= self._max_entries:
                self._make_room(now)
            self._size += 1
        part.values[key] = value
        if value[_EXPIRES] < part.earliest:
            part.earliest = value[_EXPIRES]
        self._stored += 1
        if not self._stored % _TURN:
            self._sweep_in_turn(now)

    def _sweep_in_turn(self, now: float) -> None:
        seen = 0
        for _ in range(min(_PARTS_A_TURN, len(self._parts))):
            seen += self._sweep_next(now)
            if seen >= _VALUES_A_TURN:
                return

    def _sweep_next(self, now: float) -> int:
        """Sweep the next part, if a value of it may have expired; return how many it has seen."""
        part = self._parts[self._next]
        self._next = (self._next + 1) & self._mask
        if part.earliest > now:
            return 0
        seen = len(part.values)
        self._size -= part.sweep(now)
        return seen

    def _make_room(self, now: float) -> None:
        """Sweep until there is room for another key.

        Where no value of many has expired, the key is taken in all the same, since one of the rest
        may have. At most one key a part comes in like that.

        Raises:
            StoreError: no value has expired.
        """
        seen = 0
        for _ in self._parts:
            seen += self._sweep_next(now)
            excess = self._size - self._max_entries
            if excess < 0 or (seen > _VALUES_FOR_ROOM and excess < len(self._parts)):
                return
        raise StoreError(f"The memory store is full ({self._max_entries} entries).")

    def _unlock(self) -> None:
        self._lock = threading.Lock()


_STORES: Living[MemoryStore] = Living()


def empty_memory_stores() -> None:
    """Remove every key from every memory store of this process; for the beginning of a test."""
    for store in _STORES:
        store.empty()


def _is_claim_of(owner: bytes, held: _Held) -> bool:
    return held[_KIND] == "claim" and held[_OWNER] == owner
