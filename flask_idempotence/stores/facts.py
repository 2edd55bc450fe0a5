"""Version, settings and state of a server behind a store; None stands for unknown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A server or a database.

    Attributes:
        product: its name.
        version: its version.
        oldest: the oldest version of this product that will do.
        is_primary: whether it takes writes.
        clock_ahead: seconds by which its clock is ahead of this machine's.
        replicas: how many replicas follow it.
    """

    product: str
    version: tuple[int, ...] | None = None
    oldest: tuple[int, ...] = ()
    is_primary: bool | None = None
    clock_ahead: float | None = None
    replicas: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts(Facts):
    """A server of Redis or Valkey, with the attributes of `Facts`.

    Attributes:
        eviction: its policy for a full memory.
        evicts: whether that policy makes it forget keys before their time.
        memory_used: bytes of data.
        memory_limit: bytes that it may use, 0 for no limit.
        memory_of_machine: bytes that its machine has.
        logs_writes: whether it writes every change to a log that survives a restart.
        log_reaches_disk: when that log is on the disk: `"always"`, `"everysec"` or `"no"`.
        takes_snapshots: whether it saves its data now and then.
        replicas_wanted: how many replicas the store waits for.
    """

    eviction: str | None = None
    evicts: bool | None = None
    memory_used: int | None = None
    memory_limit: int | None = None
    memory_of_machine: int | None = None
    logs_writes: bool | None = None
    log_reaches_disk: str | None = None
    takes_snapshots: bool | None = None
    replicas_wanted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts(Facts):
    """A SQL database, with the attributes of `Facts`.

    Attributes:
        missing: the name of the table, or of its columns, where they are missing.
        survives_crash: whether committed rows outlive a crash of its machine.
        durability: the settings that this depends on, in words.
        expired: how many expired rows are still there.
        pooled: whether a connection pooler is in front of it.
        prepares: whether the application's connections prepare statements under names.
    """

    missing: tuple[str, ...] = ()
    survives_crash: bool | None = None
    durability: str = ""
    expired: int | None = None
    pooled: bool | None = None
    prepares: bool | None = None
