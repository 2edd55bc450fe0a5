"""The values that guards and the engine exchange: operations, verdicts, settlements."""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal, NamedTuple

from ..request.identity import Identity
from ..request.tokens import Token
from ..response.refusals import Refusal
from ..stores.base import Crashed, Done, Running, TokenOutcome


class Operation(NamedTuple):
    """An operation to claim; times are in seconds."""

    name: bytes  # canonical text that names it; its keyed hash becomes the store key
    content: bytes | None = None  # what a repeat must share; None where the name says everything
    lease: float = 0.0  # the first one
    renewal: float = 0.0  # each further lease; 0 for the setting `IDEMPOTENCE_LEASE`
    hold_after_crash: float = 0.0  # for which the key outlives a claim that is never settled
    wait: float = 0.0  # for a running claim of the same request
    token: Token | None = None  # out of the store, in place of a claim
    refusal: Refusal | None = None  # of the operation, without a look at the store
    below: str = ""  # the store key of the operation of which it is a step
    identity: Identity | None = None  # the sender, for the log in debug mode, if it counts

    def __repr__(self) -> str:
        return "<Operation>"

    def observed(self, lease: float) -> Operation:
        """Return the operation of a guard that only observes, with a key and a lease of its own.

        A token is the same: it is spent, or it would not be counted.
        """
        if self.token is not None:
            return self
        lease = max(self.lease, lease)  # the keeper does not renew it
        return self._replace(
            name=b"observed " + self.name, lease=lease, renewal=self.lease, wait=0
        )


NO_OPERATION = Operation(b"")  # of a view that is not claimed


class Unguarded(NamedTuple):
    """The view runs without a claim, for this reason."""

    reason: str


class Verdict(Enum):
    """The judgement about the result of a view or a block; `Claim.verdict` weighs the facts."""

    SUCCEEDED = auto()
    FINAL = auto()  # it failed for good: its writes are rolled back, and its record is kept
    FAILED = auto()  # it failed, and may run again
    # An inner guard has refused, and the view has not run: it may, even under at-most-once.
    NOT_RUN = auto()
    KEPT = auto()  # `current_guard.keep()` was called
    RELEASED = auto()  # `current_guard.release()` was called
    CUT_OFF = auto()  # the body of the request broke off: the client sends it again
    UNKNOWN = auto()  # some of its writes were committed below the session, without its record


# The operation may run again.
FAILURES = (Verdict.FAILED, Verdict.NOT_RUN, Verdict.RELEASED, Verdict.CUT_OFF)

SUCCESSES = (Verdict.SUCCEEDED, Verdict.KEPT)  # the transaction of `within=` is committed


# The state of an operation that could not be claimed, as the store reports it.
Found = Running | Done | Crashed | TokenOutcome


class Settlement(NamedTuple):
    """How a claim ends.

    `leave` leaves the claim to its lease, and a token spent; `release` releases it; `renew` holds
    it for so many seconds more; `complete` puts a record in its place for so many seconds;
    `put_token` puts a spent token back, for the rest of its lifetime.
    """

    call: Literal["leave", "release", "renew", "complete", "put_token"]
    seconds: float = 0.0
    record: bytes = b""

    def __repr__(self) -> str:
        return f"<Settlement {self.call}>"


LEAVE = Settlement("leave")
RELEASE = Settlement("release")
