"""Version, settings and state of a server behind a store; None stands for unknown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A server or a database."""

    product: str  #: its name
    version: tuple[int, ...] | None = None  #: its version
    oldest: tuple[int, ...] = ()  #: the oldest version of this product that will do
    clock_ahead: float | None = None  #: seconds by which its clock is ahead of this machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts(Facts):
    """A server of Redis or Valkey."""

    eviction: str | None = None  #: its policy for a full memory
    memory_used: int | None = None  #: bytes of data
    memory_limit: int | None = None  #: bytes that it may use, 0 for no limit
    memory_of_machine: int | None = None  #: bytes that its machine has
    logs_writes: bool | None = None  #: whether a log of all changes survives a restart
    log_reaches_disk: str | None = None  #: when: `"always"`, `"everysec"` or `"no"`
    replicas: int | None = None  #: how many replicas follow it
    replicas_wanted: int = 0  #: how many replicas the store waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts(Facts):
    """A SQL database."""

    missing: tuple[str, ...] = ()  #: the name of the table, or of its missing columns
    survives_crash: bool | None = None  #: whether commits outlive a crash of its machine
    durability: str = ""  #: the settings that this depends on, in words
    pooled: bool | None = None  #: whether a connection pooler is in front of it
    prepares: bool | None = None  #: whether the application's connections prepare statements
