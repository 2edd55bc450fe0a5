"""The protocol at the callers: what a process does for each of the guarantees.

Told after engine.py, settling.py, keeper.py and the guards. A process is one attempt, with an
owner of its own. It may do nothing for as long as it likes, which is a freeze, or for ever, which
is a crash: the search lets time pass between any two steps. Within a process, the keeper and the
view take turns; an operation that was given up may still arrive at any later time.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from model.protocol import FOREVER, Rules

from flask_idempotence.stores.base import Claimed, Done, Outcome

INTERVAL = 1  # of a lock: its first lease
ASKS = 0


class Message(NamedTuple):
    """An operation on its way to the store."""

    operation: str
    owner: int
    arguments: tuple = ()


class Process(NamedTuple):
    """One attempt.

    left: what is left of its lease by its own clock, which began before it asked.
    ran: whether its view had its effect.
    failed: whether its view failed.
    late: whether its lease went by, by its own clock, before a renewal was answered.
    renewed: whether it sent a renewal, where that matters.
    shown: whose response it replayed.
    """

    step: str = "new"
    left: int = 0
    ran: bool = False
    failed: bool = False
    late: bool = False
    renewed: bool = False
    shown: int | None = None


HOLDING = {"granted", "running", "completing"}
"""Steps in which a process relies on its claim."""

LATE = HOLDING | {"asking"}
"""Steps in which a lease that went by matters to it."""

RESTING = {"holding on", "holding again", "resting"}
"""Steps of a lock after its view, until the interval is over."""


class Move(NamedTuple):
    """One thing that a process may do next.

    message: what it sends, or None.
    then: makes the process of the answer.
    unanswered: the process where no answer comes.
    """

    name: str
    message: Message | None
    then: Callable[[Any], Process]
    unanswered: Process | None = None


class AtLeastOnce:
    """Key mode: claim, run, complete; what failed is released, and may run again."""

    hold = 0
    remembers = FOREVER  # a store that forgets nothing
    renewing = ("running", "completing")

    def __init__(self, rules: Rules | None = None, lease: int = 2) -> None:
        self.rules = rules or Rules()
        self.lease = lease
        self.first_lease = lease

    def moves(self, me: int, process: Process) -> Iterator[Move]:
        """What a process may do next."""
        if process.step in {"new", "asking"}:
            yield self.asks(me, process)
        if process.step == "asking":
            yield Move("gives up, and takes back", None, lambda _: Process("releasing"))
        if process.step == "granted":
            yield Move("hears that", None, lambda _: self.hears(process))
        if process.step == "running":
            yield from self.runs(me, process)
        if process.step in self.renewing and process.left < self.lease:
            yield self.renews(me, process)
        if process.step == "completing":
            yield self.completes(me, process)
        if process.step == "releasing":
            yield self.releases(me, process)

    def asks(self, me: int, process: Process) -> Move:
        # The lease is counted from before the first time it was asked for; the store's link sends
        # a claim again that was not answered in time.
        asking = process if process.step == "asking" else Process("asking", self.first_lease)

        def then(answer: Any) -> Process:
            if isinstance(answer, Claimed):
                return asking._replace(step="granted")
            if isinstance(answer, Done):
                return Process("shown", shown=answer.record)
            return Process("refused")

        claim = Message("claim", me, (ASKS, self.first_lease, self.hold))
        return Move("claims", claim, then, asking)

    def hears(self, process: Process) -> Process:
        return process._replace(step="running")

    def runs(self, me: int, process: Process) -> Iterator[Move]:
        if not process.ran:
            yield Move("has its effect", None, lambda _: process._replace(ran=True))
        else:
            yield Move("succeeds", None, lambda _: process._replace(step="completing"))
        yield self.fails(process)

    def fails(self, process: Process) -> Move:
        return Move("fails", None, lambda _: self.ended(process, "releasing", failed=True))

    def renews(self, me: int, process: Process) -> Move:
        def then(answer: Outcome) -> Process:
            if answer is Outcome.OK:
                return process._replace(left=self.lease)
            return process._replace(left=0, late=True)

        return Move("renews", Message("renew", me, (self.lease,)), then, process)

    def completes(self, me: int, process: Process) -> Move:
        def then(answer: Outcome) -> Process:
            return self.ended(process, "done" if answer is Outcome.OK else "beaten")

        complete = Message("complete", me, (ASKS, me, self.remembers))
        return Move("completes", complete, then, process)

    def releases(self, me: int, process: Process) -> Move:
        return Move(
            "releases", Message("release", me), lambda _: process._replace(step="gone"), process
        )

    @staticmethod
    def ended(process: Process, step: str, *, failed: bool = False) -> Process:
        return process._replace(step=step, left=0, failed=failed)

    def carried_out(self, process: Process, message: Message, answer: Any) -> Process:
        """What it means for the sender that the store has carried something out."""
        return process

    def grows_late(self, process: Process) -> Process:
        """A tick on the process's own clock."""
        if not process.left:
            return process
        left = process.left - 1
        return process._replace(
            left=left, late=process.late or (process.step in LATE and not left)
        )


class AtMostOnce(AtLeastOnce):
    """Key mode: what has begun never begins again; whatever came of it is remembered."""

    hold = FOREVER

    def fails(self, process: Process) -> Move:
        return Move("fails", None, lambda _: process._replace(step="completing", failed=True))


class Within(AtLeastOnce):
    """The view's writes and the record are committed together, if the claim is still its owner's.

    A commit is sent once. If its answer is lost, the claim is left alone.
    """

    renewing = ("running",)

    def runs(self, me: int, process: Process) -> Iterator[Move]:
        def then(answer: Outcome) -> Process:
            if answer is Outcome.OK:
                return self.ended(process, "done")
            return self.ended(process, "rolled back")

        commit = Message("complete", me, (ASKS, me, self.remembers))
        yield Move("commits", commit, then, self.ended(process, "does not know"))
        yield self.fails(process)

    def carried_out(self, process: Process, message: Message, answer: Any) -> Process:
        if message.operation == "complete" and answer is Outcome.OK:
            return process._replace(ran=True)
        return process


class Lock(AtLeastOnce):
    """Lock mode: the claim of a success is left to its interval; nothing is remembered."""

    renewing = ("running",)

    def __init__(self, rules: Rules | None = None, lease: int = 2) -> None:
        super().__init__(rules, lease)
        self.first_lease = INTERVAL

    def moves(self, me: int, process: Process) -> Iterator[Move]:
        yield from super().moves(me, process)
        if process.step == "holding on":
            yield self.holds_on(me, process)
        if process.step == "holding again":
            yield self.holds_again(me, process)

    def runs(self, me: int, process: Process) -> Iterator[Move]:
        if not process.ran:
            yield Move("has its effect", None, lambda _: process._replace(ran=True))
        else:
            yield Move("succeeds", None, lambda _: self.succeeded(process))
        yield self.fails(process)

    def renews(self, me: int, process: Process) -> Move:
        # Noted before it is sent: one that was not answered may have been carried out.
        return super().renews(me, process._replace(renewed=True))

    def succeeded(self, process: Process) -> Process:
        if process.renewed or not process.left:
            return process._replace(step="holding on", left=INTERVAL)
        return process._replace(step="resting")

    def holds_on(self, me: int, process: Process) -> Move:
        if not process.left:
            return self.releases(me, process)

        def then(answer: Outcome) -> Process:
            return process._replace(step="resting" if answer is Outcome.OK else "holding again")

        renew = Message("renew", me, (process.left,))
        return Move("holds on for the interval", renew, then, process)

    def holds_again(self, me: int, process: Process) -> Move:
        def then(answer: Any) -> Process:
            if isinstance(answer, Claimed):
                return process._replace(step="resting", left=INTERVAL)
            return self.ended(process, "beaten")

        claim = Message("claim", me, (ASKS, INTERVAL, 0))
        return Move("claims again", claim, then, process._replace(step="holding on"))
