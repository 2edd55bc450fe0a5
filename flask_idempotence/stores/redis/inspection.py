"""What tools ask a Redis server: what its keys hold, and what it says of itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redis.exceptions import ResponseError

from ...errors import StoreError
from ..base import Entry
from ..facts import ServerFacts
from .connection import Command, Reply

_KINDS = {b"C": "claim", b"D": "record", b"T": "token", b"R": "token"}
_BEGINNING = 63
"""The last byte of a value that is looked at: a claim is over by then, a record is not read."""

_MARK = 17  # state and owner, or state and subject
_KEEP = 33  # where it begins in a claim

_PER_KEY = 3


def looks_at(keys: Sequence[str]) -> list[Command]:
    """Return the commands that tell what keys hold, without reading whole records."""
    return [
        command
        for key in keys
        for command in (
            ("GETRANGE", key, 0, _BEGINNING),
            ("STRLEN", key),
            ("PTTL", key),
        )
    ]


def entries_from(replies: Sequence[Reply]) -> Iterator[Entry | None]:
    """Yield what the keys hold, by the replies to `looks_at`."""
    for first in range(0, len(replies), _PER_KEY):
        beginning, size, left = replies[first : first + _PER_KEY]
        yield _entry(beginning, size, left)


def _entry(beginning: Reply, size: Reply, left: Reply) -> Entry | None:
    if isinstance(beginning, ResponseError) and str(beginning).startswith("WRONGTYPE"):
        return Entry("unknown", max(0, left) / 1000, 0)  # somebody else's, in our name
    for reply in (beginning, size, left):
        if isinstance(reply, ResponseError):
            raise StoreError(f"{type(reply).__name__}: {reply}") from reply
    if not beginning or left < 0:
        return None
    kind = _KINDS.get(beginning[:1], "unknown")
    keep = beginning[_KEEP:]
    if kind != "claim" or not keep.isdigit():
        return Entry(kind, left / 1000, size, mark=beginning[:_MARK])
    return Entry(kind, left / 1000, size, max(0, left - int(keep)) / 1000, beginning[:_MARK])


def facts_of(ask: Callable[[Command], Reply], *, replicas_wanted: int) -> ServerFacts:
    """Ask a server about itself.

    Args:
        ask: sends it a command and returns the reply; an error reply is returned, not raised. A
            hosted server may forbid what is asked here.
        replicas_wanted: how many replicas the store waits for.
    """
    info = _info(ask(("INFO",)))
    clock_ahead = _clock_ahead(ask)
    eviction = info.get("maxmemory_policy")
    saves = _setting(ask, "save")
    return ServerFacts(
        product="Valkey" if "valkey_version" in info else "Redis",
        version=_version(info.get("valkey_version") or info.get("redis_version")),
        oldest=(7, 2) if "valkey_version" in info else (6, 2),
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
    if not isinstance(reply, bytes):
        return {}
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _setting(ask: Callable[[Command], Reply], name: str) -> str | None:
    reply: Any = ask(("CONFIG", "GET", name))
    if isinstance(reply, ResponseError) or not reply:
        return None
    value = reply[name.encode()] if isinstance(reply, dict) else reply[1]  # RESP3, RESP2
    return str(value, "utf-8", "replace")


def _clock_ahead(ask: Callable[[Command], Reply]) -> float | None:
    asked = time.time()
    reply: Any = ask(("TIME",))
    here = (asked + time.time()) / 2
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
