"""A store on Redis or Valkey: every operation is one Lua script on one key.

The keyspace is documented (`docs/reference/keyspace.md`): one string a key, since a hash would
cost twice the memory. Time is the server's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

from ..errors import StoreError
from .base import (
    CLAIMED,
    ClaimOutcome,
    Crashed,
    Done,
    Entry,
    Outcome,
    Renewal,
    Running,
    Store,
    TokenOutcome,
)
from .facts import ServerFacts
from .redis_link import Command, Link
from .redis_tools import entries_from, facts_of, looks_at

_SCAN_COUNT = 500
_OUTCOMES = {0: Outcome.STALE, 1: Outcome.OK}
_TOKEN_OUTCOMES = {
    -1: TokenOutcome.NOT_YOURS,
    0: TokenOutcome.ABSENT,
    1: TokenOutcome.TAKEN,
    2: TokenOutcome.TAKEN_AGAIN,
}


class _Script:
    """A Lua file of ours, called by its hash, or in full where the server does not know it."""

    def __init__(self, name: str) -> None:
        folder = resources.files(__package__)
        self.source = (folder / "lua" / f"{name}.lua").read_text(encoding="utf-8")
        self.digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def by_hash(self, key: str, *arguments: bytes | int) -> Command:
        return ("EVALSHA", self.digest, 1, key, *arguments)

    def in_full(self, by_hash: Command) -> Command:
        return ("EVAL", self.source, *by_hash[2:])


_CLAIM = _Script("claim")
_RENEW = _Script("renew")
_COMPLETE = _Script("complete")
_RELEASE = _Script("release")
_TAKE_TOKEN = _Script("take_token")
_DISCARD = _Script("discard")


class RedisStore(Store):
    """Claims, records and tokens on a Redis (6.2 or later) or Valkey server.

    Args:
        client: the application's `redis.Redis`. Its connection settings are copied; the client
            itself is neither used nor altered.
        deadline: seconds that an operation may take in all.

    Raises:
        ConfigurationError: the client is of a kind that is not supported.
    """

    _wait_replicas = 0

    def __init__(self, client: Redis, *, deadline: float = 1.0) -> None:
        self._link = Link(client, deadline=deadline)

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        """Take the key for its first caller, or say what is there."""
        reply = self._run(
            _CLAIM, key, owner, fingerprint, _milliseconds(lease), round(keep * 1000)
        )
        if reply == 0:
            return CLAIMED
        state, matches, *rest = reply
        if state == 1:
            return Running(bool(matches), rest[0] / 1000)
        if state == 2:
            return Done(bool(matches), rest[0])
        return Crashed(bool(matches))

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew, in one round trip."""
        if not renewals:
            return []
        commands = [
            _RENEW.by_hash(key, owner, _milliseconds(lease)) for key, owner, lease in renewals
        ]
        replies = self._run_all(_RENEW, commands)
        if all(isinstance(reply, ResponseError) for reply in replies):
            _checked(replies[0])  # the server refuses: read-only, out of memory, loading
        # A single key that is not what it should be must not keep the others from being renewed.
        return [_OUTCOMES.get(reply, Outcome.STALE) for reply in replies]

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, keep: float
    ) -> Outcome:
        """Replace the claim by a record."""
        reply = self._run(_COMPLETE, key, owner, fingerprint, record, _milliseconds(keep))
        return _OUTCOMES[reply]

    def release(self, key: str, owner: bytes) -> Outcome:
        """Give the claim up."""
        return _OUTCOMES[self._run(_RELEASE, key, owner)]

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        """Store a token."""
        value = (b"R" if again else b"T") + subject
        self._send(("SET", key, value, "PX", _milliseconds(ttl)), repeatable=False)

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token."""
        return _TOKEN_OUTCOMES[self._run(_TAKE_TOKEN, key, subject, repeatable=False)]

    def peek(self, key: str) -> Entry | None:
        """Return what a key holds, or None."""
        return self.peek_all([key])[0]

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return what each of some keys holds, in one round trip."""
        if not keys:
            return []
        return list(entries_from(self._link.send(looks_at(keys), repeatable=True)))

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`; a key may come twice, as with SCAN."""
        pattern = _escape(prefix) + "*"
        cursor: Any = b"0"
        while True:
            cursor, keys = self._send(("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT))
            yield from (key.decode("utf-8", "surrogateescape") for key in keys)
            if cursor in {b"0", 0}:
                return

    def remove(self, key: str) -> None:
        """Remove a key, whatever it holds."""
        self._send(("DEL", key))

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys that still hold what they were seen to hold, in one round trip."""
        if not seen:
            return []
        commands = [_DISCARD.by_hash(key, entry.mark) for key, entry in seen]
        return [_OUTCOMES[_checked(reply)] for reply in self._run_all(_DISCARD, commands)]

    def count_all(self) -> int:
        """Return how many keys the database holds, others' included."""
        return int(self._send(("DBSIZE",)))

    def facts(self) -> Sequence[ServerFacts]:
        """Return what the server says of itself."""

        def ask(command: Command) -> Any:
            return self._link.send([command], repeatable=True)[0]

        return [facts_of(ask, replicas_wanted=self._wait_replicas)]

    def ping(self) -> None:
        """Return if the server answers."""
        self._send(("PING",))

    def _run(
        self, script: _Script, key: str, *arguments: bytes | int, repeatable: bool = True
    ) -> Any:
        command = script.by_hash(key, *arguments)
        return _checked(self._run_all(script, [command], repeatable=repeatable)[0])

    def _run_all(
        self, script: _Script, commands: list[Command], *, repeatable: bool = True
    ) -> list[Any]:
        replies = self._link.send(commands, repeatable=repeatable)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # The server was restarted or replaced: what it did not know it has not run either.
            unknown = [isinstance(reply, NoScriptError) for reply in replies]
            again = [
                script.in_full(command)
                for command, no in zip(commands, unknown, strict=True)
                if no
            ]
            fresh = iter(self._link.send(again, repeatable=repeatable, goes_on=True))
            replies = [
                next(fresh) if no else reply for reply, no in zip(replies, unknown, strict=True)
            ]
        return replies

    def _send(self, command: Command, *, repeatable: bool = True) -> Any:
        return _checked(self._link.send([command], repeatable=repeatable)[0])


def _checked(reply: Any) -> Any:
    if isinstance(reply, ResponseError):
        raise StoreError(f"{type(reply).__name__}: {reply}") from reply
    return reply


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _escape(prefix: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in prefix)
