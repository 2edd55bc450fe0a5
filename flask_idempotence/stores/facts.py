"""What a server behind a store says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One server, as far as it tells. None stands for what it does not tell.

    Attributes:
        product: its name.
        version: its version.
        oldest: the oldest version of this product that will do.
        is_primary: whether it takes writes.
        eviction: its policy for a full memory.
        evicts: whether that policy makes it forget keys before their time.
        memory_used: bytes of data.
        memory_limit: bytes that it may use, 0 for no limit.
        memory_of_machine: bytes that its machine has.
        logs_writes: whether it writes every change to a log that survives a restart.
        log_reaches_disk: when that log is on the disk: `"always"`, `"everysec"` or `"no"`.
        takes_snapshots: whether it saves its data now and then.
        clock_ahead: seconds by which its clock is ahead of this machine's.
        replicas: how many replicas follow it.
        replicas_wanted: how many of them the store waits for.
    """

    product: str
    version: tuple[int, ...] | None = None
    oldest: tuple[int, ...] = ()
    is_primary: bool | None = None
    eviction: str | None = None
    evicts: bool | None = None
    memory_used: int | None = None
    memory_limit: int | None = None
    memory_of_machine: int | None = None
    logs_writes: bool | None = None
    log_reaches_disk: str | None = None
    takes_snapshots: bool | None = None
    clock_ahead: float | None = None
    replicas: int | None = None
    replicas_wanted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """A database, as far as it tells. None stands for what it does not tell.

    Attributes:
        product: its name.
        version: its version.
        oldest: the oldest version of this product that will do.
        missing: the names of what is not there: the table, or columns of it.
        is_primary: whether it takes writes.
        survives_crash: whether what was committed outlives a crash of its machine.
        durability: the settings that this depends on, in words.
        clock_ahead: seconds by which its clock is ahead of this machine's.
        replicas: how many replicas follow it.
        expired: how many rows have expired and are still there.
        pooled: whether a connection pooler stands in front of it.
        prepares: whether the application's connections prepare statements under names.
    """

    product: str
    version: tuple[int, ...]
    oldest: tuple[int, ...]
    missing: tuple[str, ...] = ()
    is_primary: bool | None = None
    survives_crash: bool | None = None
    durability: str = ""
    clock_ahead: float | None = None
    replicas: int | None = None
    expired: int | None = None
    pooled: bool | None = None
    prepares: bool | None = None
