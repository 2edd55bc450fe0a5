"""The doctor's checks of the store and of the servers behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..config.settings import CLOCK_SKEW
from ..stores.facts import DatabaseFacts, ServerFacts
from .database_checks import (
    check_durability,
    check_pooler,
    check_room,
    check_table,
    of_each_database,
)
from .findings import Check, Finding, Patient, error, note, ok, warning

_NOTABLE_SKEW = 5.0
"""Seconds."""

_LITTLE_ROOM, _NO_ROOM = 0.75, 0.95
"""Parts of its memory that a server uses."""

_UNTOLD = "The server does not tell (hosted servers often hide it)."


Facts = ServerFacts | DatabaseFacts


def of_every_kind(look: Callable[[Facts], Iterator[Finding]]) -> Check:
    """Make a check of the application out of one of a server or database."""

    def check(patient: Patient) -> Iterator[Finding]:
        for facts in patient.servers:
            yield from look(facts)

    return check


def of_each_server(look: Callable[[ServerFacts], Iterator[Finding]]) -> Check:
    """Make a check of the application out of one of a server."""

    def check(patient: Patient) -> Iterator[Finding]:
        for facts in patient.servers:
            if isinstance(facts, ServerFacts):
                yield from look(facts)

    return check


def check_answer(patient: Patient) -> Iterator[Finding]:
    """Whether the store can be reached, and takes claims."""
    kind = type(patient.state.store).__name__
    if patient.answers_in is not None:
        yield ok(f"{kind} granted a claim and gave it up, in {patient.answers_in * 1000:.1f} ms.")
        return
    yield error(
        f"{kind} does not take a claim ({patient.trouble}).",
        "Without the store every guarded request is refused, or runs unguarded, as "
        "IDEMPOTENCE_ON_STORE_ERROR says.",
        "Start the server, and compare its address, credentials and permissions with "
        "IDEMPOTENCE_STORAGE_URI. A replica is read-only: name the primary.",
    )


def check_version(facts: Facts) -> Iterator[Finding]:
    """Whether the server is new enough."""
    if facts.version is None:
        yield note("The server's version is unknown.", _UNTOLD, "Look it up.")
        return
    version, oldest = _dotted(facts.version), _dotted(facts.oldest)
    if facts.version >= facts.oldest:
        yield ok(f"{facts.product} {version}.")
        return
    yield error(
        f"{facts.product} {version} is older than {oldest}.",
        "What is sent is tested with newer ones only.",
        f"Upgrade to {facts.product} {oldest} or later.",
    )


def check_eviction(facts: ServerFacts) -> Iterator[Finding]:
    """Whether the server forgets claims when its memory is full."""
    if facts.evicts is None:
        yield note("The server's eviction policy is unknown.", _UNTOLD, "It must be noeviction.")
    elif not facts.evicts:
        yield ok(f"maxmemory-policy is {facts.eviction}.")
    else:
        limited = facts.memory_limit != 0
        yield (error if limited else warning)(
            f"maxmemory-policy is {facts.eviction}"
            + ("." if limited else ", with no maxmemory to set it off."),
            "A server that evicts keys forgets live claims when its memory is full, and then lets "
            "repeats through.",
            "Set maxmemory-policy noeviction, or give the guards a server of their own.",
        )


def check_persistence(facts: ServerFacts) -> Iterator[Finding]:
    """Whether a restart of the server forgets claims."""
    if facts.logs_writes is None:
        yield note("The server's persistence is unknown.", _UNTOLD, "It should have appendonly.")
    elif not facts.logs_writes:
        snapshots = "only snapshots now and then" if facts.takes_snapshots else "nothing"
        yield warning(
            f"appendonly is off: {snapshots} is kept.",
            "A restart forgets claims and remembered responses, and their repeats run again.",
            "Set appendonly yes.",
        )
    elif facts.log_reaches_disk == "no":
        yield warning(
            "appendfsync is no: the operating system writes when it likes.",
            "A crash of the machine forgets the claims of about the last half minute.",
            "Set appendfsync everysec, or always.",
        )
    elif facts.log_reaches_disk == "always":
        yield ok("appendonly is on, and appendfsync is always.")
    else:
        yield ok("appendonly is on; a crash of the machine forgets about one second.")


def check_clock(facts: Facts) -> Iterator[Finding]:
    """Whether this machine's clock agrees with the server's."""
    if facts.clock_ahead is None and isinstance(facts, DatabaseFacts):
        yield ok("The database's clock is this machine's.")
        return
    if facts.clock_ahead is None:
        yield note("The server's clock is unknown.", _UNTOLD, "Run a time service everywhere.")
        return
    difference = abs(facts.clock_ahead)
    found = f"This machine's clock and the server's differ by {difference:.1f} s."
    if difference < _NOTABLE_SKEW:
        yield ok(found)
        return
    yield (error if difference > CLOCK_SKEW else warning)(
        found,
        "Leases are timed by the server alone, but a token's age is told by the clocks of the "
        f"machines that issue and take it, which may differ by {CLOCK_SKEW} s at most.",
        "Run a time service (NTP) on all machines.",
    )


def check_memory(facts: ServerFacts) -> Iterator[Finding]:
    """How much room the server has left."""
    limit = facts.memory_limit or facts.memory_of_machine
    if facts.memory_used is None or not limit:
        yield note("The server's memory is unknown.", _UNTOLD, "Watch it.")
        return
    used = facts.memory_used / limit
    of = "maxmemory" if facts.memory_limit else "its machine's memory"
    found = f"The server uses {used:.0%} of {of}."
    if used < _LITTLE_ROOM:
        yield ok(found)
        return
    yield (error if used >= _NO_ROOM else warning)(
        found,
        "A full server takes no claims: guarded requests are refused, or run unguarded.",
        "Raise maxmemory, or lower IDEMPOTENCE_KEY_TTL and IDEMPOTENCE_KEY_MAX_BODY. "
        "'flask idempotence stats' tells what is large.",
    )


def check_replicas(facts: ServerFacts) -> Iterator[Finding]:
    """Whether as many replicas follow as the store waits for."""
    have, wanted = facts.replicas, facts.replicas_wanted
    if have is None:
        yield note("The server's replicas are unknown.", _UNTOLD, "Look them up.")
    elif have < wanted:
        yield error(
            f"{have} replicas follow the server, and wait_replicas is {wanted}.",
            "Every claim waits for replicas that are not there, and then counts as not answered.",
            "Start the replicas, or lower wait_replicas.",
        )
    elif have > wanted:
        yield note(
            f"{have} replicas follow the server, and wait_replicas is {wanted}.",
            "Replication is asynchronous: a replica that takes over may lack the latest claims, "
            "and their repeats run again.",
            "Where that matters, set wait_replicas to the number of replicas that may take over.",
        )
    else:
        yield ok(f"{have} replicas follow the server, and wait_replicas is {wanted}.")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


STORE_CHECKS: dict[str, Check] = {
    "store": check_answer,
    "version": of_every_kind(check_version),
    "table": of_each_database(check_table),
    "durability": of_each_database(check_durability),
    "room": of_each_database(check_room),
    "pooler": of_each_database(check_pooler),
    "eviction": of_each_server(check_eviction),
    "persistence": of_each_server(check_persistence),
    "clock": of_every_kind(check_clock),
    "memory": of_each_server(check_memory),
    "replicas": of_each_server(check_replicas),
}
"""By name, in their order."""
