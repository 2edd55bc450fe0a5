"""What two owners can do to one another, and what the search finds where a rule is broken.

The counts are exact: a rule that comes or goes changes them, and whoever changes it looks here.
"""

import pytest
from model.callers import ASKS, AtLeastOnce, AtMostOnce, Lock, Message, Move, Process, Within
from model.promises import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EVERY_STEP,
    LOCK,
    WITHIN,
    a_completion_that_is_not_beaten_wins,
    a_lock_ends_with_its_interval,
    a_record_stays,
    a_second_effect_has_a_reason,
    nobody_stands_in_his_own_way,
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

PROMISES = {AtLeastOnce: AT_LEAST_ONCE, AtMostOnce: AT_MOST_ONCE, Within: WITHIN, Lock: LOCK}


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
    def complete(self, slot, owner, asks, response, ttl):
        return Record(owner, asks, response, ttl), Outcome.OK


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


class OwnClaimsAreRefused(Rules):
    def claim(self, slot, owner, asks, lease, hold):
        if self.is_claim_of(owner, slot):
            return slot, Running(True, slot.lease)
        return super().claim(slot, owner, asks, lease, hold)


class TheOwnersSecondClaimBeginsAnew(Rules):
    def claim(self, slot, owner, asks, lease, hold):
        if self.is_claim_of(owner, slot):
            return Claim(owner, asks, lease, hold), CLAIMED
        return super().claim(slot, owner, asks, lease, hold)


class ACrashIsForgotten(Rules):
    def claim(self, slot, owner, asks, lease, hold):
        if isinstance(slot, Claim) and not slot.lease:
            slot = None
        return super().claim(slot, owner, asks, lease, hold)


class LateOnesAreRefused(Rules):
    def complete(self, slot, owner, asks, response, ttl):
        if slot is None or (self.is_claim_of(owner, slot) and not slot.lease):
            return slot, Outcome.STALE
        return super().complete(slot, owner, asks, response, ttl)


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
    def claim(self, slot, owner, asks, lease, hold):
        if owner < 0:
            return slot, CLAIMED if slot is None else Running(True, 0)
        return Claim(owner, asks, lease, hold), CLAIMED


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


FAULTS = [
    (AtLeastOnce(NoLookAtWhoCompletes()), nobody_touches_anothers, "A completes: ok"),
    (AtLeastOnce(NoLookAtWhoRenews()), nobody_touches_anothers, "A renews: ok"),
    (AtLeastOnce(NoLookAtWhoReleases()), nobody_touches_anothers, "B releases: ok"),
    (ReleasesWhatItCouldNotComplete(RecordsAreReleased()), a_record_stays, "A releases: ok"),
    (AtLeastOnce(OwnClaimsAreRefused()), nobody_stands_in_his_own_way, "A claims: running"),
    (
        AtLeastOnce(LateOnesAreRefused()),
        a_completion_that_is_not_beaten_wins,
        "A completes: stale",
    ),
    (CheckThenSet(SetsWithoutLooking()), one_view_at_a_time, "B hears that"),
    (AtMostOnce(ACrashIsForgotten()), one_effect, "B has its effect"),
    (RunsWhatWasReleased(), one_effect, "B has its effect"),
    (CountsTheLeaseFromTheAnswer(), who_is_in_time_holds_the_key, "A hears that"),
    (LeavesTheClaimToItsLeaseWhileItCompletes(), who_is_in_time_can_stay_in_time, "time passes"),
    (OneTimeForLeaseAndRetention(), nothing_is_wedged, "A claims: claimed"),
    (KeepsRenewingAfterwards(), a_lock_ends_with_its_interval, "time passes"),
    (TwoTransactions(), one_effect, "B has its effect"),
    (ReleasesWhatItCouldNotComplete(), a_second_effect_has_a_reason, "B has its effect"),
]
"""What is broken, the promise that does not hold then, and the last step to where it does not."""


def counterexample(protocol, promise, **options):
    of_steps = [promise] if promise in EVERY_STEP else []
    with pytest.raises(Broken) as caught:
        Search(protocol, [] if of_steps else [promise], of_steps, **options).run()
    return caught.value.trace


@pytest.mark.parametrize(("protocol", "promise", "end"), FAULTS)
def test_a_broken_rule_is_found(protocol, promise, end):
    assert counterexample(protocol, promise, delays=0)[-1] == end


def test_the_lock_that_keeps_the_rules_ends_with_its_interval():
    Search(Lock(), [a_lock_ends_with_its_interval], [], delays=0).run()


def test_without_the_owner_check_the_search_finds_a_second_effect():
    assert counterexample(Within(NoLookAtWhoCompletes()), one_effect) == [
        "A claims: claimed",
        "A hears that",
        "time passes",
        "time passes",
        "B claims: claimed",
        "A commits: ok",
        "B hears that",
        "B commits: ok",
    ]


def test_a_claim_that_arrives_late_must_not_shorten_the_lease():
    protocol = Lock(TheOwnersSecondClaimBeginsAnew())
    assert counterexample(protocol, who_is_in_time_holds_the_key) == [
        "A claims: no answer",
        "A claims: claimed",
        "A hears that",
        "A renews: ok",
        "what A sent arrives late (claim)",
    ]
