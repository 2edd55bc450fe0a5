"""Each mode, first request and repeat, on each store: against no guard, by hand, and the floor."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import key_mode
import lock_mode
import token_mode
from measuring import Server, Variant, added, interleave, ratio
from running import microseconds, row_of
from shop import plain

Build = Callable[[str], Variant]
FIRST = "first request"
INTERVAL = 25
"""Seconds of the lock whose repeats are measured: a block is sent before they are over."""


@dataclass(frozen=True)
class Case:
    """A request to a guarded view, and what it is compared with on Redis."""

    mode: str
    what: str
    ours: Build
    by_hand: Build
    floor: Build | None = None


def refused(build: Build) -> Build:
    """Return what builds the repeats of a variant's requests, which it refuses."""

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


CASES = (
    Case("lock", FIRST, lock_mode.ours, lock_mode.by_hand, lock_mode.floor),
    Case(
        "lock",
        "repeat, refused",
        refused(partial(lock_mode.ours, interval=INTERVAL)),
        refused(partial(lock_mode.by_hand, interval=INTERVAL)),
    ),
    Case("token", FIRST, token_mode.ours, token_mode.by_hand, token_mode.floor),
    Case("token", "repeat, refused", refused(token_mode.ours), refused(token_mode.by_hand)),
    Case("key", FIRST, key_mode.ours, key_mode.by_hand, key_mode.floor),
    Case("key", "replay", key_mode.our_replay, key_mode.replay_by_hand, key_mode.replay_floor),
)


def measure(stores: dict[str, str], requests: int) -> list[dict]:
    """Measure each case on each store; return a row for each.

    Args:
        stores: their URIs, by name.
        requests: how many of each variant.
    """
    return [_measure(case, name, uri, requests) for case in CASES for name, uri in stores.items()]


def _measure(case: Case, store: str, uri: str, requests: int) -> dict:
    first = key_mode.first_requests if case.mode == "key" else None
    variants = {"unguarded": plain(first) if first else plain(), "ours": case.ours(uri)}
    if uri.startswith(("redis://", "unix://")):
        variants["by hand"] = case.by_hand(uri)
        if case.floor:
            variants["floor"] = case.floor(uri)
    interleave(f"{case.mode}, {case.what}, {store}", list(variants.values()), requests)
    bare, ours = variants["unguarded"], variants["ours"]
    row = {
        "mode": case.mode,
        "what": case.what,
        "store": store,
        "times": {
            name: row_of(microseconds(variant.nanoseconds), 1)
            for name, variant in variants.items()
        },
        "ratios": {
            name: row_of(ratio(ours, variant), 3)
            for name, variant in variants.items()
            if variant is not ours
        },
    }
    if "floor" in variants:
        row["added to floor's"] = row_of(added(ours, variants["floor"], bare), 3)
    return row
