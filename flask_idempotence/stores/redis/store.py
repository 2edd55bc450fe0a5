"""A store on Redis or Valkey: every operation is one Lua script on one key.

The keyspace is documented (`docs/reference/keyspace.md`): one string a key, since a hash would
cost twice the memory. Time is the server's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any

from redis import Redis, RedisCluster
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from ...errors import ConfigurationError, StoreError
from ..base import (
    CLAIMED,
    ClaimOutcome,
    Crashed,
    Done,
    Entry,
    InspectableStore,
    Outcome,
    Renewal,
    Running,
    TokenOutcome,
)
from ..facts import ServerFacts
from .connection import (
    Command,
    Link,
    Node,
    Quorum,
    Topology,
    failure,
    is_of_another_type,
    topology_of,
)
from .inspection import entries_from, facts_of, looks_at
from .scripts import CLAIM, COMPLETE, DISCARD, RELEASE, RENEW, TAKE_TOKEN, Script

_SCAN_COUNT = 500
_MOST_REPLICAS = 1000
_OUTCOMES = {0: Outcome.STALE, 1: Outcome.OK}
_TOKEN_OUTCOMES = {
    -1: TokenOutcome.NOT_YOURS,
    0: TokenOutcome.ABSENT,
    1: TokenOutcome.TAKEN,
    2: TokenOutcome.TAKEN_AGAIN,
}


class RedisStore(InspectableStore):
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
        if not _is_number(deadline) or not 0 < deadline <= threading.TIMEOUT_MAX:
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
        reply = self._run_on_replicas(CLAIM, key, *arguments, written=(0,))
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
        return self._link.gather(renewals, [renewal.key for renewal in renewals], self._renew)

    def _renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        commands = [
            RENEW.by_hash(key, owner, _milliseconds(lease)) for key, owner, lease in renewals
        ]
        replies = self._run_all(RENEW, commands, renewals[0].key, goes_on=True)
        outcomes = [_renewed(reply) for reply in replies]
        if None in outcomes:  # the server refuses: read-only, loading, a slot on its way
            error = failure(replies[outcomes.index(None)])
            error.answers = outcomes
            raise error
        return [outcome for outcome in outcomes if outcome is not None]

    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, keep: float
    ) -> Outcome:
        """Replace the claim by a record."""
        arguments = (owner, fingerprint, record, _milliseconds(keep))
        return _OUTCOMES[self._run_on_replicas(COMPLETE, key, *arguments, written=(1,))]

    def release(self, key: str, owner: bytes) -> Outcome:
        """Give the claim up."""
        return _OUTCOMES[self._run(RELEASE, key, owner)]

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        """Store a token."""
        value = (b"R" if again else b"T") + subject
        self._send(("SET", key, value, "PX", _milliseconds(ttl)), key, repeatable=False)

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token."""
        reply = self._run_on_replicas(TAKE_TOKEN, key, subject, repeatable=False, written=(1, 2))
        return _TOKEN_OUTCOMES[reply]

    def peek(self, key: str) -> Entry | None:
        """Return what a key holds, or None."""
        return self.peek_all([key])[0]

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return what each of some keys holds, in one round trip for each server."""

        def peek(keys: Sequence[str]) -> list[Entry | None]:
            return list(entries_from(self._link.send(looks_at(keys), key=keys[0], goes_on=True)))

        return self._link.gather(keys, keys, peek)

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`; a key may come twice, as with SCAN."""
        for node in self._link.primaries():
            yield from self._scan(node, _escape(prefix) + "*")

    def _scan(self, node: Node, pattern: str) -> Iterator[str]:
        cursor: Any = b"0"
        while True:
            command = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
            cursor, keys = _checked(self._ask(node, command))
            yield from (key.decode("utf-8", "surrogateescape") for key in keys)
            if cursor in {b"0", 0}:
                return

    def remove(self, key: str) -> None:
        """Remove a key, whatever it holds."""
        self._send(("DEL", key), key)

    def clear(self, prefix: str) -> int:
        """Remove every key that begins with `prefix`, in batches; returns how many there were."""

        def delete(keys: Sequence[str]) -> list[int]:
            commands = [("DEL", key) for key in keys]
            replies = self._link.send(commands, key=keys[0], goes_on=True)
            return [int(_checked(reply)) for reply in replies]

        found, removed = self.scan(prefix), 0
        while batch := list(islice(found, _SCAN_COUNT)):
            removed += sum(self._link.gather(batch, batch, delete))
        return removed

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys that still hold what they were seen to hold, as `peek_all` goes about it."""

        def discard(seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
            commands = [DISCARD.by_hash(key, entry.mark) for key, entry in seen]
            replies = self._run_all(DISCARD, commands, seen[0][0], goes_on=True)
            return [_OUTCOMES[_checked(reply)] for reply in replies]

        return self._link.gather(seen, [key for key, _ in seen], discard)

    def count_all(self) -> int | None:
        """Return how many keys the database holds, others' included; None where it may not ask."""
        replies = [self._ask(node, ("DBSIZE",)) for node in self._link.primaries()]
        if any(isinstance(reply, NoPermissionError) for reply in replies):
            return None
        return sum(int(_checked(reply)) for reply in replies)

    def facts(self) -> Sequence[ServerFacts]:
        """Return what the servers that hold the keys say of themselves."""
        return [
            facts_of(partial(self._ask, node), replicas_wanted=self._wait_replicas)
            for node in self._link.primaries()
        ]

    def ping(self) -> None:
        """Return if the server answers, or all primaries of a cluster do."""
        for node in self._link.primaries():
            _checked(self._ask(node, ("PING",)))

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        """Allow each operation of this thread so many seconds, connecting included."""
        return self._link.at_most(seconds)

    def _ask(self, node: Node, command: Command) -> Any:
        return self._link.send([command], node=node)[0]

    def _run(self, script: Script, key: str, *arguments: bytes | int) -> Any:
        return _checked(self._run_all(script, [script.by_hash(key, *arguments)], key)[0])

    def _run_on_replicas(
        self,
        script: Script,
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
        if wanted and reply in written:
            count = replies[1]
            if isinstance(count, ResponseError):  # of WAIT: the script has written
                raise StoreError(f"{type(count).__name__}: {count}") from count
            if count < wanted:
                raise StoreError(f"Only {count} replicas have what was written, not {wanted}.")
        return reply

    def _run_all(self, script: Script, commands: list[Command], key: str, **how: Any) -> list[Any]:
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
        raise failure(reply) from reply
    return reply


def _renewed(reply: Any) -> Outcome | None:
    # A single key that is not what it should be must not keep the others from being renewed.
    return Outcome.STALE if is_of_another_type(reply) else _OUTCOMES.get(reply)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _escape(prefix: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]\\^-" else letter for letter in prefix)
