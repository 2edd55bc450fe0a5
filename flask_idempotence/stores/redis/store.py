"""A store on Redis or Valkey: every operation is one Lua script on one key.

The keyspace is documented (`docs/reference/keyspace.md`): one string a key, since a hash would
cost twice the memory. Time is the server's.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

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
from ..process import call_in_children
from .connection.clients import deployment_of
from .connection.deployment import Deployment
from .connection.node import Node, Quorum
from .connection.replies import error_code, failure
from .connection.wire import Command, Reply, deadline
from .inspection import entries_from, facts_of, inspect_commands
from .lua import CLAIM, COMPLETE, DISCARD, RELEASE, RENEW, TAKE_TOKEN, Script

if TYPE_CHECKING:
    from ..facts import ServerFacts

_SCAN_COUNT = 500
_MAX_REPLICAS = 1000
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
            before it counts. With fewer in time the operation fails: it is unknown whether its
            effect will outlive a failover.

    Raises:
        ConfigurationError: the client is of a kind that is not supported, or a number is wrong.
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        *,
        deadline: float = 1.0,
        wait_replicas: int = 0,
    ) -> None:
        is_number = isinstance(deadline, int | float) and not isinstance(deadline, bool)
        if not is_number or not 0 < deadline <= threading.TIMEOUT_MAX:
            raise ConfigurationError("deadline must be a number of seconds greater than 0.")
        if not isinstance(wait_replicas, int) or not 0 <= wait_replicas <= _MAX_REPLICAS:
            raise ConfigurationError("wait_replicas must be a number of replicas, 0 for none.")
        self._deadline = deadline
        # That of a URI is set up already.
        self._deployment = client if isinstance(client, Deployment) else deployment_of(client)
        self._wait_replicas = int(wait_replicas)
        call_in_children(self._deployment.forget)
        # Closing them is better than Python's warnings; at exit other threads may still use them.
        weakref.finalize(self, self._deployment.close).atexit = False

    def _begin(self) -> Deployment:
        """Begin an operation, with a deadline of its own."""
        deadline.begin(self._deadline)
        return self._deployment

    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, keep: float
    ) -> ClaimOutcome:
        """Take the key for its first caller, or return who has it."""
        arguments = (owner, fingerprint, _milliseconds(lease), round(keep * 1000))
        reply = self._run(CLAIM, key, *arguments, written=(0,))
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
        keys = [renewal.key for renewal in renewals]
        return self._begin().gather(renewals, keys, self._renew)

    def _renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        calls = [_call(RENEW, key, owner, _milliseconds(lease)) for key, owner, lease in renewals]
        replies = self._send(RENEW, calls, renewals[0].key)
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
        return _OUTCOMES[self._run(COMPLETE, key, *arguments, written=(1,))]

    def release(self, key: str, owner: bytes) -> Outcome:
        """Give the claim up."""
        return _OUTCOMES[self._run(RELEASE, key, owner)]

    def put_token(self, key: str, subject: bytes, ttl: float, *, again: bool = False) -> None:
        """Store a token."""
        command = ("SET", key, (b"R" if again else b"T") + subject, "PX", _milliseconds(ttl))
        _checked(self._begin().send([command], key=key, repeatable=False)[0])

    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        """Compare and remove a token."""
        reply = self._run(TAKE_TOKEN, key, subject, repeatable=False, written=(1, 2))
        return _TOKEN_OUTCOMES[reply]

    def peek(self, key: str) -> Entry | None:
        """Return the entry of a key, or None."""
        return self.peek_all([key])[0]

    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        """Return the entry of each key, in one round trip for each server."""

        def peek(keys: Sequence[str]) -> list[Entry | None]:
            return entries_from(self._deployment.send(inspect_commands(keys), key=keys[0]))

        return self._begin().gather(keys, keys, peek)

    def scan(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys that begin with `prefix`; a key may come twice, as with SCAN."""
        pattern = "".join(f"\\{one}" if one in "*?[]\\^-" else one for one in prefix) + "*"
        for node in self._begin().primaries():
            cursor: Reply = b"0"
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
                cursor, keys = _checked(self._ask(node, command))
                yield from (key.decode("utf-8", "surrogateescape") for key in keys)
                if cursor in {b"0", 0}:
                    break

    def remove(self, key: str) -> None:
        """Remove a key, whatever it holds."""
        _checked(self._begin().send([("DEL", key)], key=key)[0])

    def clear(self, prefix: str) -> int:
        """Remove every key that begins with `prefix`, in batches; return their number."""

        def delete(keys: Sequence[str]) -> list[int]:
            replies = self._deployment.send([("DEL", key) for key in keys], key=keys[0])
            return [int(_checked(reply)) for reply in replies]

        found, removed = self.scan(prefix), 0
        while batch := list(islice(found, _SCAN_COUNT)):
            removed += sum(self._begin().gather(batch, batch, delete))
        return removed

    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        """Remove keys that still hold the entries seen, in one round trip for each server."""

        def discard(seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
            calls = [_call(DISCARD, key, entry.mark) for key, entry in seen]
            replies = self._send(DISCARD, calls, seen[0][0])
            return [_OUTCOMES[_checked(reply)] for reply in replies]

        return self._begin().gather(seen, [key for key, _ in seen], discard)

    def count_all(self) -> int | None:
        """Return how many keys the database holds, others' too; None without permission."""
        replies = [self._ask(node, ("DBSIZE",)) for node in self._begin().primaries()]
        if any(isinstance(reply, NoPermissionError) for reply in replies):
            return None
        return sum(int(_checked(reply)) for reply in replies)

    def facts(self) -> Sequence[ServerFacts]:
        """Return the facts of each server that holds keys."""
        return [
            facts_of(partial(self._ask, node), replicas_wanted=self._wait_replicas)
            for node in self._begin().primaries()
        ]

    def ping(self) -> None:
        """Return if the server answers, or all primaries of a cluster do."""
        for node in self._begin().primaries():
            _checked(self._ask(node, ("PING",)))

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        """Allow each operation of this thread so many seconds, connecting included."""
        return deadline.cap(seconds)

    def _ask(self, node: Node, command: Command) -> Reply:
        return self._begin().send([command], node=node)[0]

    def _run(
        self,
        script: Script,
        key: str,
        *arguments: bytes | int,
        repeatable: bool = True,
        written: tuple[int, ...] = (),
    ) -> Reply:
        """Run a script; a reply in `written` counts once enough replicas have the write."""
        wanted = self._wait_replicas if written else 0
        quorum = Quorum(wanted, written) if wanted else None
        self._begin()
        call = _call(script, key, *arguments)
        reply, *counts = self._send(script, [call], key, repeatable=repeatable, quorum=quorum)
        if wanted and reply in written:
            [count] = counts
            if isinstance(count, ResponseError):  # of WAIT: the script has written
                raise StoreError(f"{type(count).__name__}: {count}") from count
            if count < wanted:
                raise StoreError(f"The write has reached {count} replicas in time, not {wanted}.")
        return _checked(reply)

    def _send(
        self,
        script: Script,
        calls: list[Command],
        key: str,
        *,
        repeatable: bool = True,
        quorum: Quorum | None = None,
    ) -> list[Reply]:
        """Send calls of a script to the server of `key`, as `Deployment.send` does."""
        send = partial(self._deployment.send, key=key, repeatable=repeatable, quorum=quorum)
        replies = send(calls)
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:  # the server was restarted or replaced; it has not run these
            fresh = send([("EVAL", script.source, *calls[n][2:]) for n in unknown])
            for n, reply in zip(unknown, fresh, strict=False):
                replies[n] = reply
            replies[len(calls) :] = fresh[len(unknown) :]  # the reply that a quorum adds
        return replies


def _call(script: Script, key: str, *arguments: bytes | int) -> Command:
    return ("EVALSHA", script.digest, 1, key, *arguments)


def _checked(reply: Reply) -> Reply:
    if isinstance(reply, ResponseError):
        raise failure(reply) from reply
    return reply


def _renewed(reply: Reply) -> Outcome | None:
    # One key of another type must not keep the others from being renewed.
    if isinstance(reply, ResponseError):
        return Outcome.STALE if error_code(reply) == "WRONGTYPE" else None
    return _OUTCOMES.get(reply)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
