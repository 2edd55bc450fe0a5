"""Keys and servers, as the commands show them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from redis.exceptions import NoPermissionError, ResponseError

from ..base import Entry, InspectableStore, Outcome
from .deployment import Call, Deployment, operation
from .link import Command, Reply, checked, error_code, pack
from .lua import DISCARD
from .node import Node

if TYPE_CHECKING:
    from ..facts import ServerFacts

_SCAN_COUNT = 500
_KINDS = {b"C": "claim", b"D": "record", b"T": "token"}
_LAST_BYTE = 63
"""The part of a value that is read holds a claim, or the beginning of a record."""

OUTCOMES = {0: Outcome.STALE, 1: Outcome.OK}
"""Of a script that writes only for the owner."""

_MARK = 17  # state and owner, or state and subject
_HOLD = 33  # where it begins in a claim


class Inspection(InspectableStore):
    """The part of the store that no request needs."""

    _deployment: Deployment
    _deadline: float

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
            cursor, keys = self._page(node, 0, pattern)
            yield from keys
            while cursor:
                cursor, keys = self._page(node, cursor, pattern)
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
        return [OUTCOMES[checked(reply)] for reply in replies]

    @operation
    def count_all(self) -> int | None:
        replies = [self._ask(node, pack("DBSIZE")) for node in self._primaries()]
        if any(isinstance(reply, NoPermissionError) for reply in replies):
            return None
        return sum(int(checked(reply)) for reply in replies)

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
    eviction = info.get("maxmemory_policy")
    saves = _setting(ask, "save")
    return ServerFacts(
        product="Valkey" if is_valkey else "Redis",
        version=tuple(int(n) for n in version.split(".") if n.isdecimal()) if version else None,
        oldest=(7, 2) if is_valkey else (6, 2),
        is_primary=info["role"] == "master" if "role" in info else None,
        eviction=eviction,
        evicts=eviction != "noeviction" if eviction else None,
        memory_used=_number(info, "used_memory"),
        memory_limit=_number(info, "maxmemory"),
        memory_of_machine=_number(info, "total_system_memory"),
        logs_writes=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        log_reaches_disk=_setting(ask, "appendfsync"),
        takes_snapshots=bool(saves) if saves is not None else None,
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
