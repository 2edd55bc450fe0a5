"""The memory store at its limit: no operation works long, and what has expired goes in time."""

import gc
import sys
import threading

import pytest
from helpers.store_assertions import values_of

from flask_idempotence import MemoryStore, StoreError
from flask_idempotence.stores import memory
from flask_idempotence.stores.base import CLAIMED, NO_FINGERPRINT, Outcome, Renewal, TokenOutcome
from flask_idempotence.testing import FakeClock

OWNER = b"o" * 16
KEYS = 30_000
MOST_SEEN = memory._VALUES_FOR_ROOM + memory._VALUES_A_TURN + 4 * memory._PART


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def seen(monkeypatch):
    """The number of values that each sweep has seen."""
    sizes = []
    sweep = memory._Part.sweep

    def noted(part, now):
        sizes.append(len(part.values))
        return sweep(part, now)

    monkeypatch.setattr(memory._Part, "sweep", noted)
    return sizes


def claim(store, key, lease=10.0):
    return store.claim(key, OWNER, NO_FINGERPRINT, lease, 0)


def full_store(clock, prefix=""):
    store = MemoryStore(max_entries=KEYS, clock=clock)
    for number in range(KEYS):
        assert claim(store, f"{prefix}{number}") is CLAIMED
    return store


def is_taken_in(store, key, lease=10.0):
    try:
        return claim(store, key, lease) is CLAIMED
    except StoreError:
        return False


def test_claims_that_expire_at_once_leave_their_room_bit_by_bit(clock, seen):
    store = full_store(clock)
    seen.clear()
    clock.advance(10)
    assert len(store) == 0
    for number in range(KEYS):
        assert claim(store, f"new{number}") is CLAIMED
        assert len(values_of(store)) <= KEYS if number % 1000 == 0 else True
        assert sum(seen) < MOST_SEEN
        seen.clear()
    assert len(store) == len(values_of(store)) == KEYS
    with pytest.raises(StoreError, match="full"):
        claim(store, "one more")


def test_a_full_store_searches_no_longer_for_values_that_have_been_renewed(clock, seen):
    store = full_store(clock)
    clock.advance(5)
    assert store.renew([Renewal(str(n), OWNER, 10) for n in range(KEYS)]) == [Outcome.OK] * KEYS
    clock.advance(5)  # now they would have expired
    taken, is_taken = 0, True
    while is_taken:
        seen.clear()
        is_taken = is_taken_in(store, f"new{taken}")
        taken += is_taken
        assert sum(seen) < MOST_SEEN
    assert 0 < taken < len(store._parts)
    assert len(store) == KEYS + taken
    assert store.renew([Renewal(str(n), OWNER, 10) for n in range(KEYS)]) == [Outcome.OK] * KEYS


def test_a_full_store_is_exceeded_by_one_key_a_part_at_most(clock):
    keys = 10_000
    store = MemoryStore(max_entries=keys, clock=clock)
    for number in range(keys):
        claim(store, str(number))
    renewals = [Renewal(str(number), OWNER, 10) for number in range(keys)]
    parts = len(store._parts)
    for number in range(2 * parts):
        clock.advance(6)
        store.renew(renewals)
        clock.advance(3)
        is_taken_in(store, f"new{number}", 1e6)
    assert keys < len(store) <= keys + parts
    assert store.renew(renewals) == [Outcome.OK] * keys


@pytest.mark.parametrize(
    ("keys", "parts"),
    [(1, 1), (512, 1), (513, 2), (1024, 2), (1025, 4), (100_000, 256), (10**7, 4096)],
)
def test_a_store_has_one_part_for_512_keys_and_no_more_than_4096(keys, parts):
    assert len(MemoryStore(max_entries=keys)._parts) == parts


def test_a_full_store_that_is_emptied_has_room_for_as_many_keys():
    store = MemoryStore(max_entries=2)
    for _ in range(2):
        store.empty()
        assert (len(store), values_of(store)) == (0, {})
        for key in "ab":
            assert claim(store, key) is CLAIMED
        with pytest.raises(StoreError, match="full"):
            claim(store, "c")


def test_expired_values_are_looked_for_once_in_256_stored_ones(clock, monkeypatch):
    turns = []
    monkeypatch.setattr(MemoryStore, "_sweep_in_turn", lambda store, now: turns.append(now))
    store = MemoryStore(clock=clock)
    for number in range(1, 3 * memory._TURN + 1):
        clock.advance(1)
        claim(store, str(number))
        assert len(turns) == number // memory._TURN


def test_a_full_store_takes_a_key_in_for_each_that_expires(clock):
    store = MemoryStore(max_entries=KEYS, clock=clock)
    for number in range(KEYS):
        claim(store, str(number), lease=10 + number)
    for number in range(0, 200, 2):
        clock.advance(10 if not number else 2)
        assert claim(store, f"new{number}", 1e6) is CLAIMED
        if number:
            assert claim(store, f"new{number + 1}", 1e6) is CLAIMED
        with pytest.raises(StoreError, match="full"):
            claim(store, "one more")


def test_expired_values_are_dropped_as_others_are_stored(clock):
    store = MemoryStore(clock=clock)
    for number in range(20_000):
        clock.advance(0.001)
        claim(store, str(number), lease=1)
    assert 1000 <= len(store) <= 1001  # the sum of the clock's steps is not exact
    assert len(values_of(store)) < 2500


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
    store.put_token("token", b"", 60, again=True)
    gc.collect()
    assert [gc.is_tracked(held) for held in values_of(store).values()] == [False] * 3
    assert not any(gc.is_tracked(part.values) for part in store._parts)


@pytest.fixture
def threads_switch_often():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_of_64_threads_one_claims_each_key_and_the_count_stays_right(threads_switch_often):
    store = MemoryStore(max_entries=5000)
    barrier, claimed, lock = threading.Barrier(64), [], threading.Lock()

    def work(number):
        owner = bytes([number]) * 16
        barrier.wait()
        for key in range(300):
            if store.claim(f"k{key}", owner, NO_FINGERPRINT, 60, 0) is CLAIMED:
                with lock:
                    claimed.append(key)
            store.claim(f"{number}:{key}", owner, NO_FINGERPRINT, 0.001, 0)
            store.put_token(f"t{key}", b"", 0.001 * (key % 5))
            store.take_token(f"t{key}", b"")
            store.release(f"{number}:{key}", owner)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == list(range(300))
    assert store._size == len(values_of(store))
    assert len(store) <= 600
