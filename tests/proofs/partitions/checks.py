"""What must hold of a history.

Each key is an object of its own, as in Jepsen's and Porcupine's checkers: its requests and effects
are looked at apart from all others. An event "comes after" another one only if it began after the
other's end; of two that overlap, either may have been first.
"""

from collections.abc import Iterator
from itertools import combinations

from .history import AT_MOST_ONCE, RAN, REPLAYED, UNKNOWN, Effect, History, Request, mode_of

SLACK = 1.5
"""Seconds that a busy machine may add to a request."""


def at_most_once_runs_nothing_twice(history: History) -> Iterator[str]:
    """A key of an at-most-once route is granted to one owner, ever."""
    for key, effects in history.effects_by_key().items():
        if mode_of(key) == AT_MOST_ONCE and len(effects) > 1:
            yield f"{key}: {_told(effects)}"


def a_claim_keeps_others_out_for_its_lease(history: History) -> Iterator[str]:
    """No second owner is granted a key before the lease of the first could have ended."""
    for key, effects in history.effects_by_key().items():
        for first, second in combinations(effects, 2):
            if second.begin < first.asked + history.lease:
                yield f"{key}: {_told([first, second])}"


def nothing_acknowledged_is_forgotten(history: History) -> Iterator[str]:
    """After a completion that the store has confirmed, repeats get that run's response."""
    for key, requests in history.requests_by_key().items():
        for done in requests:
            if done.is_acknowledged:
                wrong = [r for r in requests if r.begin > done.end and _contradicts(r, done)]
                if wrong:
                    yield f"{key}: {_told([done, *wrong])}"


def _contradicts(later: Request, done: Request) -> bool:
    # "In progress" may come from a server that has missed the completion. It runs nothing.
    return later.answer in (RAN, UNKNOWN) or (later.answer == REPLAYED and later.run != done.run)


def replays_are_of_runs_that_ended(history: History) -> Iterator[str]:
    """A replay is the response of a run of that key, and comes after its end."""
    effects = {effect.run: effect for effect in history.effects}
    for request in history.requests:
        if request.answer == REPLAYED:
            effect = effects.get(request.run)
            if effect is None or effect.key != request.key or not _ended(effect, request.end):
                yield f"{request.key}: {_told([request, effect])}"


def _ended(effect: Effect, by: float) -> bool:
    return effect.end is not None and effect.end <= by


def all_keys_answer_after_healing(history: History) -> Iterator[str]:
    """The last request of each key began after the end of the fault, and got a final answer."""
    for key, requests in history.requests_by_key().items():
        last = requests[-1]
        is_excused = last.answer == UNKNOWN and mode_of(key) != AT_MOST_ONCE
        if last.begin < history.healed or not last.is_final or is_excused:
            yield f"{key}: {_told([last])}"


def only_expected_answers_come(history: History) -> Iterator[str]:
    """No request gets an error that the guard has no reason for."""
    for request in history.requests:
        if request.answer.startswith("unexpected"):
            yield f"{request.key}: {_told([request])}"


def no_request_exceeds_its_deadlines(history: History) -> Iterator[str]:
    """A request takes no longer than its view and one deadline for each step of its guard."""
    for request, seconds in overhead(history):
        steps = 2 if request.answer == RAN else 1
        if seconds > steps * history.deadline + SLACK:
            yield f"{request.key}: {seconds:.2f} s, {_told([request])}"


def overhead(history: History) -> Iterator[tuple[Request, float]]:
    """Return each request with its seconds less those of its view, and of its host's pause."""
    effects = {effect.run: effect for effect in history.effects}
    for request in history.requests:
        seconds = request.end - request.begin
        effect = effects.get(request.run) if request.answer == RAN else None
        if effect is not None and effect.end is not None:
            seconds -= effect.end - effect.begin
        for host, begin, end in history.paused:
            if host == request.host and request.begin < end and request.end > begin:
                seconds -= end - begin
        yield request, seconds


def _told(events: list) -> str:
    return "; ".join(map(str, events))


CHECKS = (
    at_most_once_runs_nothing_twice,
    a_claim_keeps_others_out_for_its_lease,
    nothing_acknowledged_is_forgotten,
    replays_are_of_runs_that_ended,
    all_keys_answer_after_healing,
    only_expected_answers_come,
    no_request_exceeds_its_deadlines,
)

NOT_PROMISED = (
    at_most_once_runs_nothing_twice,
    a_claim_keeps_others_out_for_its_lease,
    nothing_acknowledged_is_forgotten,
)
"""Checks that an asynchronous failover may fail: without `wait_replicas` they are counted."""
