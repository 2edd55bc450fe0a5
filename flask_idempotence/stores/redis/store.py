"""A store on Redis or Valkey: an operation is one Lua script on one key, or plain commands.

The keyspace is documented (`docs/reference/keyspace.md`): one string a key, since a hash would
cost twice the memory. Time is the server's.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from redis import Redis, RedisCluster
from redis.exceptions import ResponseError

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
    check_deadline,
    milliseconds,
)
from ..process import call_in_children
from .clients import deployment_of
from .deadlines import deadline
from .deployment import Call, Deployment, Script, operation
from .link import Command, Reply, checked, error_code, failure, pack
from .node import Node

if TYPE_CHECKING:
    from ..facts import ServerFacts

CLAIM = Script("claim", written=(0,))
COMPLETE = Script("complete", written=(1,))
TAKE_TOKEN = Script("take_token", written=(1, 2), repeatable=False)
RENEW, RELEASE = Script("renew"), Script("release")
DISCARD = Script("discard", repeatable=False)

_OUTCOMES = {0: Outcome.STALE, 1: Outcome.OK}  # a script that writes for the owner only

_MAX_REPLICAS = 1000
_MAX_DIGITS = 15  # a longer hold after a crash is not exact as a number of Lua
_BEFORE_REDIS_7 = "syntax error"  # a server before 7 does not allow SET with NX and GET

_PTTL = b"*2\r\n$4\r\nPTTL\r\n$%d\r\n%b\r\n"
_SET = (
    b"*7\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
    b"$2\r\nNX\r\n$3\r\nGET\r\n$2\r\nPX\r\n$%d\r\n%b\r\n"
)
_TOKEN_OUTCOMES = {-1: TokenOutcome.NOT_YOURS, 0: TokenOutcome.ABSENT, 1: TokenOutcome.TAKEN}

_SCAN_COUNT = 500
_KINDS = {b"C": "claim", b"D": "record", b"T": "token"}
_LAST_BYTE = 63  # the part of a value that is read holds a claim, or the beginning of a record
_MARK = 17  # state and owner, or state and subject
_HOLD = 33  # where it begins in a claim


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
        self, client: Redis | RedisCluster, *, deadline: float = 1.0, wait_replicas: int = 0
    ) -> None:
        check_deadline(deadline)
        if not isinstance(wait_replicas, int) or not 0 <= wait_replicas <= _MAX_REPLICAS:
            raise ConfigurationError("wait_replicas must be a number of replicas, 0 for none.")
        self._deadline = deadline
        # The deployment of a URI is set up already.
        self._deployment = client if isinstance(client, Deployment) else deployment_of(client)
        self._deployment.replicas = int(wait_replicas)
        self._claims_by_commands = not wait_replicas  # WAIT goes behind a script that has written
        self._may_run_scripts = False  # before that is known
        call_in_children(self._deployment.forget)
        # Closing them is better than Python's warnings; at exit other threads may still use them.
        weakref.finalize(self, self._deployment.close).atexit = False

    @operation
    def claim(
        self, key: str, owner: bytes, fingerprint: bytes, lease: float, hold_after_crash: float
    ) -> ClaimOutcome:
        length, hold = milliseconds(lease), round(hold_after_crash * 1000)
        if not self._may_run_scripts:
            self._check_rights(key)
        if self._claims_by_commands:
            commands = _claim_commands(key, owner, fingerprint, length, hold)
            replies = self._deployment.send(commands, key=key, follow=False)
            outcome = _claim_outcome(replies, owner, fingerprint)
            if outcome is not None:
                return outcome
            if isinstance(replies[1], ResponseError) and str(replies[1]) == _BEFORE_REDIS_7:
                self._claims_by_commands = False
        match self._run(CLAIM, key, owner, fingerprint, length, hold):
            case 0:
                return CLAIMED
            case [1, int(matches), int(left), bytes(holder)]:
                return Running(bool(matches), left / 1000, holder)
            case [2, int(matches), bytes(record), int(left)]:
                return Done(bool(matches), record, left / 1000)
            case [3, int(matches)]:
                return Crashed(bool(matches))
        raise ValueError("no state of a key")

    @operation
    def renew(self, renewals: Sequence[Renewal]) -> list[Outcome]:
        calls = [(key, owner, milliseconds(lease)) for key, owner, lease in renewals]
        replies = self._deployment.gather(calls, partial(self._deployment.run, RENEW))
        # One key of another type must not keep the others from being renewed.
        outcomes: list[Outcome | None] = []
        for reply in replies:
            if isinstance(reply, ResponseError) and error_code(reply) == "WRONGTYPE":
                outcomes.append(Outcome.STALE)
            else:
                is_error = isinstance(reply, StoreError | ResponseError)
                outcomes.append(None if is_error else _OUTCOMES[reply])
        if None in outcomes:  # no answer, or a refusal: read-only, a slot on its way
            problem = replies[outcomes.index(None)]
            error = problem if isinstance(problem, StoreError) else failure(problem)
            error.answers = outcomes if any(outcomes) else None
            raise error
        return [outcome for outcome in outcomes if outcome is not None]

    @operation
    def complete(
        self, key: str, owner: bytes, fingerprint: bytes, record: bytes, ttl: float
    ) -> Outcome:
        reply = self._run(COMPLETE, key, owner, fingerprint, record, milliseconds(ttl))
        return _OUTCOMES[reply]

    @operation
    def release(self, key: str, owner: bytes) -> Outcome:
        return _OUTCOMES[self._run(RELEASE, key, owner)]

    @operation
    def put_token(self, key: str, subject: bytes, ttl: float) -> None:
        command = pack("SET", key, b"T" + subject, "PX", milliseconds(ttl))
        if checked(self._deployment.send([command], key=key, repeatable=False)[0]) != b"OK":
            raise ValueError("not OK")

    @operation
    def take_token(self, key: str, subject: bytes) -> TokenOutcome:
        return _TOKEN_OUTCOMES[self._run(TAKE_TOKEN, key, subject)]

    @operation
    def peek_all(self, keys: Sequence[str]) -> list[Entry | None]:
        def peek(calls: Sequence[Call]) -> list[Entry | None]:
            commands: list[Command] = []
            for key, *_ in calls:  # no record is read as a whole
                commands.append(pack("GETRANGE", key, 0, _LAST_BYTE))
                commands += (pack("STRLEN", key), pack("PTTL", key))
            replies = self._deployment.send(commands, key=calls[0][0])
            return [_entry(*replies[n : n + 3]) for n in range(0, len(replies), 3)]

        return [checked(entry) for entry in self._deployment.gather([*zip(keys)], peek)]

    def scan(self, prefix: str) -> Iterator[str]:
        pattern = "".join(f"\\{one}" if one in "*?[]\\^-" else one for one in prefix) + "*"
        for node in self._primaries():
            cursor: int | None = None
            while cursor != 0:
                cursor, keys = self._page(node, cursor or 0, pattern)
                yield from keys

    @operation
    def _page(self, node: Node, cursor: int, pattern: str) -> tuple[int, list[str]]:
        command = pack("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
        cursor, keys = checked(self._ask(node, command))
        return int(cursor), [key.decode("utf-8", "surrogateescape") for key in keys]

    @operation
    def remove(self, key: str) -> None:
        int(checked(self._deployment.send([pack("DEL", key)], key=key)[0]))

    @operation
    def discard(self, seen: Sequence[tuple[str, Entry]]) -> list[Outcome]:
        calls = [(key, entry.mark) for key, entry in seen]
        replies = self._deployment.gather(calls, partial(self._deployment.run, DISCARD))
        return [_OUTCOMES[checked(reply)] for reply in replies]

    @operation
    def facts(self) -> Sequence[ServerFacts]:
        return [
            _facts_of(partial(self._ask, node), replicas_wanted=self._deployment.replicas)
            for node in self._primaries()
        ]

    @operation
    def ping(self) -> None:
        for node in self._primaries():
            if checked(self._ask(node, pack("PING"))) != b"PONG":
                raise ValueError("no PONG")

    @operation
    def _primaries(self) -> Sequence[Node]:
        return self._deployment.primaries()

    @operation
    def _ask(self, node: Node, command: Command) -> Reply:
        return self._deployment.send([command], node=node)[0]

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        return deadline.capped(seconds)

    def _check_rights(self, key: str) -> None:
        """Raise a StoreError if the user may not call scripts, by hash or in full.

        A claim, which plain commands make, would be granted and could never be settled.
        """
        commands = pack("EVALSHA", "0" * 40, 1, key), pack("EVAL", "return 0", 1, key)
        replies = self._deployment.send(commands, key=key)
        errors = [reply for reply in replies if isinstance(reply, ResponseError)]
        for error in errors:
            if error_code(error) == "NOPERM":
                raise failure(error) from error
        self._may_run_scripts = all(error_code(error) == "NOSCRIPT" for error in errors)

    def _run(self, script: Script, key: str, *arguments: bytes | int) -> Reply:
        [reply] = self._deployment.run(script, [(key, *arguments)])
        if isinstance(reply, ResponseError):
            self._may_run_scripts &= error_code(reply) != "NOPERM"  # the next claim looks again
            raise failure(reply) from reply
        return reply


def _claim_commands(
    key: str, owner: bytes, fingerprint: bytes, lease: int, hold: int
) -> tuple[Command, Command]:
    """Return the commands of a claim.

    The time to live goes first: were it that of a record which replaces the claim between the two,
    a claim would have a day to run.
    """
    name = key.encode("utf-8", "surrogateescape")
    value, life = b"C%b%b%d" % (owner, fingerprint, hold), b"%d" % (lease + hold)
    size = len(name)
    return _PTTL % (size, name), _SET % (size, name, len(value), value, len(life), life)


def _claim_outcome(
    replies: Sequence[Reply], owner: bytes, fingerprint: bytes
) -> ClaimOutcome | None:
    """Return the outcome of a claim by commands; None where the script has to judge.

    It does so for a claim of our own, one that has just ended or is damaged, and after an error.
    """
    left, found = replies
    if found is None and isinstance(left, int):
        return CLAIMED
    if not isinstance(found, bytes):
        return None
    state, matches, rest = found[:1], found[17:33] == fingerprint, found[33:]
    if state == b"D":
        is_known = isinstance(left, int) and left >= 0
        return Done(matches, rest, left / 1000 if is_known else None)
    is_claim = state == b"C" and rest.isdigit() and len(rest) <= _MAX_DIGITS
    if is_claim and found[1:17] != owner and isinstance(left, int) and left >= 0:
        hold = int(rest)
        if left > hold:
            return Running(matches, (left - hold) / 1000, found[1:17])
        if hold:
            return Crashed(matches)
    return None


def _entry(beginning: Reply, size: Reply, left: Reply) -> Entry | None:
    is_other = isinstance(beginning, ResponseError) and error_code(beginning) == "WRONGTYPE"
    if is_other and isinstance(left, int):
        return Entry("unknown", max(0, left) / 1000, 0)  # another program's key under our prefix
    if [type(checked(reply)) for reply in (beginning, size, left)] != [bytes, int, int]:
        raise TypeError("no value with its size and life")
    if not beginning or left < 0:
        return None
    kind = _KINDS.get(beginning[:1], "unknown")
    hold = beginning[_HOLD:]
    is_claim = kind == "claim" and hold.isdigit()
    lease = max(0, left - int(hold)) / 1000 if is_claim else None
    return Entry(kind, left / 1000, size, lease, beginning[:_MARK])


def _facts_of(ask: Callable[[Command], Reply], *, replicas_wanted: int) -> ServerFacts:
    """Return the facts of a server; None stands for those that a hosted server hides."""
    from ..facts import ServerFacts  # noqa: PLC0415 - for the commands only

    reply = ask(pack("INFO"))
    text = str(reply, "utf-8", "replace") if isinstance(reply, bytes) else ""
    info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    before = time.time()
    clock = ask(pack("TIME"))
    here, ahead = (before + time.time()) / 2, None
    if not isinstance(clock, ResponseError):
        ahead = int(clock[0]) + int(clock[1]) / 1_000_000 - here
    is_valkey = "valkey_version" in info
    version = info.get("valkey_version") or info.get("redis_version")
    return ServerFacts(
        product="Valkey" if is_valkey else "Redis",
        version=tuple(int(n) for n in version.split(".") if n.isdecimal()) if version else None,
        oldest=(7, 2) if is_valkey else (6, 2),
        eviction=info.get("maxmemory_policy"),
        memory_used=_number(info, "used_memory"),
        memory_limit=_number(info, "maxmemory"),
        memory_of_machine=_number(info, "total_system_memory"),
        logs_writes=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        log_reaches_disk=_setting(ask, "appendfsync"),
        clock_ahead=ahead,
        replicas=text.count("state=online") if "role" in info else None,
        replicas_wanted=replicas_wanted,
    )


def _setting(ask: Callable[[Command], Reply], name: str) -> str | None:
    reply = ask(pack("CONFIG", "GET", name))
    if isinstance(reply, ResponseError) or not reply:
        return None
    return str(reply[1], "utf-8", "replace")


def _number(info: dict[str, str], name: str) -> int | None:
    text = info.get(name, "")
    return int(text) if text.isdecimal() else None
