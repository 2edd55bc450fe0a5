"""What must be true of a history, whatever was done to the servers.

Each check yields what contradicts it. They are about facts and their order: how fast the machine
is does not matter, save where a process noticed that it stood still.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from .history import (
    EXITED,
    KEY_MODES,
    KILLED,
    KILLED_ITSELF,
    WORKER_FAULTS,
    Attempt,
    Fault,
    History,
    Run,
)

CLOCKS = 0.05
"""Seconds by which the server's clock and ours may drift apart within a lease."""

SLACK = 1.5
"""Seconds that a busy machine may add to a request."""

EXPECTED = {
    "once": {"key-in-progress", "outcome-unknown"},
    "least": {"key-in-progress"},
    "patient": {"key-in-progress"},
    "lock": {"repeat-submit"},
    "token": {"token-spent", "token-not-yours"},
    "restoring": {"token-spent", "token-not-yours"},
}
"""Refusals that a guard may give, besides `store-unavailable`."""


@dataclass(frozen=True)
class Violation:
    operation: str
    what: str


def repeatable_runs(history: History, *modes: str) -> Iterator[tuple[str, list[Run]]]:
    """Yield the operations of some modes, and their runs that did not say they had failed."""
    for operation, runs in history.runs_of.items():
        if runs[0].mode in modes:
            yield operation, [run for run in runs if run.end != "failure"]


def at_most_once_ran_nothing_twice(history: History) -> Iterator[Violation]:
    """Not even what failed: every response is remembered, and every death as well."""
    for operation, runs in history.runs_of.items():
        if runs[0].mode == "once" and len(runs) > 1:
            yield Violation(operation, f"ran {len(runs)} times")


def tokens_are_spent_at_most_once(history: History) -> Iterator[Violation]:
    """Save where a failure put the token back."""
    for operation, runs in repeatable_runs(history, "token", "restoring"):
        if len(runs) > 1:
            yield Violation(operation, f"ran {len(runs)} times")
    for operation, runs in history.runs_of.items():
        if runs[0].mode == "token" and len(runs) > 1:
            yield Violation(operation, f"its token was spent {len(runs)} times")


def nothing_is_lost(history: History) -> Iterator[Violation]:
    """Who was told of a success finds its effect; who asks long enough is told."""
    effects = {run.id for run in history.runs if run.effect}
    for attempt in history.attempts:
        if attempt.run and attempt.run not in effects:
            yield Violation(attempt.operation, "its effect is missing")
    for operation in history.given_up:
        yield Violation(operation, "no final answer")


def nothing_runs_twice_without_a_reason(history: History) -> Iterator[Violation]:
    """At-least-once: a second run is explained by what happened to the first."""
    for operation, runs in repeatable_runs(history, "least", "patient"):
        for first, second in pairwise(runs):
            if reason(history, first, second) is None:
                apart = second.begun - first.begun
                yield Violation(operation, f"ran twice for no reason, {apart:.2f} s apart")


def nothing_runs_before_the_lease_is_over(history: History) -> Iterator[Violation]:
    """Whatever became of the first run, its claim lives as long as it was granted for."""
    for operation, runs in repeatable_runs(history, *KEY_MODES, "lock"):
        least = history.interval if runs and runs[0].mode == "lock" else history.lease
        for first, second in pairwise(runs):
            apart = second.begun - first.arrived
            if apart < least - CLOCKS and not was_frozen(history, second):
                yield Violation(operation, f"ran again after {apart:.2f} s")


def locks_hold_while_their_view_runs(history: History) -> Iterator[Violation]:
    """And for the interval from the end of a view that took longer than it."""
    for operation, runs in repeatable_runs(history, "lock"):
        for first, second in pairwise(runs):
            ended = first.ended if first.end == "success" else None
            slow = ended is not None and ended - first.begun > history.interval
            free = first.begun if ended is None else ended + slow * (history.interval - CLOCKS)
            if second.begun < free and reason(history, first, second) is None:
                yield Violation(operation, f"ran again {free - second.begun:.2f} s too early")


def nothing_acknowledged_is_forgotten(history: History) -> Iterator[Violation]:
    """After a response that was stored or replayed, a repeat runs nothing and gets no other one.

    It may be told that the key is in progress, by a server that has missed the completion.
    """
    for operation, attempts in history.attempts_of.items():
        known = [a for a in attempts if a.replayed or (a.run and a.stored)]
        if not known or known[0].mode not in KEY_MODES:
            continue
        first = min(known, key=lambda attempt: attempt.received)
        if any(run.arrived > first.received for run in history.runs_of.get(operation, ())):
            yield Violation(operation, "ran although its response was remembered")
        for later in attempts:
            is_other = later.replayed and later.run != first.run
            if later.sent > first.received and (is_other or later.slug == "outcome-unknown"):
                yield Violation(operation, "its response was forgotten")
        if len({attempt.run for attempt in known if attempt.replayed}) > 1:
            yield Violation(operation, "replays tell of different runs")


def nobody_gets_anothers_answer(history: History) -> Iterator[Violation]:
    """Keys and bodies are the same for several users; the answers name the user."""
    for attempt in history.attempts:
        _, number, user = attempt.operation.split("/")
        if attempt.body and (attempt.body["user"], str(attempt.body["number"])) != (user, number):
            told = f"{attempt.body['user']}'s answer to {attempt.body['number']}"
            yield Violation(attempt.operation, f"{user} got {told}")
        if attempt.stolen and attempt.status == 201:
            yield Violation(attempt.operation, "another user's token was taken")


def answers_are_equal(history: History) -> Iterator[Violation]:
    """A run has one answer, and a replay tells of a run that has ended."""
    for operation, attempts in history.attempts_of.items():
        runs = {run.id: run for run in history.runs_of.get(operation, ())}
        for attempt in attempts:
            told = attempt.run and runs.get(attempt.run)
            if attempt.run and not told:
                yield Violation(operation, "an answer tells of a run that was another's, or none")
            elif told and attempt.body["attempt"] != told.attempt:
                yield Violation(operation, "a replay differs from the first answer")
            elif told and not attempt.replayed and told.attempt != attempt.id:
                yield Violation(operation, "a replay is not marked as one")
            elif told and (told.end != "success" or told.ended > attempt.received):
                yield Violation(operation, "an answer tells of a run that had not ended")


def no_key_stays_wedged(history: History) -> Iterator[Violation]:
    """The last answer for a key, when all is calm again, is final; or it runs only now."""
    probes = {attempt.id for attempt in history.attempts if attempt.probe}
    runs_now = {run.operation for run in history.runs if run.attempt in probes}
    for operation, attempts in history.attempts_of.items():
        last = attempts[-1]
        if last.mode in {*KEY_MODES, "lock"} and operation not in runs_now:
            if not last.probe:
                yield Violation(operation, "was not asked for when all was calm")
            elif not last.is_settled:
                yield Violation(operation, f"still {last.status} {last.slug}")


def only_expected_answers_come(history: History) -> Iterator[Violation]:
    """No 500 but from a view that exits, and no refusal that does not fit."""
    exits = {run.attempt for run in history.runs if run.end == "exit"}
    failed = {run.attempt for run in history.runs if run.end == "failure"}
    for attempt in history.attempts:
        if not is_expected(attempt, exits, failed):
            told = f"{attempt.status} {attempt.slug}".strip()
            yield Violation(attempt.operation, f"was answered {told}")


def is_expected(attempt: Attempt, exits: set[str], failed: set[str]) -> bool:
    if attempt.slug:
        return attempt.slug in EXPECTED[attempt.mode] | {"store-unavailable"}
    if attempt.status == 500:
        return attempt.id in exits
    if attempt.status == 503:
        return attempt.id in failed or (attempt.mode == "once" and attempt.replayed)
    return attempt.status in {None, 201}


def no_request_exceeds_its_deadlines(history: History) -> Iterator[Violation]:
    """A request takes no longer than its view and one deadline for each step of its guard.

    The time in which its host stood still does not count.
    """
    runs = {run.attempt: run for run in history.runs if run.ended}
    for attempt in history.attempts:
        seconds = attempt.received - attempt.sent
        if run := runs.get(attempt.id):
            seconds -= run.ended - run.begun
        for stall in history.stalls:
            if stall.pid == attempt.pid:
                common = min(attempt.received, stall.ended) - max(attempt.sent, stall.begun)
                seconds -= max(0.0, common)
        steps = 2 if attempt.run and not attempt.replayed else 1
        if seconds > steps * history.deadline + SLACK:
            yield Violation(attempt.operation, f"{seconds:.2f} s of its own")


def reason(history: History, first: Run, second: Run) -> str | None:
    """Return why a second run was let in, or None where nothing explains it.

    What came when the client had its answer already explains nothing.
    """
    if first.end == "exit":
        return "its view was broken off"
    begun = min(first.arrived, second.arrived)
    ended = min(second.begun, history.told_at.get(first.id, second.begun))
    for death in [fault for fault in history.faults if fault.pid == first.pid]:
        if death.kind in {KILLED, KILLED_ITSELF} and begun <= death.begun <= ended:
            return "its worker was killed"
        # Its other views may come to their end, and then be unable to tell.
        if death.kind == EXITED and death.begun <= ended:
            return "its worker ended"
    if was_frozen(history, first, ended) or was_frozen(history, second):
        return "its worker stood still"
    for run in (first, second):
        if any(i.begun <= ended and i.ended >= begun for i in interruptions(history, run.pid)):
            return "the store was away"
    return None


def was_frozen(history: History, run: Run, until: float | None = None) -> bool:
    """Whether the process of a run stood still, from its arrival, for long enough to matter."""
    until = run.begun if until is None else until
    return any(
        stop.pid == run.pid
        and stop.length > history.lease / 3
        and stop.begun <= until
        and stop.ended >= run.arrived
        for stop in history.standstills
    )


def interruptions(history: History, pid: int) -> list[Fault]:
    """Return when a process could not renew, for longer than a third of a lease.

    A lease is renewed when a third of it is over, and half a second after a failure again: what is
    shorter than another third costs nothing, unless more of it follows.
    """
    mine = [stop for stop in history.standstills if stop.pid == pid]
    away = [fault for fault in history.faults if fault.kind not in WORKER_FAULTS]
    merged: list[Fault] = []
    for fault in sorted([*mine, *away], key=lambda fault: fault.begun):
        if merged and fault.begun - merged[-1].ended < history.lease / 3:
            merged[-1] = replace(merged[-1], ended=max(merged[-1].ended, fault.ended))
        else:
            merged.append(fault)
    return [fault for fault in merged if fault.length > history.lease / 3]


CHECKS = (
    at_most_once_ran_nothing_twice,
    tokens_are_spent_at_most_once,
    nothing_is_lost,
    nothing_runs_twice_without_a_reason,
    nothing_runs_before_the_lease_is_over,
    locks_hold_while_their_view_runs,
    nothing_acknowledged_is_forgotten,
    nobody_gets_anothers_answer,
    answers_are_equal,
    no_key_stays_wedged,
    only_expected_answers_come,
)

ALWAYS_IN_A_SPLIT = (
    nothing_is_lost,
    nobody_gets_anothers_answer,
    answers_are_equal,
    no_key_stays_wedged,
    only_expected_answers_come,
    no_request_exceeds_its_deadlines,
)
"""What `proofs.partitions` checks, also where an asynchronous failover may forget a grant."""

IN_A_SPLIT = (
    *ALWAYS_IN_A_SPLIT,
    at_most_once_ran_nothing_twice,
    nothing_runs_before_the_lease_is_over,
    nothing_acknowledged_is_forgotten,
)
"""With `wait_replicas`."""
