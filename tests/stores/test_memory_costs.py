"""The memory store at its limit: no operation works long, and what has expired goes in time."""

import contextlib
import gc
import heapq
import sys
from functools import partial

import pytest
from helpers.servers.processes import all_at_once
from helpers.store_assertions import values_of

from flask_idempotence import MemoryStore, StoreError
from flask_idempotence.stores import memory
from flask_idempotence.stores.base import CLAIMED, NO_FINGERPRINT, Outcome, Renewal, TokenOutcome
from flask_idempotence.testing import FakeClock

OWNER = b"o" * 16
KEYS = 30_000
MOST_SEEN = memory._DUE_A_WRITE + memory._DUE_FOR_ROOM


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def seen(monkeypatch):
    entries, heappop = [], heapq.heappop

    def noted(heap):
        entries.append(heap[0])
        return heappop(heap)

    monkeypatch.setattr(memory.heapq, "heappop", noted)
    return entries


def claim(store, key):
    return store.claim(key, OWNER, NO_FINGERPRINT, 10, 0)


def full_store(clock):
    store = MemoryStore(max_entries=KEYS, clock=clock)
    for number in range(KEYS):
        assert claim(store, str(number)) is CLAIMED
    return store


def test_claims_that_expire_at_once_leave_their_room_bit_by_bit(clock, seen):
    store = full_store(clock)
    clock.advance(10)
    assert len([*store.scan("")]) == 0
    for number in range(KEYS):
        seen.clear()
        assert claim(store, f"new{number}") is CLAIMED
        assert len(seen) <= memory._DUE_A_WRITE
        assert len(store._values) <= KEYS
    assert len([*store.scan("")]) == len(values_of(store)) == KEYS
    with pytest.raises(StoreError, match="full"):
        claim(store, "one more")


def test_a_full_store_searches_no_longer_for_values_that_have_been_renewed(clock, seen):
    store = full_store(clock)
    clock.advance(5)
    renewals = [Renewal(str(number), OWNER, 10) for number in range(KEYS)]
    assert store.renew(renewals) == [Outcome.OK] * KEYS
    clock.advance(5)  # now they would have expired
    taken = 0
    with contextlib.suppress(StoreError):
        while claim(store, f"new{taken}") is CLAIMED:
            assert len(seen) <= MOST_SEEN
            taken += 1
            seen.clear()
    assert len(seen) <= MOST_SEEN
    assert 0 < taken <= KEYS / memory._DUE_FOR_ROOM + 1  # the limit is exceeded by so many
    assert len([*store.scan("")]) == KEYS + taken
    assert store.renew(renewals) == [Outcome.OK] * KEYS


def test_removed_keys_leave_no_more_in_the_heap_than_there_are_keys(clock):
    store = MemoryStore(clock=clock)
    for number in range(20_000):
        store.claim(str(number), OWNER, NO_FINGERPRINT, 10, 86_400)
        assert store.release(str(number), OWNER) is Outcome.OK
        assert len(store._heap) <= 1002
    claim(store, "k")
    for _ in range(5000):
        clock.advance(1)
        assert store.renew([Renewal("k", OWNER, 10)]) == [Outcome.OK]
    assert len(store._heap) <= 1002
    clock.advance(10)
    claim(store, "other")
    assert list(values_of(store)) == ["other"]


def test_a_full_store_that_is_emptied_has_room_for_as_many_keys():
    store = MemoryStore(max_entries=2)
    for _ in range(2):
        store.empty()
        assert (len([*store.scan("")]), values_of(store)) == (0, {})
        for key in "ab":
            assert claim(store, key) is CLAIMED
        with pytest.raises(StoreError, match="full"):
            claim(store, "c")


def test_expired_values_are_dropped_where_the_number_of_keys_stays_the_same(clock):
    store = MemoryStore(clock=clock)
    for number in range(1000):
        store.put_token(str(number), b"", 1)
    clock.advance(1)
    for _ in range(2000):
        store.put_token("k", b"", 1)
        assert store.take_token("k", b"") is TokenOutcome.TAKEN
    assert len(values_of(store)) == 0


def test_the_collector_of_garbage_does_not_visit_the_values(clock):
    store = MemoryStore(clock=clock)
    claim(store, "claim")
    store.complete("record", OWNER, NO_FINGERPRINT, b"r", 60)
    store.put_token("token", b"", 60)
    gc.collect()
    assert [gc.is_tracked(held) for held in values_of(store).values()] == [False] * 3
    assert not any(gc.is_tracked(entry) for entry in store._heap)


@pytest.fixture
def threads_switch_often():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_of_64_threads_one_claims_each_key_and_the_count_stays_right(threads_switch_often):
    store, claimed = MemoryStore(max_entries=5000), []

    def work(number):
        owner = bytes([number]) * 16
        for key in range(300):
            if store.claim(f"k{key}", owner, NO_FINGERPRINT, 60, 0) is CLAIMED:
                claimed.append(key)
            store.claim(f"{number}:{key}", owner, NO_FINGERPRINT, 0.001, 0)
            store.put_token(f"t{key}", b"", 0.001 * (key % 5))
            store.take_token(f"t{key}", b"")
            store.release(f"{number}:{key}", owner)

    all_at_once([partial(work, number) for number in range(64)])
    assert sorted(claimed) == list(range(300))
    assert len([*store.scan("")]) <= 600
    held = {(value[memory._EXPIRES], key) for key, value in values_of(store).items()}
    assert held <= set(store._heap)
