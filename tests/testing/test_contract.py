"""The contract suite finds each fault of a store: every one of these breaks a promise."""

import time
from dataclasses import replace

import pytest

from flask_idempotence import MemoryStore
from flask_idempotence.stores.base import Claimed, Done, Outcome, Running, TokenOutcome
from flask_idempotence.testing import FakeClock, StoreContract

OK = Outcome.OK


class GrantsAll(MemoryStore):
    def claim(self, *arguments):
        super().claim(*arguments)
        return Claimed()


class ChecksBeforeItClaims(MemoryStore):
    def claim(self, key, *arguments):
        is_free = self.peek(key) is None
        time.sleep(0.01)
        if is_free:
            self.remove(key)
        return super().claim(key, *arguments)


class ForgetsFingerprints(MemoryStore):
    def claim(self, *arguments):
        found = super().claim(*arguments)
        return replace(found, matches=True) if isinstance(found, Done | Running) else found


class NeverEndsALease(MemoryStore):
    def claim(self, key, owner, fingerprint, lease, hold_after_crash):
        return super().claim(key, owner, fingerprint, 100 * lease, hold_after_crash)


class ForgetsDeadClaims(MemoryStore):
    def claim(self, key, owner, fingerprint, lease, hold_after_crash):
        return super().claim(key, owner, fingerprint, lease, 0)


class RenewsForAnybody(MemoryStore):
    def renew(self, renewals):
        super().renew(renewals)
        return [OK] * len(renewals)


class CompletesForAnybody(MemoryStore):
    def complete(self, key, *arguments):
        self.remove(key)
        return super().complete(key, *arguments)


class NeedsALeaseToComplete(MemoryStore):
    def complete(self, key, *arguments):
        entry = self.peek(key)
        return super().complete(key, *arguments) if entry and entry.lease else Outcome.STALE


class CompletesOnce(MemoryStore):
    def complete(self, key, *arguments):
        entry = self.peek(key)
        is_done = entry and entry.kind == "record"
        return Outcome.STALE if is_done else super().complete(key, *arguments)


class ReleasesForAnybody(MemoryStore):
    def release(self, key, owner):
        self.remove(key)
        return OK


class ReleasesRecords(MemoryStore):
    def release(self, key, owner):
        entry = self.peek(key)
        if entry and entry.kind == "record":
            self.remove(key)
        return super().release(key, owner)


class LooksBeforeItTakes(MemoryStore):
    def take_token(self, key, subject):
        found = self.peek(key)
        time.sleep(0.01)
        return TokenOutcome.TAKEN if found else super().take_token(key, subject)


class TakesTokensOfAnybody(MemoryStore):
    def put_token(self, key, subject, ttl):
        super().put_token(key, b"", ttl)


class SpendsTokensOfOthers(MemoryStore):
    def take_token(self, key, subject):
        found = super().take_token(key, subject)
        self.remove(key)
        return found


class KeepsTokens(MemoryStore):
    def put_token(self, key, subject, ttl):
        super().put_token(key, subject, 100 * ttl)


class KeepsRecords(MemoryStore):
    def complete(self, key, owner, fingerprint, record, ttl):
        return super().complete(key, owner, fingerprint, record, 100 * ttl)


class KeepsDeadClaims(MemoryStore):
    def claim(self, key, owner, fingerprint, lease, hold_after_crash):
        return super().claim(key, owner, fingerprint, lease, 100 * hold_after_crash)


class DiscardsWhatCameLater(MemoryStore):
    def discard(self, seen):
        for key, _ in seen:
            self.remove(key)
        return [OK] * len(seen)


class ClearsEverything(MemoryStore):
    def scan(self, prefix):
        return super().scan("")


FOUND_BY = {
    GrantsAll: "a_rival_sees_that_it_runs_and_for_how_long",
    ChecksBeforeItClaims: "one_of_many_simultaneous_callers_is_granted",
    ForgetsFingerprints: "a_record_is_remembered",
    NeverEndsALease: "a_key_is_free_when_the_lease_of_a_fraction_of_a_second_ends",
    ForgetsDeadClaims: "a_kept_claim_says_crashed_when_its_lease_ends",
    RenewsForAnybody: "only_the_owner_of_a_live_claim_renews_it",
    CompletesForAnybody: "a_stale_owner_completes_nothing",
    NeedsALeaseToComplete: "completing_does_not_depend_on_the_lease",
    CompletesOnce: "a_record_is_remembered",
    ReleasesForAnybody: "only_the_owner_releases",
    ReleasesRecords: "a_record_is_never_released",
    LooksBeforeItTakes: "a_token_is_taken_once",
    TakesTokensOfAnybody: "a_token_of_another_subject_stays",
    SpendsTokensOfOthers: "a_token_of_another_subject_stays",
    **dict.fromkeys(
        (KeepsTokens, KeepsRecords, KeepsDeadClaims), "each_is_forgotten_after_its_own_time"
    ),
    DiscardsWhatCameLater: "an_entry_that_has_taken_the_place_of_one_seen_stays",
    ClearsEverything: "scan_and_clear_stay_within_the_prefix",
}


@pytest.mark.parametrize("kind", FOUND_BY, ids=lambda kind: kind.__name__)
def test_a_broken_store_does_not_pass(kind):
    clock, suite = FakeClock(), StoreContract()
    suite.advance = clock.advance
    test = getattr(suite, f"test_{FOUND_BY[kind]}")
    test(MemoryStore(clock=clock))
    with pytest.raises(AssertionError):
        test(kind(clock=clock))
