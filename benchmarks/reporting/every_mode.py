"""Each mode, first request and repeat, on each store: against no guard, by hand, and the floor."""

from collections.abc import Callable
from dataclasses import dataclass

from measuring.command import microseconds, row_of
from measuring.timing import Variant, interleave, ratio
from modes import key_mode, lock_mode, refusals, token_mode
from modes.order_app import plain
from reporting.stores import Stores, requests_for

Build = Callable[[str], Variant]
FIRST = "first request"


@dataclass(frozen=True)
class Case:
    """A request to a guarded view, and what it is compared with."""

    mode: str
    what: str
    ours: Build
    by_hand: Build
    floor: Build


CASES = (
    Case("lock", FIRST, lock_mode.ours, lock_mode.by_hand, lock_mode.floor),
    Case(
        "lock",
        "repeat, refused",
        refusals.our_lock,
        refusals.lock_by_hand,
        lock_mode.repeat_floor,
    ),
    Case("token", FIRST, token_mode.ours, token_mode.by_hand, token_mode.floor),
    Case(
        "token",
        "repeat, refused",
        refusals.refused(token_mode.ours),
        refusals.refused(token_mode.by_hand),
        token_mode.repeat_floor,
    ),
    Case("key", FIRST, key_mode.ours, key_mode.by_hand, key_mode.floor),
    Case("key", "replay", key_mode.our_replay, key_mode.replay_by_hand, key_mode.replay_floor),
)


def measure(stores: Stores, requests: int) -> list[dict]:
    """Measure each case on each store, with so many requests of a variant, in databases fewer."""
    uris = stores.uris()
    return [
        _measure(case, name, uri, requests_for(name, requests))
        for case in CASES
        for name, uri in uris.items()
    ]


def _measure(case: Case, store: str, uri: str, requests: int) -> dict:
    ours = case.ours(uri)
    others = {
        "unguarded": plain(key_mode.first_requests) if case.mode == "key" else plain(),
        "by hand": case.by_hand(uri),
        "floor": case.floor(uri),
    }
    interleave(f"{case.mode}, {case.what}, {store}", [ours, *others.values()], requests)
    return {
        "mode": case.mode,
        "what": case.what,
        "store": store,
        "requests": requests,
        "times": {
            name: row_of(microseconds(variant.nanoseconds), 1)
            for name, variant in {"ours": ours, **others}.items()
        },
        "ratios": {name: row_of(ratio(ours, variant), 3) for name, variant in others.items()},
    }
