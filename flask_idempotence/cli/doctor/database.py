"""The doctor's checks of a store in a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..stores.facts import DatabaseFacts
from .findings import Check, Finding, Patient, error, note, ok, warning

_MANY_EXPIRED = 10_000


def of_each_database(look: Callable[[DatabaseFacts], Iterator[Finding]]) -> Check:
    """Make a check of the application out of one of a database."""

    def check(patient: Patient) -> Iterator[Finding]:
        for facts in patient.servers:
            if isinstance(facts, DatabaseFacts):
                yield from look(facts)

    return check


def check_table(facts: DatabaseFacts) -> Iterator[Finding]:
    """Whether the table is there, with all its columns."""
    if not facts.missing:
        yield ok("The table is there, with all its columns.")
        return
    yield error(
        f"Missing in the database: {', '.join(facts.missing)}.",
        "Without its table the store takes no claim: guarded requests are refused, or run "
        "unguarded.",
        "Run 'flask idempotence init-db', or your migration; a table of another release is to be "
        "migrated, or dropped first.",
    )


def check_durability(facts: DatabaseFacts) -> Iterator[Finding]:
    """Whether what was committed outlives a crash."""
    if facts.survives_crash:
        yield ok(f"What is committed is on the disk: {facts.durability}.")
        return
    yield warning(
        f"A crash of the machine may lose the last commits: {facts.durability}.",
        "Claims and remembered responses that are lost let their repeats run again.",
        "Set fsync and synchronous_commit to on; for SQLite, PRAGMA synchronous to FULL.",
    )


def check_pooler(facts: DatabaseFacts) -> Iterator[Finding]:
    """Whether statements are prepared under names that a pooler may not know."""
    if facts.pooled is None:
        return
    if not facts.pooled:
        yield ok("No connection pooler stands before the database.")
    elif not facts.prepares:
        yield ok("Behind a connection pooler: each operation is a transaction of its own.")
    else:
        yield warning(
            "The application's connections prepare statements under names, behind a pooler.",
            "PgBouncer before 1.21, and later ones without max_prepared_statements, lose such "
            "statements in transaction mode: the application's own fail, and so do commits of "
            "within=. The store's own connections prepare none.",
            'Pass connect_args={"prepare_threshold": None} to create_engine, or have the pooler '
            "support prepared statements.",
        )


def check_room(facts: DatabaseFacts) -> Iterator[Finding]:
    """Whether expired rows are removed."""
    if facts.expired is None:
        return
    if facts.expired < _MANY_EXPIRED:
        yield ok(f"{facts.expired} expired rows wait to be removed.")
        return
    yield note(
        f"{facts.expired} expired rows or more wait to be removed.",
        "They mean nothing any more and take up room; the store removes some whenever it has been "
        "written to for a while.",
        "Run 'flask idempotence prune' by a timer.",
    )
