"""What is written by hand asks of a store, in the fewest steps, on each kind of store.

On Redis these are the extension's scripts through redis-py; in a table, the statements that a
developer would write, each committed by itself; in memory, a dict behind a lock. All have the
methods of `BareStore`.
"""

import threading
import time
from typing import Protocol

import redis
from modes.bare_table import InTable
from modes.order_app import load

Found = int | list
"""0 for a key that is claimed now; else 1 (runs) or 2 (done), whether it matches, its record."""


class BareStore(Protocol):
    """A store without guarantees of its own; times are in seconds."""

    how: str
    """How a claim is made, in a few words."""

    def claim(self, key: str, owner: bytes, fingerprint: bytes, lease: float) -> Found: ...
    def look(self, key: str, owner: bytes, fingerprint: bytes, lease: float) -> Found: ...
    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, ttl: float
    ) -> None: ...
    def release(self, key: str, owner: bytes) -> None: ...
    def put_tokens(self, keys: list[str], ttl: int) -> None: ...
    def take_token(self, key: str) -> bool: ...


def bare_store(uri: str) -> BareStore:
    """Return the bare store at a URI; in a database the extension's table has to be there."""
    if uri.startswith("memory:"):
        return InMemory()
    if uri.startswith(("sqlite", "postgresql")):
        return InTable(uri)
    return OnRedis(uri)


class OnRedis:
    """The extension's scripts, sent through redis-py."""

    how = "EVALSHA"

    def __init__(self, uri: str):
        self._client = client = redis.Redis.from_url(uri)
        self._scripts = {
            name: load(client, name) for name in ("claim", "complete", "release", "take_token")
        }
        self._evalsha, self._claim = client.evalsha, self._scripts["claim"]

    def claim(self, key, owner, fingerprint, lease):
        return self._evalsha(self._claim, 1, key, owner, fingerprint, round(lease * 1000), 0)

    look = claim  # one round trip tells of a record, too

    def complete(self, key, owner, fingerprint, record, ttl):
        script = self._scripts["complete"]
        self._evalsha(script, 1, key, owner, fingerprint, record, round(ttl * 1000))

    def release(self, key, owner):
        self._evalsha(self._scripts["release"], 1, key, owner)

    def put_tokens(self, keys, ttl):
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.set(key, b"T", ex=ttl)
        pipeline.execute()

    def take_token(self, key):
        return self._evalsha(self._scripts["take_token"], 1, key, b"") == 1


class InMemory:
    """A dict of this process: key to owner, fingerprint, record, and when it ends."""

    how = "a dict"

    def __init__(self):
        self._lock = threading.Lock()
        self._entries = {}

    def claim(self, key, owner, fingerprint, lease):
        now = time.monotonic()
        with self._lock:
            there = self._entries.get(key)
            if there is None or there[3] <= now:
                self._entries[key] = owner, fingerprint, None, now + lease
                return 0
        _, its, record, _ = there
        return [1 if record is None else 2, its == fingerprint, record]

    look = claim

    def complete(self, key, owner, fingerprint, record, ttl):
        with self._lock:
            there = self._entries.get(key)
            if there is None or there[0] == owner:
                self._entries[key] = owner, fingerprint, record, time.monotonic() + ttl

    def release(self, key, owner):
        with self._lock:
            if key in self._entries and self._entries[key][0] == owner:
                del self._entries[key]

    def put_tokens(self, keys, ttl):
        ends = time.monotonic() + ttl
        with self._lock:
            self._entries.update((key, (b"", b"", None, ends)) for key in keys)

    def take_token(self, key):
        with self._lock:
            there = self._entries.pop(key, None)
        return there is not None and there[3] > time.monotonic()
