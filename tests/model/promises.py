"""What must hold in every world that the search reaches, and of every step of the store."""

from collections.abc import Callable
from typing import Any

from model.callers import ASKS, HOLDING
from model.protocol import Claim, Record, Slot

from flask_idempotence.stores.base import Claimed, Outcome, Running

Promise = Callable[[Any, Any], bool]
StepPromise = Callable[[Slot, Any, Any, Slot], bool]
STRANGER = 99


def who_is_in_time_holds_the_key(protocol, world):
    """A process whose lease has not ended by its own clock holds the key."""
    return all(
        world.slot is not None
        and world.slot.owner == owner
        and (isinstance(world.slot, Record) or world.slot.lease >= process.left)
        for owner, process in enumerate(world.processes)
        if process.step in HOLDING and process.left
    )


def who_is_in_time_can_stay_in_time(protocol, world):
    """A process that holds the key can renew it, for as long as it has not settled."""
    return all(
        process.step not in {"running", "completing"}
        or process.left in {0, protocol.lease}
        or any(move.name == "renews" for move in protocol.moves(owner, process))
        for owner, process in enumerate(world.processes)
    )


def one_view_at_a_time(protocol, world):
    """Two views run at once only if one of them is late: its lease went by, and nobody renewed."""
    views = [process for process in world.processes if process.step == "running"]
    return sum(not process.late for process in views) <= 1


def one_effect(protocol, world):
    """There is at most one effect."""
    return sum(process.ran for process in world.processes) <= 1


def a_second_effect_has_a_reason(protocol, world):
    """There are two effects only if a view failed, or its process was late."""
    faultless = [p for p in world.processes if p.ran and not p.failed and not p.late]
    return len(faultless) <= 1


_ENDED = {"completing", "done", "beaten", "does not know"}


def a_replay_is_of_a_run_that_ended(protocol, world):
    """A response that is shown is that of a view which has ended."""
    return all(
        world.processes[process.shown].step in _ENDED
        for process in world.processes
        if process.shown is not None
    )


def a_failed_run_is_not_replayed(protocol, world):
    """The response of a view that failed is not shown."""
    return not any(
        world.processes[process.shown].failed
        for process in world.processes
        if process.shown is not None
    )


def what_was_acknowledged_is_remembered(protocol, world):
    """What was acknowledged as completed is what the key holds from then on."""
    return all(
        isinstance(world.slot, Record) and world.slot.owner == owner
        for owner, process in enumerate(world.processes)
        if process.step == "done"
    )


def effect_and_record_come_together(protocol, world):
    """There is an effect if, and only if, there is the record of the same run."""
    remembered = world.slot.owner if isinstance(world.slot, Record) else None
    return all(
        process.ran == (owner == remembered) for owner, process in enumerate(world.processes)
    )


def nothing_is_wedged(protocol, world):
    """Whatever stopped whenever: after one lease, the key is free or says how it ended."""
    later = protocol.rules.let_pass(world.slot, protocol.lease)
    claimed = protocol.rules.claim(later, STRANGER, ASKS, protocol.lease, protocol.hold)
    return not isinstance(claimed[1], Running)


def a_repeat_within_the_interval_is_refused(protocol, world):
    """After a success that was in time, the lock is held until the interval is over."""
    return all(
        isinstance(world.slot, Claim) and world.slot.owner == owner
        for owner, process in enumerate(world.processes)
        if process.step == "resting" and process.left and not process.late
    )


def a_lock_ends_with_its_interval(protocol, world):
    """After the interval, the lock is not held by a process that has nothing to do any more."""
    return not any(
        isinstance(world.slot, Claim) and world.slot.owner == owner
        for owner, process in enumerate(world.processes)
        if process.step == "resting" and not process.left
    )


# of every step of the store


def nobody_touches_anothers(before, message, answer, after):
    """An operation changes nothing of what is another owner's."""
    return before is None or before.owner == message.owner or before == after


def a_record_stays(before, message, answer, after):
    """A record is never overwritten by anything else, and never removed."""
    return not isinstance(before, Record) or before == after


def nobody_stands_in_his_own_way(before, message, answer, after):
    """Only another owner's claim, or a record, turns anybody away."""
    refused = answer is Outcome.STALE or (
        message.operation == "claim" and not isinstance(answer, Claimed)
    )
    mine = isinstance(before, Claim) and before.owner == message.owner
    ended = message.operation == "renew" and mine and before.lease <= 0
    return not (refused and mine) or ended


def a_completion_that_is_not_beaten_wins(before, message, answer, after):
    """A completion is stored, unless another owner has taken the key."""
    if message.operation != "complete":
        return True
    beaten = before is not None and before.owner != message.owner
    return answer is (Outcome.STALE if beaten else Outcome.OK)


EVERY_STEP = [
    nobody_touches_anothers,
    a_record_stays,
    nobody_stands_in_his_own_way,
    a_completion_that_is_not_beaten_wins,
]
ALWAYS = [who_is_in_time_holds_the_key, one_view_at_a_time, nothing_is_wedged]
_REMEMBERED = [*ALWAYS, a_replay_is_of_a_run_that_ended, what_was_acknowledged_is_remembered]
AT_LEAST_ONCE = [
    *_REMEMBERED,
    who_is_in_time_can_stay_in_time,
    a_second_effect_has_a_reason,
    a_failed_run_is_not_replayed,
]
AT_MOST_ONCE = [*_REMEMBERED, who_is_in_time_can_stay_in_time, one_effect]
WITHIN = [*_REMEMBERED, one_effect, effect_and_record_come_together, a_failed_run_is_not_replayed]
LOCK = [*ALWAYS, a_repeat_within_the_interval_is_refused]
