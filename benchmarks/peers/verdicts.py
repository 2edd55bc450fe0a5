"""The verdicts on observations, each with a few words. Nothing here runs anything.

A peer fails if an effect happened more than once, if an answer belonged to another person or
request, or if a key cannot be used for five minutes or longer. It differs in behaviour that a
caller may dislike, but can live with. Otherwise it holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

HOLDS, DIFFERS, FAILS, SKIPPED = "holds", "differs", "fails", "skipped"
SIGNS = {HOLDS: "✓", DIFFERS: "≈", FAILS: "✗", SKIPPED: "n/a"}
PATIENCE = 300
"""Seconds: a key that is blocked for no longer differs, one that is blocked longer fails."""
FIRST, BEN = "anna", "ben"


@dataclass(frozen=True)
class Verdict:
    verdict: str
    words: str

    @property
    def sign(self) -> str:
        """The verdict in one character."""
        return SIGNS[self.verdict]


NOT_ASKED = Verdict(SKIPPED, "it guards a function, not a response")


def judge(scenario: str, seen: dict | None) -> Verdict:
    """Judge the observations in a scenario; without any, it does not apply."""
    return NOT_ASKED if seen is None else _JUDGES[scenario](seen)


def _repeat(seen: dict) -> Verdict:
    first, second = seen["answers"]
    if seen["effects"] != 1:
        return Verdict(FAILS, f"paid {seen['effects']} times")
    if _same_answer(first, second):
        if second["status"] == first["status"]:
            return Verdict(HOLDS, f"the first answer, {second['status']}")
        return Verdict(DIFFERS, f"the first answer, as {second['status']}")
    verdict = DIFFERS if second["status"] == 409 else FAILS
    return Verdict(verdict, f"{second['status']} instead of the first answer")


def _duplicates(seen: dict) -> Verdict:
    rounds = seen["rounds"]
    effects = [one["effects"] for one in rounds]
    statuses = sorted({status for one in rounds for status in one["statuses"]})
    counts = [
        f"{_range([one['statuses'].get(status, 0) for one in rounds])}x {status}"
        for status in statuses
    ]
    words = f"paid {_times(effects)}; {', '.join(counts)}"
    if any(one["different_answers"] > 1 for one in rounds):
        words += f"; {_range([one['different_answers'] for one in rounds])} different answers"
    if max(effects) > 1:
        return Verdict(FAILS, words)
    return Verdict(HOLDS if min(effects) == 1 else DIFFERS, words)


def _another_user(seen: dict) -> Verdict:
    second = seen["answers"][1]
    if second["user"] == FIRST:
        return Verdict(FAILS, "Ben was given Anna's answer")
    if second["user"] == BEN:
        return Verdict(HOLDS, "Ben's own payment")
    return Verdict(DIFFERS, f"Ben was refused, {second['status']}")


def _another_body(seen: dict) -> Verdict:
    first, second = seen["answers"]
    if second["status"] == 422:
        return Verdict(HOLDS, "refused, 422")
    if _same_answer(first, second):
        return Verdict(FAILS, f"the answer to the other request, {second['status']}")
    if seen["effects"] == 2:
        return Verdict(DIFFERS, "a payment of its own")
    return Verdict(DIFFERS, f"refused, {second['status']}")


def _after_failure(remembered: str, seen: dict) -> Verdict:
    """Judge the retry of a request that failed: to remember it is good for some failures."""
    first, second = seen["answers"]
    before = "" if first["status"] == seen["wanted"] else f"{first['status']} at first; then "
    if seen["runs"] > 1:
        verdict = HOLDS if seen["effects"] == 1 else FAILS
        return Verdict(verdict, before + "ran again")
    if second["status"] == first["status"] and not before:
        return Verdict(remembered, f"{second['status']} again, remembered")
    return _blocked(seen, before + f"blocked, {second['status']}")


def _blocked(seen: dict, words: str) -> Verdict:
    ttl = seen["longest_ttl"]
    if ttl == -1:
        return Verdict(FAILS, f"{words}; the key never expires")
    if ttl is None:
        return Verdict(FAILS, words)
    verdict = FAILS if ttl > PATIENCE else DIFFERS
    return Verdict(verdict, f"{words}; the key has {ttl:,} s left")


def _killed(seen: dict) -> Verdict:
    at_once, later = seen["answers"]
    seconds = seen["seconds"]
    if seen["effects"] > 1:
        return Verdict(FAILS, f"paid {seen['effects']} times")
    if at_once["status"] < 300:
        waited = seconds["first_told"] >= 1
        then = f"after waiting {seconds['first_told']:g} s" if waited else "at once"
        return Verdict(HOLDS, f"ran again {then}")
    words = f"{at_once['status']} after {seconds['first_told']:g} s"
    then = f"after {seconds['second_asked']:g} s"
    if later["status"] < 300:
        return Verdict(HOLDS, f"{words}; ran again {then}")
    if later["kind"] == "outcome-unknown":
        return Verdict(DIFFERS, f"{words}; {then} 409 `outcome-unknown`, as promised")
    return _blocked(seen, f"{words}; still {later['status']} {then}")


def _slow(seen: dict) -> Verdict:
    first, second = seen["answers"]
    if seen["effects"] != 1:
        return Verdict(FAILS, f"paid {seen['effects']} times")
    if _same_answer(first, second):
        return Verdict(HOLDS, f"waited, then the first answer, {second['status']}")
    return Verdict(HOLDS, f"refused, {second['status']}")


def _cookie(seen: dict) -> Verdict:
    second = seen["answers"][1]
    if seen["effects"] != 1:
        return Verdict(FAILS, f"not remembered: paid {seen['effects']} times")
    if second["cookie"]:
        return Verdict(DIFFERS, "set again")
    return Verdict(HOLDS, "not set again")


_JUDGES: dict[str, Callable[[dict], Verdict]] = {
    "repeat": _repeat,
    "duplicates": _duplicates,
    "another_user": _another_user,
    "another_body": _another_body,
    "aborted": partial(_after_failure, HOLDS),
    "busy": partial(_after_failure, DIFFERS),
    "failed": partial(_after_failure, DIFFERS),
    "killed": _killed,
    "slow": _slow,
    "cookie": _cookie,
}


def _same_answer(first: dict, second: dict) -> bool:
    names = ("user", "amount", "run")
    return second["run"] is not None and all(first[name] == second[name] for name in names)


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _times(numbers: list[int]) -> str:
    told = _range(numbers)
    return "once" if told == "1" else f"{told} times"
