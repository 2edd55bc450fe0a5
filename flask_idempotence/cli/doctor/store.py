"""What the doctor's checks read and find, and those of the store and the servers behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from flask import Flask

from ...config.settings import CLOCK_SKEW
from ...engine.engine import Engine
from ...stores.facts import DatabaseFacts, Facts, ServerFacts
from ..causes import Cause

_NOTABLE_SKEW = 5.0  # seconds

_LITTLE_ROOM, _NO_ROOM = 0.75, 0.95  # parts of the memory in use


class Finding(NamedTuple):
    """Result of one check; reason and remedy are empty where it is ok.

    The severity is `ok`, `note` (for a person to judge), `warning` or `error`.
    """

    severity: str
    check: str
    finding: str
    reason: str = ""
    remedy: str = ""


@dataclass(slots=True)
class DoctorContext:
    app: Flask
    engine: Engine
    workers: int | None = None  # how many processes serve it; None for unknown
    servers: Sequence[Facts] = ()
    probe_time: float = 0.0  # seconds in which the store granted a claim and took it back
    fault: Cause | None = None  # why it did not

    @property
    def in_production(self) -> bool:
        return not (self.app.debug or self.app.testing)


Checks = tuple[tuple[type, tuple[Callable[..., Finding | list[Finding] | None], ...]], ...]
"""Those of the deployment, or of each server of a kind; a check has the name of its function."""

ok = partial(Finding, "ok", "")
note = partial(Finding, "note", "")
warning = partial(Finding, "warning", "")
error = partial(Finding, "error", "")


def store(context: DoctorContext) -> Finding | None:
    if context.fault is None:
        kind, took = type(context.engine.store).__name__, context.probe_time * 1000
        return ok(f"{kind} granted and released a claim, in {took:.1f} ms.")
    if any(isinstance(facts, DatabaseFacts) and facts.missing for facts in context.servers):
        return None  # the check of the table has found that
    return error(
        context.fault.sentence,
        "Guarded requests are refused or run unguarded, as IDEMPOTENCE_ON_STORE_ERROR says.",
        context.fault.remedy,
    )


def version(facts: Facts) -> Finding:
    if facts.version is None:
        return _unknown("version", "Check it on the server.")
    found, oldest = (".".join(map(str, each)) for each in (facts.version, facts.oldest))
    if facts.version >= facts.oldest:
        return ok(f"{facts.product} {found}.")
    return error(
        f"{facts.product} {found} is older than {oldest}.",
        "Older servers are not tested.",
        f"Upgrade to {facts.product} {oldest} or later.",
    )


def eviction(facts: ServerFacts) -> Finding:
    if facts.evicts is None:
        return _unknown("eviction policy", "It must be noeviction.")
    if not facts.evicts:
        return ok(f"maxmemory-policy is {facts.eviction}.")
    limited = facts.memory_limit != 0
    return (error if limited else warning)(
        f"maxmemory-policy is {facts.eviction}{'' if limited else ', though without maxmemory'}.",
        "A server with a full memory evicts live claims, and then lets repeats through.",
        "Set maxmemory-policy noeviction, or give the guards a server of their own.",
    )


def persistence(facts: ServerFacts) -> Finding:
    if facts.logs_writes is None:
        return _unknown("persistence", "It should have appendonly.")
    if not facts.logs_writes:
        snapshots = "only an occasional snapshot" if facts.takes_snapshots else "nothing"
        return warning(
            f"appendonly is off: {snapshots} is kept.",
            "A restart loses claims and remembered responses, and their repeats run again.",
            "Set appendonly yes.",
        )
    if facts.log_reaches_disk == "no":
        return warning(
            "appendfsync is no: the operating system decides when to write.",
            "A crash of the machine loses the claims of about the last half minute.",
            "Set appendfsync everysec, or always.",
        )
    return ok(f"appendonly is on, and appendfsync is {facts.log_reaches_disk}.")


def clock(facts: Facts) -> Finding:
    if facts.clock_ahead is None:
        if isinstance(facts, DatabaseFacts):
            return ok("The database's clock is this machine's.")
        return _unknown("clock", "Run a time service (NTP) on all machines.")
    difference = abs(facts.clock_ahead)
    found = f"This machine's clock and the server's differ by {difference:.1f} s."
    if difference < _NOTABLE_SKEW:
        return ok(found)
    return (error if difference > CLOCK_SKEW else warning)(
        found,
        f"The clocks that issue and take a token may differ by {CLOCK_SKEW} s at most.",
        "Run a time service (NTP) on all machines.",
    )


def memory(facts: ServerFacts) -> Finding:
    limit = facts.memory_limit or facts.memory_of_machine
    if facts.memory_used is None or not limit:
        return _unknown("memory", "Monitor it.")
    used = facts.memory_used / limit
    of = "maxmemory" if facts.memory_limit else "its machine's memory"
    found = f"The server uses {used:.0%} of {of}."
    if used < _LITTLE_ROOM:
        return ok(found)
    return (error if used >= _NO_ROOM else warning)(
        found,
        "A full server takes no claims: guarded requests are refused, or run unguarded.",
        "Raise maxmemory, or lower IDEMPOTENCE_KEY_TTL and IDEMPOTENCE_KEY_MAX_BODY. 'flask "
        "idempotence stats' shows the size of each endpoint's entries.",
    )


def replicas(facts: ServerFacts) -> Finding:
    have, wanted = facts.replicas, facts.replicas_wanted
    if have is None:
        return _unknown("number of replicas", "Check it on the server.")
    found = f"{have} replicas follow the server, and wait_replicas is {wanted}."
    if have == wanted:
        return ok(found)
    if have < wanted:
        return error(
            found,
            "Every claim waits for the missing replicas, and then counts as unacknowledged.",
            "Start the replicas, or lower wait_replicas.",
        )
    return note(
        found,
        "After a failover the latest claims may be missing, and their repeats run again.",
        "If that matters, set wait_replicas to the number of replicas that may take over.",
    )


def table(facts: DatabaseFacts) -> Finding:
    if not facts.missing:
        return ok("The table exists, with all its columns.")
    return error(
        f"Missing in the database: {', '.join(facts.missing)}.",
        "Without its table the store takes no claim: requests are refused, or run unguarded.",
        "Run 'flask idempotence init-db', or your migration.",
    )


def durability(facts: DatabaseFacts) -> Finding:
    if facts.survives_crash:
        return ok(f"Commits survive a crash: {facts.durability}.")
    return warning(
        f"A crash of the machine may lose the last commits: {facts.durability}.",
        "Claims and remembered responses that are lost let their repeats run again.",
        "Set fsync and synchronous_commit to on; on MySQL, innodb_flush_log_at_trx_commit and "
        "sync_binlog to 1; for SQLite, PRAGMA synchronous to FULL.",
    )


def pooler(facts: DatabaseFacts) -> Finding | None:
    """Check that no statements are prepared under names that a pooler may not know."""
    if facts.pooled is None:
        return None
    if not (facts.pooled and facts.prepares):
        return ok("No connection pooler gets prepared statements.")
    return warning(
        "The application's connections prepare statements under names, behind a pooler.",
        "PgBouncer before 1.21, or without max_prepared_statements, loses them in transaction "
        "mode: the application's statements and the commits of within= fail, the store's do not.",
        'Pass connect_args={"prepare_threshold": None} to create_engine, or have the pooler '
        "support prepared statements.",
    )


def _unknown(name: str, remedy: str) -> Finding:
    reason = "The server does not show it (hosted servers often hide it)."
    return note(f"The server's {name} is unknown.", reason, remedy)


STORE_CHECKS: Checks = (
    (DoctorContext, (store,)),
    (Facts, (version,)),
    (DatabaseFacts, (table, durability, pooler)),
    (ServerFacts, (eviction, persistence)),
    (Facts, (clock,)),
    (ServerFacts, (memory, replicas)),
)
