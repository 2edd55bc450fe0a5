"""The protocol at the store: what one key may hold, and what each operation makes of it.

This is the specification. `search.py` explores what processes can do to one another by these
rules; `test_model_against_stores.py` holds every real store to them. Time is counted in ticks, and
what a key holds says how many are left, so that the rules need no clock.
"""

import math
from typing import NamedTuple

from flask_idempotence.stores.base import CLAIMED, Crashed, Done, Outcome, Running

FOREVER = math.inf


class Claim(NamedTuple):
    """A live claim, or one whose lease has ended and which is held for a while."""

    owner: int
    asks: int  # the fingerprint
    lease: float  # ticks until it ends; 0 where it has ended
    hold: float  # ticks for which the key tells of it after that
    kind: str = "claim"


class Record(NamedTuple):
    """What the owner of a claim left behind when it completed."""

    owner: int
    asks: int
    response: int
    left: float
    kind: str = "record"


Slot = Claim | Record | None


class Rules:
    """One key. Each operation takes what is there, and returns what is there then, and the answer.

    A mutation of the protocol is a subclass with one method of its own.
    """

    def claim(self, slot: Slot, owner: int, asks: int, lease: float, hold: float):
        """The first is granted; its own owner is granted again, and never for less than it has."""
        if slot is None:
            return Claim(owner, asks, lease, hold), CLAIMED
        if self.is_claim_of(owner, slot):
            return Claim(owner, asks, max(lease, slot.lease), hold), CLAIMED
        matches = slot.asks == asks
        if isinstance(slot, Record):
            return slot, Done(matches, slot.response)
        if slot.lease > 0:
            return slot, Running(matches, slot.lease)
        return slot, Crashed(matches)

    def renew(self, slot: Slot, owner: int, lease: float):
        """Only the owner, and only while the lease has not ended."""
        if self.is_claim_of(owner, slot) and slot.lease > 0:
            return slot._replace(lease=lease), Outcome.OK
        return slot, Outcome.STALE

    def complete(self, slot: Slot, owner: int, asks: int, response: int, ttl: float):
        """Whoever was not replaced, however late: also over nothing, and over its own record."""
        if slot is None or slot.owner == owner:
            return Record(owner, asks, response, ttl), Outcome.OK
        return slot, Outcome.STALE

    def release(self, slot: Slot, owner: int):
        """Only the owner's claim, never a record."""
        if slot is None or self.is_claim_of(owner, slot):
            return None, Outcome.OK
        return slot, Outcome.STALE

    def let_pass(self, slot: Slot, ticks: float) -> Slot:
        """Time passes."""
        if isinstance(slot, Claim):
            over = max(0, ticks - slot.lease)
            slot = slot._replace(lease=max(0, slot.lease - ticks), hold=slot.hold - over)
            return slot if slot.lease + slot.hold > 0 else None
        if isinstance(slot, Record):
            slot = slot._replace(left=slot.left - ticks)
            return slot if slot.left > 0 else None
        return None

    @staticmethod
    def is_claim_of(owner: int, slot: Slot) -> bool:
        return isinstance(slot, Claim) and slot.owner == owner
