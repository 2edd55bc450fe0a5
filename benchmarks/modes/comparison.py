"""Each mode, first request and repeat, on one store: against no guard, by hand, and the floor."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from measuring.command import microseconds, row_of
from measuring.timing import Server, Variant, interleave, ratio
from modes import key_mode, lock_mode, token_mode
from modes.order_app import plain

Build = Callable[[str], Variant]
FIRST, REFUSED = "first request", "repeat, refused"
UNGUARDED, BY_HAND, FLOOR = OTHERS = ("unguarded", "by hand", "floor")


HELD = 60
"""Seconds of the lock whose repeats are measured: a block is sent before they are over."""


def refused(build: Callable[[str], Variant]) -> Callable[[str], Variant]:
    def built(uri: str) -> Variant:
        first = build(uri)

        def prepare(count: int) -> list[dict]:
            server, repeats = Server(), []
            for environ in first.prepare(count):
                body = environ["wsgi.input"].getvalue()
                repeats.append({**environ, "wsgi.input": io.BytesIO(body)})
                server.send(first.app, environ)
            return repeats

        return Variant(first.name, first.app, prepare, replays=True, status="409")

    return built


@dataclass(frozen=True)
class Case:
    """A request to a guarded view, and what it is compared with.

    Attributes:
        limits: the greatest ratio on Redis to some of the others, by their names.
    """

    mode: str
    what: str
    ours: Build
    by_hand: Build
    floor: Build
    limits: dict[str, float] = field(default_factory=dict)


CASES = (
    Case(
        "lock",
        FIRST,
        lock_mode.ours,
        lock_mode.by_hand,
        lock_mode.floor,
        limits={BY_HAND: 1.12},
    ),
    Case(
        "lock",
        REFUSED,
        refused(partial(lock_mode.ours, interval=HELD)),
        refused(partial(lock_mode.by_hand, interval=HELD)),
        lock_mode.repeat_floor,
        limits={BY_HAND: 1.05},
    ),
    Case(
        "token",
        FIRST,
        token_mode.ours,
        token_mode.by_hand,
        token_mode.floor,
        limits={BY_HAND: 1.12},
    ),
    Case(
        "token",
        REFUSED,
        refused(token_mode.ours),
        refused(token_mode.by_hand),
        token_mode.repeat_floor,
    ),
    Case(
        "key",
        FIRST,
        key_mode.ours,
        key_mode.by_hand,
        key_mode.floor,
        limits={BY_HAND: 1.12},
    ),
    Case(
        "key",
        "replay",
        key_mode.our_replay,
        key_mode.replay_by_hand,
        key_mode.replay_floor,
        limits={BY_HAND: 1.05},
    ),
    Case(
        "key",
        REFUSED,
        refused(partial(key_mode.ours, on_repeat="reject")),
        refused(partial(key_mode.by_hand, rejects=True)),
        key_mode.replay_floor,
        limits={BY_HAND: 1.05},
    ),
)


UNREAD = {("lock", FIRST): 1.08, ("key", FIRST): 1.08, ("key", "replay"): 1.05}
"""The greatest ratio to a guard by hand where the view does not read its JSON."""

READ_IN_MEMORY, UNREAD_IN_MEMORY = 1.65, 1.42
"""The greatest ratio of a lock in memory to such a view without a guard."""

LONG = 1.25
"""The greatest ratio to a guard by hand for 10 and 100 kB, which the view reads."""


def compare(case: Case, store: str, uri: str, requests: int) -> dict:
    """Send so many requests of each variant in turn; return times in microseconds, and ratios."""
    ours = case.ours(uri)
    others = {UNGUARDED: plain(key_mode.first_requests) if case.mode == "key" else plain()}
    if not uri.startswith("memory:"):
        others |= {BY_HAND: case.by_hand(uri), FLOOR: case.floor(uri)}
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
