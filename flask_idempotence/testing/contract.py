"""The suite that every store has to pass; run it with pytest.

class TestMyStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MyStore(...)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import SkipTest

from ..stores.base import (
    FINGERPRINT_BYTES,
    NO_FINGERPRINT,
    OWNER_BYTES,
    Claimed,
    ClaimOutcome,
    Crashed,
    Done,
    InspectableStore,
    Outcome,
    Renewal,
    Running,
    Store,
    TokenOutcome,
)

THREADS = 32

ASKED = b"a" * FINGERPRINT_BYTES
OTHER = ASKED[:-1] + b"b"  # it differs in the last byte
RECORD = b"\x00\xffrecord" * 20_000  # 160 kB


class StoreContract:
    """Tests of a store: subclass it, and provide a fixture `store` that returns an empty one.

    A store whose clock is injected overrides `advance`; otherwise the suite sleeps.
    """

    def advance(self, seconds: float) -> None:
        """Let time pass for the store."""
        time.sleep(seconds)

    # claim

    def test_a_rival_sees_that_it_runs_and_for_how_long(self, store: Store) -> None:
        owner = _owned(store)
        for fingerprint in (ASKED, OTHER):
            outcome = _rival(store, fingerprint)
            assert isinstance(outcome, Running)
            assert outcome.owner in (owner, b"")
            assert outcome.matches is (fingerprint == ASKED)
            assert 8 < outcome.remaining <= 10

    def test_the_owner_is_granted_its_own_claim_again(self, store: Store) -> None:
        owner = _owned(store)
        assert store.claim("k", owner, ASKED, 10, 0) == Claimed()

    def test_a_claim_that_arrives_twice_does_not_shorten_a_renewal(self, store: Store) -> None:
        owner = _owned(store, 0.2, 60)
        store.renew([Renewal("k", owner, 10)])
        assert store.claim("k", owner, ASKED, 0.2, 60) == Claimed()
        outcome = store.claim("k", _owner(), ASKED, 10, 60)
        assert isinstance(outcome, Running)
        assert 8 < outcome.remaining <= 10

    def test_one_of_many_simultaneous_callers_is_granted(self, store: Store) -> None:
        outcomes = _at_once(lambda: _rival(store))
        assert outcomes.count(Claimed()) == 1
        assert sum(isinstance(outcome, Running) for outcome in outcomes) == THREADS - 1

    def test_different_keys_are_all_granted_at_once(self, store: Store) -> None:
        outcomes = _at_once(lambda: store.claim(os.urandom(8).hex(), _owner(), ASKED, 10, 0))
        assert outcomes.count(Claimed()) == THREADS

    def test_keys_that_look_alike_are_apart(self, store: Store) -> None:
        keys = ["k", "K", "k ", "k/", "../k", "k%", "é", "e", "k" * 400]
        assert [store.claim(key, _owner(), ASKED, 10, 0) for key in keys] == [Claimed()] * len(
            keys
        )
        for key in keys:
            assert isinstance(store.claim(key, _owner(), ASKED, 10, 0), Running), key

    # the lease

    def test_a_key_is_free_when_the_lease_of_a_fraction_of_a_second_ends(
        self, store: Store
    ) -> None:
        _owned(store, 0.2)
        outcome = _rival(store)
        assert isinstance(outcome, Running)
        assert 0 < outcome.remaining < 0.201
        self.advance(0.25)
        assert _rival(store) == Claimed()

    def test_a_kept_claim_says_crashed_when_its_lease_ends(self, store: Store) -> None:
        _owned(store, 0.2, 60)
        assert isinstance(store.claim("k", _owner(), ASKED, 0.2, 60), Running)
        self.advance(0.25)
        assert store.claim("k", _owner(), ASKED, 10, 60) == Crashed(matches=True)
        assert store.claim("k", _owner(), OTHER, 10, 60) == Crashed(matches=False)

    def test_renewing_begins_the_lease_anew(self, store: Store) -> None:
        owner = _owned(store, 0.3)
        assert store.renew([Renewal("k", owner, 10)]) == [Outcome.OK]
        self.advance(0.4)
        outcome = _rival(store)
        assert isinstance(outcome, Running)
        assert outcome.matches  # it has its fingerprint still

    def test_a_hundred_are_renewed_at_once(self, store: Store) -> None:
        owners = {f"k{number}": _owner() for number in range(100)}
        for key, owner in owners.items():
            store.claim(key, owner, ASKED, 10, 0)
        renewals = [Renewal(key, owner, 60) for key, owner in owners.items()]
        assert store.renew(renewals) == [Outcome.OK] * len(renewals)
        outcomes = [store.claim(key, _owner(), OTHER, 10, 0) for key in owners]
        assert all(isinstance(each, Running) and each.remaining > 10 for each in outcomes)

    def test_renewing_may_shorten_a_lease_and_keeps_a_kept_claim(self, store: Store) -> None:
        free, held = _owned(store), _owner()
        store.claim("held", held, ASKED, 10, 60)
        store.renew([Renewal("k", free, 0.1), Renewal("held", held, 0.1)])
        self.advance(0.2)
        assert _rival(store) == Claimed()
        assert isinstance(store.claim("held", _owner(), ASKED, 10, 60), Crashed)

    def test_only_the_owner_of_a_live_claim_renews_it(self, store: Store) -> None:
        owner, late, done = _owned(store), _owner(), _owner()
        store.claim("late", late, ASKED, 0.1, 60)
        store.complete("done", done, ASKED, b"", 60)
        self.advance(0.15)
        renewals = [
            Renewal("k", _owner(), 10),
            Renewal("k", owner, 10),
            Renewal("late", late, 10),
            Renewal("done", done, 10),
            Renewal("absent", owner, 10),
        ]
        stale = Outcome.STALE
        assert store.renew(renewals) == [stale, Outcome.OK, stale, stale, stale]
        assert store.renew([]) == []

    # completion

    def test_a_record_is_remembered(self, store: Store) -> None:
        owner = _owned(store)
        for _ in range(2):  # the owner may complete again
            assert store.complete("k", owner, ASKED, RECORD, 60) is Outcome.OK
        assert _rival(store) == Done(True, RECORD)
        assert _rival(store, OTHER) == Done(False, RECORD)
        assert store.claim("k", owner, ASKED, 10, 0) == Done(True, RECORD)

    def test_completing_does_not_depend_on_the_lease(self, store: Store) -> None:
        gone, held = _owner(), _owner()
        store.claim("gone", gone, ASKED, 0.1, 0)
        store.claim("held", held, ASKED, 0.1, 60)
        self.advance(0.2)
        for key, owner in (("gone", gone), ("held", held)):
            assert store.complete(key, owner, ASKED, b"r", 60) is Outcome.OK
            assert store.claim(key, _owner(), ASKED, 10, 0) == Done(True, b"r")

    def test_a_stale_owner_completes_nothing(self, store: Store) -> None:
        stale = _owned(store, 0.1)
        self.advance(0.2)
        owner = _owned(store)
        assert store.complete("k", stale, ASKED, b"stale", 60) is Outcome.STALE
        store.complete("k", owner, ASKED, b"right", 60)
        assert store.complete("k", stale, ASKED, b"stale", 60) is Outcome.STALE
        assert _rival(store) == Done(True, b"right")

    # release

    def test_a_released_key_is_free(self, store: Store) -> None:
        owner = _owned(store, 10, 60)
        for _ in range(2):
            assert store.release("k", owner) is Outcome.OK
        assert _rival(store) == Claimed()

    def test_only_the_owner_releases(self, store: Store) -> None:
        _owned(store)
        assert store.release("k", _owner()) is Outcome.STALE
        assert isinstance(_rival(store), Running)

    def test_a_record_is_never_released(self, store: Store) -> None:
        owner = _owner()
        store.complete("k", owner, ASKED, b"r", 60)
        assert store.release("k", owner) is Outcome.STALE
        assert _rival(store) == Done(True, b"r")

    # tokens

    def test_a_token_is_taken_once(self, store: Store) -> None:
        store.put_token("t", b"", 60)
        outcomes = _at_once(lambda: store.take_token("t", b""))
        assert outcomes.count(TokenOutcome.TAKEN) == 1
        assert outcomes.count(TokenOutcome.ABSENT) == THREADS - 1

    def test_a_token_of_another_subject_stays(self, store: Store) -> None:
        store.put_token("t", b"alice", 60)
        for subject in (b"bob", b""):
            assert store.take_token("t", subject) is TokenOutcome.NOT_YOURS
        assert store.take_token("t", b"alice") is TokenOutcome.TAKEN

    def test_every_subject_takes_a_token_without_one(self, store: Store) -> None:
        store.put_token("t", b"", 60)
        assert store.take_token("t", b"alice") is TokenOutcome.TAKEN

    # time

    def test_each_is_forgotten_after_its_own_time(self, store: Store) -> None:
        store.claim("held", _owner(), ASKED, 0.1, 0.1)
        store.complete("k", _owned(store), ASKED, b"r", 0.1)
        store.put_token("t", b"", 0.1)
        self.advance(0.25)
        assert store.claim("held", _owner(), ASKED, 10, 0) == Claimed()
        assert _rival(store) == Claimed()
        assert store.take_token("t", b"") is TokenOutcome.ABSENT

    # commands and tests: for an InspectableStore

    def test_peek_tells_what_a_key_holds(self, store: Store) -> None:
        listed = _inspectable(store)
        store.claim("c", _owner(), NO_FINGERPRINT, 10, 5)
        store.complete("r", _owner(), NO_FINGERPRINT, b"record", 20)
        store.put_token("t", b"", 30)
        entries = [listed.peek(key) for key in "crt"]
        assert [entry.kind for entry in entries if entry] == ["claim", "record", "token"]
        assert [round(entry.expires_in) for entry in entries if entry] == [15, 20, 30]
        leases = [entry.lease for entry in entries if entry]
        assert (round(leases[0] or 0), leases[1:]) == (10, [None, None])
        assert listed.peek("absent") is None
        told = listed.peek_all(["t", "absent", "c"])
        assert [entry and entry.kind for entry in told] == ["token", None, "claim"]

    def test_an_entry_that_has_taken_the_place_of_one_seen_stays(self, store: Store) -> None:
        listed = _inspectable(store)
        for key, owner in (keys := {"c": _owner(), "r": _owner()}).items():
            store.claim(key, owner, ASKED, 10, 0)
        seen = [(key, entry) for key in keys if (entry := listed.peek(key))]
        store.renew([Renewal("c", keys["c"], 20)])  # that is still the same claim
        store.complete("r", keys["r"], ASKED, b"record", 20)
        assert listed.discard(seen) == [Outcome.OK, Outcome.STALE]
        assert listed.discard(seen) == [Outcome.STALE, Outcome.STALE]
        assert list(listed.scan("")) == ["r"]

    def test_of_many_who_discard_one_entry_one_has_removed_it(self, store: Store) -> None:
        listed = _inspectable(store)
        store.put_token("t", b"", 60)
        seen = [("t", entry) for entry in [listed.peek("t")] if entry]
        outcomes = _at_once(lambda: listed.discard(seen))
        assert outcomes.count([Outcome.OK]) == 1
        assert outcomes.count([Outcome.STALE]) == THREADS - 1

    def test_scan_and_clear_stay_within_the_prefix(self, store: Store) -> None:
        listed = _inspectable(store)
        assert (list(listed.scan("")), listed.clear("p:")) == ([], 0)
        for key in ("p:1", "p:2", "pp:1", "P:1", "p*:1"):
            store.put_token(key, b"", 60)
        assert set(listed.scan("p:")) == {"p:1", "p:2"}
        assert set(listed.scan("p*")) == {"p*:1"}
        assert listed.clear("p:") == 2
        assert set(listed.scan("")) == {"pp:1", "P:1", "p*:1"}

    def test_it_answers(self, store: Store) -> None:
        _inspectable(store).ping()


def _inspectable(store: Store) -> InspectableStore:
    if not isinstance(store, InspectableStore):
        raise SkipTest(f"{type(store).__name__} is no InspectableStore")
    return store


def _owner() -> bytes:
    return os.urandom(OWNER_BYTES)


def _owned(store: Store, lease: float = 10, hold_after_crash: float = 0) -> bytes:
    """Claim `k`, and return the owner."""
    owner = _owner()
    assert store.claim("k", owner, ASKED, lease, hold_after_crash) == Claimed()
    return owner


def _rival(store: Store, fingerprint: bytes = ASKED) -> ClaimOutcome:
    """Claim `k` for another owner."""
    return store.claim("k", _owner(), fingerprint, 10, 0)


def _at_once(call: Callable[[], Any]) -> list[Any]:
    barrier = threading.Barrier(THREADS)

    def run(_: int) -> Any:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(run, range(THREADS)))
