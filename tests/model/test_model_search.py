"""What two owners can do to one another, and what the search finds where a rule is broken.

The counts are exact: a rule that comes or goes changes them, and whoever changes it looks here.
"""

import sys

import pytest
from model.callers import ASKS, AtLeastOnce, AtMostOnce, Lock, Message, Move, Process, Within
from model.promises import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EVERY_STEP,
    LOCK,
    WITHIN,
    a_lock_ends_with_its_interval,
    a_record_stays,
    a_second_effect_has_a_reason,
    nobody_touches_anothers,
    nothing_is_wedged,
    one_effect,
    one_view_at_a_time,
    who_is_in_time_can_stay_in_time,
    who_is_in_time_holds_the_key,
)
from model.protocol import FOREVER, Claim, Record, Rules
from model.search import Broken, Search

from flask_idempotence.stores.base import CLAIMED, Outcome, Running

PROMISES = {
    AtLeastOnce: AT_LEAST_ONCE,
    AtMostOnce: AT_MOST_ONCE,
    Within: WITHIN,
    Lock: LOCK,
}


@pytest.mark.parametrize(
    ("guarantee", "delays", "worlds"),
    [(AtLeastOnce, 1, 12787), (AtMostOnce, 1, 4666), (Within, 1, 5964), (Lock, 0, 5584)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_two_owners_keep_every_promise(guarantee, delays, worlds):
    search = Search(guarantee(), PROMISES[guarantee], EVERY_STEP, delays=delays).run()
    assert len(search.seen) == worlds


@pytest.mark.deep
@pytest.mark.parametrize(
    ("guarantee", "owners", "lease", "delays", "worlds"),
    [
        (AtLeastOnce, 2, 3, FOREVER, 113039),
        (AtMostOnce, 2, 3, FOREVER, 26351),
        (Within, 2, 3, FOREVER, 38563),
        (Lock, 2, 3, 1, 47103),
        (AtLeastOnce, 3, 2, 0, 49337),
        (AtMostOnce, 3, 2, 0, 8105),
        (Within, 3, 2, 0, 19244),
    ],
)
def test_three_owners_or_longer_leases_or_any_delays_keep_them_too(
    guarantee, owners, lease, delays, worlds
):
    search = Search(
        guarantee(lease=lease), PROMISES[guarantee], EVERY_STEP, owners=owners, delays=delays
    )
    assert len(search.run().seen) == worlds


# Rules to break, one each.


class NoLookAtWhoCompletes(Rules):
    def complete(self, slot, owner, asks, response, keep):
        return Record(owner, asks, response, keep), Outcome.OK


class NoLookAtWhoRenews(Rules):
    def renew(self, slot, owner, lease):
        if isinstance(slot, Claim) and slot.lease > 0:
            return slot._replace(lease=lease), Outcome.OK
        return slot, Outcome.STALE


class NoLookAtWhoReleases(Rules):
    def release(self, slot, owner):
        return None if isinstance(slot, Claim) else slot, Outcome.OK


class RecordsAreReleased(Rules):
    def release(self, slot, owner):
        if slot is None or slot.owner == owner:
            return None, Outcome.OK
        return slot, Outcome.STALE


class TheOwnersSecondClaimIsRefused(Rules):
    def claim(self, slot, owner, asks, lease, keep):
        if self.is_claim_of(owner, slot):
            return slot, Running(True, slot.lease)
        return super().claim(slot, owner, asks, lease, keep)


class TheOwnersSecondClaimBeginsAnew(Rules):
    def claim(self, slot, owner, asks, lease, keep):
        if self.is_claim_of(owner, slot):
            return Claim(owner, asks, lease, keep), CLAIMED
        return super().claim(slot, owner, asks, lease, keep)


class ACrashIsForgotten(Rules):
    def claim(self, slot, owner, asks, lease, keep):
        if isinstance(slot, Claim) and not slot.lease:
            slot = None
        return super().claim(slot, owner, asks, lease, keep)


class LateCompletionsAreRefused(Rules):
    def complete(self, slot, owner, asks, response, keep):
        if slot is None or (self.is_claim_of(owner, slot) and not slot.lease):
            return slot, Outcome.STALE
        return super().complete(slot, owner, asks, response, keep)


BROKEN_RULES = Rules.__subclasses__()


class CheckThenSet(AtLeastOnce):
    """Looks first, and claims in a step of its own."""

    def moves(self, me, process):
        if process.step == "new":
            yield Move("looks", Message("claim", -1, (ASKS, 0, 0)), self.looked)
        elif process.step == "saw nothing":
            yield self.asks(me, process._replace(step="new"))
        else:
            yield from super().moves(me, process)

    @staticmethod
    def looked(answer):
        return Process("saw nothing" if answer is CLAIMED else "refused")


class SetsWithoutLooking(Rules):
    def claim(self, slot, owner, asks, lease, keep):
        if owner < 0:
            return slot, CLAIMED if slot is None else Running(True, 0)
        return Claim(owner, asks, lease, keep), CLAIMED


class ReleasesWhatItCouldNotComplete(AtLeastOnce):
    def completes(self, me, process):
        gives_up = self.ended(process, "releasing")
        return super().completes(me, process)._replace(unanswered=gives_up)


class CountsTheLeaseFromTheAnswer(AtLeastOnce):
    def hears(self, process):
        return process._replace(step="running", left=self.lease, late=False)


class LeavesTheClaimToItsLeaseWhileItCompletes(AtLeastOnce):
    renewing = ("running",)


class OneTimeForLeaseAndRetention(AtLeastOnce):
    def __init__(self, rules=None):
        super().__init__(rules)
        self.first_lease = 24


class KeepsRenewingAfterwards(Lock):
    renewing = ("running", "resting")

    def renews(self, me, process):
        if process.step == "resting":
            renew = Message("renew", me, (self.lease,))
            return Move("renews", renew, lambda _: process, process)
        return super().renews(me, process)


class RunsWhatWasReleased(AtMostOnce):
    def fails(self, process):
        return AtLeastOnce.fails(self, process)


class TwoTransactions(Within):
    """Writes its effect first, and the record in a second transaction."""

    def runs(self, me, process):
        yield next(AtLeastOnce.runs(self, me, process))


def counterexample(protocol, promises, step_promises=(), **options):
    with pytest.raises(Broken) as caught:
        Search(protocol, promises, list(step_promises), **options).run()
    sys.stdout.write(f"{caught.value}\n")
    return caught.value


def test_without_the_owner_check_the_search_finds_a_second_effect():
    found = counterexample(Within(NoLookAtWhoCompletes()), [one_effect])
    assert found.trace == [
        "A claims: claimed",
        "A hears that",
        "time passes",
        "time passes",
        "B claims: claimed",
        "A commits: ok",
        "B hears that",
        "B commits: ok",
    ]


@pytest.mark.parametrize("rules", [NoLookAtWhoCompletes, NoLookAtWhoRenews, NoLookAtWhoReleases])
def test_without_the_owner_check_anothers_claim_is_changed(rules):
    found = counterexample(AtLeastOnce(rules()), [], [nobody_touches_anothers], delays=0)
    assert "A claims: claimed" in found.trace
    assert found.trace[-1].endswith(": ok")


def test_a_record_must_not_be_released():
    protocol = ReleasesWhatItCouldNotComplete(RecordsAreReleased())
    found = counterexample(protocol, [], [a_record_stays], delays=0)
    assert found.trace[-2:] == ["A completes: no answer, but carried out", "A releases: ok"]


def test_a_release_after_a_completion_was_sent_lets_it_run_again():
    found = counterexample(ReleasesWhatItCouldNotComplete(), [a_second_effect_has_a_reason])
    assert found.trace[-5:] == [
        "A completes: no answer",
        "A releases: ok",
        "B claims: claimed",
        "B hears that",
        "B has its effect",
    ]


def test_a_look_before_the_claim_lets_both_in():
    found = counterexample(CheckThenSet(SetsWithoutLooking()), [one_view_at_a_time], delays=0)
    assert "time passes" not in found.trace


def test_an_owner_that_is_refused_its_own_claim_is_found():
    counterexample(AtLeastOnce(TheOwnersSecondClaimIsRefused()), [], EVERY_STEP)


def test_a_claim_that_arrives_late_must_not_shorten_the_lease():
    found = counterexample(Lock(TheOwnersSecondClaimBeginsAnew()), [who_is_in_time_holds_the_key])
    assert found.trace == [
        "A claims: no answer",
        "A claims: claimed",
        "A hears that",
        "A renews: ok",
        "what A sent arrives late (claim)",
    ]


def test_a_crash_that_is_forgotten_lets_at_most_once_run_again():
    found = counterexample(AtMostOnce(ACrashIsForgotten()), [one_effect])
    assert found.trace.count("time passes") == 2


def test_at_most_once_must_not_release_what_failed():
    found = counterexample(RunsWhatWasReleased(), [one_effect])
    assert "A fails" in found.trace


def test_a_completion_does_not_depend_on_the_lease():
    counterexample(AtLeastOnce(LateCompletionsAreRefused()), [], EVERY_STEP)


def test_a_lease_counts_from_before_it_is_asked_for():
    found = counterexample(CountsTheLeaseFromTheAnswer(), [who_is_in_time_holds_the_key])
    assert found.trace == ["A claims: claimed", "time passes", "A hears that"]
    counterexample(CountsTheLeaseFromTheAnswer(), [one_view_at_a_time])


def test_a_claim_is_renewed_until_its_completion_is_answered():
    counterexample(LeavesTheClaimToItsLeaseWhileItCompletes(), [who_is_in_time_can_stay_in_time])


def test_one_time_for_lease_and_retention_wedges_the_key_after_a_crash():
    found = counterexample(OneTimeForLeaseAndRetention(), [nothing_is_wedged])
    assert found.trace == ["A claims: claimed"]


def test_a_keeper_that_renews_after_the_settlement_never_lets_the_lock_go():
    promises = [a_lock_ends_with_its_interval]
    Search(Lock(), promises, [], delays=0).run()
    found = counterexample(KeepsRenewingAfterwards(), promises, delays=0)
    assert found.trace[-2].startswith("A renews: ok")


def test_a_record_in_a_transaction_of_its_own_is_not_exactly_once():
    found = counterexample(TwoTransactions(), [one_effect])
    assert "B has its effect" in found.trace
