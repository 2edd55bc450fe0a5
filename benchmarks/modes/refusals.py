"""Refused repeats: of a lock within its interval, and of a key whose repeats are rejected."""

import io
from collections.abc import Callable
from functools import partial

from measuring.timing import Server, Variant
from modes import key_mode, lock_mode

INTERVAL = 60
"""Seconds of the lock whose repeats are measured: a block is sent before they are over."""


def refused(build: Callable[[str], Variant]) -> Callable[[str], Variant]:
    """Return a function that builds the refused repeats of a variant's requests."""

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


our_lock = refused(partial(lock_mode.ours, interval=INTERVAL))
lock_by_hand = refused(partial(lock_mode.by_hand, interval=INTERVAL))
our_key = refused(partial(key_mode.ours, on_repeat="reject"))
key_by_hand = refused(partial(key_mode.by_hand, rejects=True))
