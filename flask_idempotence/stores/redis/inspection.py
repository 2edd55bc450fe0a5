"""Keys and servers, as the commands show them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from ...errors import StoreError
from ..base import Entry
from .connection.replies import error_code
from .connection.wire import Command, Reply

if TYPE_CHECKING:
    from ..facts import ServerFacts

_KINDS = {b"C": "claim", b"D": "record", b"T": "token", b"R": "token"}
_LAST_BYTE = 63
"""The part of a value that is read holds a claim, or the beginning of a record."""

_MARK = 17  # state and owner, or state and subject
_KEEP = 33  # where it begins in a claim


def inspect_commands(keys: Sequence[str]) -> list[Command]:
    """Return three commands a key; they read no record as a whole."""
    return [
        command
        for key in keys
        for command in (("GETRANGE", key, 0, _LAST_BYTE), ("STRLEN", key), ("PTTL", key))
    ]


def entries_from(replies: Sequence[Reply]) -> list[Entry | None]:
    """Return the entry of each key, from the replies to `inspect_commands`."""
    return [_entry(*replies[n : n + 3]) for n in range(0, len(replies), 3)]


def _entry(beginning: Reply, size: Reply, left: Reply) -> Entry | None:
    if isinstance(beginning, ResponseError) and error_code(beginning) == "WRONGTYPE":
        return Entry("unknown", max(0, left) / 1000, 0)  # another program's key under our prefix
    for reply in (beginning, size, left):
        if isinstance(reply, ResponseError):
            raise StoreError(f"{type(reply).__name__}: {reply}") from reply
    if not beginning or left < 0:
        return None
    kind = _KINDS.get(beginning[:1], "unknown")
    keep = beginning[_KEEP:]
    is_claim = kind == "claim" and keep.isdigit()
    lease = max(0, left - int(keep)) / 1000 if is_claim else None
    return Entry(kind, left / 1000, size, lease, beginning[:_MARK])


def facts_of(ask: Callable[[Command], Reply], *, replicas_wanted: int) -> ServerFacts:
    """Return the facts of a server; None stands for those that a hosted one keeps to itself.

    Args:
        ask: sends a command and returns its reply, also an error reply.
        replicas_wanted: how many replicas the store waits for.
    """
    from ..facts import ServerFacts  # noqa: PLC0415 - for the commands only

    info = _info(ask(("INFO",)))
    is_valkey = "valkey_version" in info
    clock_ahead = _clock_ahead(ask)
    eviction = info.get("maxmemory_policy")
    saves = _setting(ask, "save")
    return ServerFacts(
        product="Valkey" if is_valkey else "Redis",
        version=_version(info.get("valkey_version") or info.get("redis_version")),
        oldest=(7, 2) if is_valkey else (6, 2),
        is_primary=info["role"] == "master" if "role" in info else None,
        eviction=eviction,
        evicts=eviction != "noeviction" if eviction else None,
        memory_used=_number(info.get("used_memory")),
        memory_limit=_number(info.get("maxmemory")),
        memory_of_machine=_number(info.get("total_system_memory")),
        logs_writes=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        log_reaches_disk=_setting(ask, "appendfsync"),
        takes_snapshots=bool(saves) if saves is not None else None,
        clock_ahead=clock_ahead,
        replicas=_replicas(info) if "role" in info else None,
        replicas_wanted=replicas_wanted,
    )


def _info(reply: Reply) -> dict[str, str]:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else ""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _setting(ask: Callable[[Command], Reply], name: str) -> str | None:
    reply = ask(("CONFIG", "GET", name))
    if isinstance(reply, ResponseError) or not reply:
        return None
    value = reply[name.encode()] if isinstance(reply, dict) else reply[1]  # RESP3, RESP2
    return str(value, "utf-8", "replace")


def _clock_ahead(ask: Callable[[Command], Reply]) -> float | None:
    before = time.time()
    reply = ask(("TIME",))
    here = (before + time.time()) / 2
    if isinstance(reply, ResponseError):
        return None
    seconds, microseconds = map(int, reply)
    return seconds + microseconds / 1_000_000 - here


def _replicas(info: dict[str, str]) -> int:
    replicas = (info.get(f"slave{n}", "") for n in range(_number(info["connected_slaves"]) or 0))
    return sum("state=online" in replica for replica in replicas)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _version(text: str | None) -> tuple[int, ...] | None:
    return tuple(int(part) for part in text.split(".") if part.isdecimal()) if text else None
