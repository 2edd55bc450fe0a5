"""What is written by hand asks of a store, in the fewest steps, on Redis and in a table.

On Redis these are the extension's scripts through redis-py; in a table, the statements that a
developer would write, each committed by itself. Both have the same methods; times are in seconds.
`claim` and `look` return 0 for a key that is claimed now, else 1 (runs) or 2 (done), whether it
matches, and its record. `how` says how a claim is made.
"""

import os
from pathlib import Path

import redis
from measuring.timing import Prepare, Variant
from modes.bare_table import InTable
from modes.order_app import application

import flask_idempotence

_SCRIPTS = Path(flask_idempotence.__file__).parent / "stores" / "redis" / "lua"


def bare_store(uri: str):
    """Return the bare store at a URI; in a database the extension's table has to be there."""
    return InTable(uri) if uri.startswith(("sqlite", "postgresql")) else OnRedis(uri)


class OnRedis:
    """The extension's scripts, sent through redis-py."""

    how = "EVALSHA"

    def __init__(self, uri: str):
        self._client = client = redis.Redis.from_url(uri)
        self._evalsha = client.evalsha
        self._claim, self._complete, self._release, self._take_token = (
            client.script_load((_SCRIPTS / f"{name}.lua").read_text())
            for name in ("claim", "complete", "release", "take_token")
        )

    def claim(self, key, owner, fingerprint, lease):
        return self._evalsha(self._claim, 1, key, owner, fingerprint, round(lease * 1000), 0)

    look = claim  # one round trip tells of a record, too

    def complete(self, key, owner, fingerprint, record, ttl):
        self._evalsha(self._complete, 1, key, owner, fingerprint, record, round(ttl * 1000))

    def release(self, key, owner):
        self._evalsha(self._release, 1, key, owner)

    def put_tokens(self, keys, ttl):
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.set(key, b"T", ex=ttl)
        pipeline.execute()

    def take_token(self, key):
        return self._evalsha(self._take_token, 1, key, b"") == 1


def look_floor(uri: str, fill, ready, requests: Prepare, status: str) -> Variant:
    """Return a view that looks at a key that is taken, and has its answer ready."""
    store, keys = bare_store(uri), []

    def view():
        store.look(keys.pop(), os.urandom(16), bytes(16), 5)
        return ready

    def prepare(count: int) -> list[dict]:
        keys[:] = [os.urandom(16).hex() for _ in range(count)]
        for key in keys:
            fill(store, key)
        return requests(count)

    name = "floor: one look at the store"
    return Variant(name, application(name, view), prepare, replays=True, status=status)
