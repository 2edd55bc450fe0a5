"""A store on Redis or Valkey: every operation is one Lua script on one key.

The keyspace is documented (`docs/reference/keyspace.md`): one string a key, since a hash would
cost twice the memory. Time is the server's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from redis import Redis, RedisCluster
from redis.exceptions import NoScriptError, ResponseError

from ..errors import ConfigurationError, StoreError
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
from .redis_link import Command, Link, Node, Quorum, Topology, topology_of

_SCAN_COUNT = 500
_MOST_REPLICAS = 1000
_KINDS = {b"C": "claim", b"D": "record", b"T": "token", b"R": "token"}
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


class RedisStore(Store):
    """Claims, records and tokens on Redis (6.2 or later) or Valkey: a server or a cluster.

    Args:
        client: the application's `redis.Redis`, also one that `Sentinel.master_for` made, or its
            `redis.RedisCluster`. Its connection settings are copied; the client itself is neither
            used nor altered.
        deadline: seconds that an operation may take in all.
        wait_replicas: how many replicas must have a claim, a completion or the spending of a token
            before it counts. Fewer in time are a store that does not answer: it is unknown whether
            the operation will outlive a failover.

    Raises:
        ConfigurationError: the client is of a kind that is not supported, or a number is wrong.
    """

    def __init__(
        self,
        client: Redis | RedisCluster | Topology,
        *,
        deadline: float = 1.0,
        wait_replicas: int = 0,
    ) -> None:
        if not _is_number(deadline) or not 0 < deadline < math.inf:
            raise ConfigurationError("deadline must be a number of seconds greater than 0.")
        if not isinstance(wait_replicas, int) or not 0 <= wait_replicas <= _MOST_REPLICAS:
            raise ConfigurationError("wait_replicas must be a number of replicas, 0 for none.")
        topology = client if isinstance(client, Topology) else topology_of(client)
        self._link = Link(topology, deadline)
        self._wait_replicas = int(wait_replicas)

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        """Take the key for its first caller, or say what is there."""
        arguments = (owner, fingerprint, _milliseconds(lease), round(keep * 1000))
        reply = self._run_on_replicas(_CLAIM, key, *arguments, written=(0,))
        if reply == 0:
            return CLAIMED
        state, matches, *rest = reply
        if state == 1:
            return Running(bool(matches), rest[0] / 1000)
        if state == 2:
            return Done(bool(matches), rest[0])
        return Crashed(bool(matches))

    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        """Begin the leases of live claims anew, in one round trip for each server."""
        if not renewals:
            return []
        outcomes = [Outcome.STALE] * len(renewals)

        def renew(indices: list[int]) -> None:
            batch = [renewals[index] for index in indices]
            for index, outcome in zip(indices, self._renew(batch), strict=True):
                outcomes[index] = outcome

        self._link.scatter([renewal.key for renewal in renewals], renew)
        return outcomes

    def _renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        commands = [
            _RENEW.by_hash(key, owner, _milliseconds(lease)) for key, owner, lease in renewals
        ]
        replies = self._run_all(_RENEW, commands, renewals[0].key, goes_on=True)
        if all(isinstance(reply, ResponseError) for reply in replies):
            _checked(replies[0])  # the server refuses: read-only, out of memory, loading
        # A single key that is not what it should be must not keep the others from being renewed.
        return [_OUTCOMES.get(reply, Outcome.STALE) for reply in replies]

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, keep: float
    ) -> Outcome:
        """Replace the claim by a record."""
        arguments = (owner, fingerprint, record, _milliseconds(keep))
        return _OUTCOMES[self._run_on_replicas(_COMPLETE, key, *arguments, written=(1,))]

    def release(self, key: str, owner: bytes) -> Outcome:
        """Give the claim up."""
        return _OUTCOMES[self._run(_RELEASE, key, owner)]

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        """Store a token."""
        value = (b"R" if again else b"T") + subject
        self._send(("SET", key, value, "PX", _milliseconds(ttl)), key, repeatable=False)

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token."""
        reply = self._run_on_replicas(_TAKE_TOKEN, key, subject, repeatable=False, written=(1, 2))
        return _TOKEN_OUTCOMES[reply]

    def peek(self, key: str) -> Entry | None:
        """Return what a key holds, or None."""
        value = self._send(("GET", key), key)
        left = self._send(("PTTL", key), key)
        if value is None or left < 0:
            return None
        return Entry(_KINDS.get(value[:1], "unknown"), left / 1000, len(value))

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`; a key may come twice, as with SCAN."""
        for node in self._link.primaries():
            yield from self._scan(node, _escape(prefix) + "*")

    def _scan(self, node: Node, pattern: str) -> Iterator[str]:
        cursor: Any = b"0"
        while True:
            command = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
            cursor, keys = _checked(self._link.send([command], key=None, node=node)[0])
            yield from (key.decode("utf-8", "surrogateescape") for key in keys)
            if cursor in {b"0", 0}:
                return

    def remove(self, key: str) -> None:
        """Remove a key, whatever it holds."""
        self._send(("DEL", key), key)

    def ping(self) -> None:
        """Return if the server answers, or all primaries of a cluster do."""
        for node in self._link.primaries():
            _checked(self._link.send([("PING",)], key=None, node=node)[0])

    def _run(self, script: _Script, key: str, *arguments: bytes | int) -> Any:
        return _checked(self._run_all(script, [script.by_hash(key, *arguments)], key)[0])

    def _run_on_replicas(
        self,
        script: _Script,
        key: str,
        *arguments: bytes | int,
        written: tuple[int, ...],
        repeatable: bool = True,
    ) -> Any:
        """Run a script; what it wrote, by its reply, counts once enough replicas have it."""
        wanted = self._wait_replicas
        replies = self._run_all(
            script,
            [script.by_hash(key, *arguments)],
            key,
            repeatable=repeatable,
            quorum=Quorum(wanted, written) if wanted else None,
        )
        reply = _checked(replies[0])
        if wanted and reply in written and _checked(replies[1]) < wanted:
            raise StoreError(f"Only {replies[1]} replicas have what was written, not {wanted}.")
        return reply

    def _run_all(
        self, script: _Script, commands: list[Command], key: str, **how: Any
    ) -> list[Any]:
        replies = self._link.send(commands, key=key, **how)
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            # The server was restarted or replaced: what it did not know it has not run either.
            again = [script.in_full(commands[n]) for n in unknown]
            fresh = self._link.send(again, key=key, **{**how, "goes_on": True})
            for n, reply in zip(unknown, fresh, strict=False):
                replies[n] = reply
            replies[len(commands) :] = fresh[len(again) :]  # how many replicas have it
        return replies

    def _send(self, command: Command, key: str, *, repeatable: bool = True) -> Any:
        return _checked(self._link.send([command], key=key, repeatable=repeatable)[0])


def _checked(reply: Any) -> Any:
    if isinstance(reply, ResponseError):
        raise StoreError(f"{type(reply).__name__}: {reply}") from reply
    return reply


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _escape(prefix: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in prefix)
