"""The doctor on the store, over all that a server may tell about itself; no server is needed."""

import pytest
from helpers.apps import make_app

from flask_idempotence import StoreError
from flask_idempotence.cli import checks
from flask_idempotence.cli.causes import cause_of
from flask_idempotence.cli.checks import STORE_CHECKS, DoctorContext
from flask_idempotence.stores.facts import DatabaseFacts, ServerFacts

UNKNOWN = "The server does not show it (hosted servers often hide it)."


def server(**facts):
    return ServerFacts(product="Redis", oldest=(6, 2), **facts)


def database(**facts):
    return DatabaseFacts(product="MariaDB", **facts)


def memory(used, limit=100, machine=None):
    return server(memory_used=used, memory_limit=limit, memory_of_machine=machine)


def replicas(have, wanted):
    return server(replicas=have, replicas_wanted=wanted)


def policy(name, limit):
    return server(eviction=name, memory_limit=limit)


CLOCK = "This machine's clock and the server's differ by {} s."
USED = "The server uses {}% of {}."
FOLLOW = "{} replicas follow the server, and wait_replicas is {}."
NAMED = "The application's connections prepare statements under names, behind a pooler."
ROWS = [
    ("version", server(), "note: The server's version is unknown."),
    ("version", server(version=(6, 0, 16)), "error: Redis 6.0.16 is older than 6.2."),
    ("version", server(version=(6, 2)), "ok: Redis 6.2."),
    ("version", server(version=(7, 0, 1)), "ok: Redis 7.0.1."),
    ("eviction", server(), "note: The server's eviction policy is unknown."),
    ("eviction", policy("noeviction", 9), "ok: maxmemory-policy is noeviction."),
    ("eviction", policy("allkeys-lru", 9), "error: maxmemory-policy is allkeys-lru."),
    ("eviction", policy("allkeys-lru", None), "error: maxmemory-policy is allkeys-lru."),
    (
        "eviction",
        policy("volatile-ttl", 0),
        "warning: maxmemory-policy is volatile-ttl, though without maxmemory.",
    ),
    ("persistence", server(), "note: The server's persistence is unknown."),
    ("persistence", server(logs_writes=False), "warning: appendonly is off."),
    (
        "persistence",
        server(logs_writes=True, log_reaches_disk="no"),
        "warning: appendfsync is no: the operating system decides when to write.",
    ),
    *(
        (
            "persistence",
            server(logs_writes=True, log_reaches_disk=when),
            f"ok: appendonly is on, and appendfsync is {when}.",
        )
        for when in ("everysec", "always")
    ),
    ("clock", server(), "note: The server's clock is unknown."),
    ("clock", database(), "ok: The database's clock is this machine's."),
    *(
        ("clock", make(clock_ahead=ahead), f"{severity}: {CLOCK.format(f'{abs(ahead):.1f}')}")
        for make in (server, database)
        for severity, ahead in [
            *(("ok", 0.0), ("ok", -4.94), ("warning", 5.0), ("warning", -30.0)),
            *(("error", 30.04), ("error", -31.0)),
        ]
    ),
    ("memory", server(), "note: The server's memory is unknown."),
    ("memory", server(memory_used=5), "note: The server's memory is unknown."),
    ("memory", server(memory_limit=5), "note: The server's memory is unknown."),
    ("memory", memory(74), f"ok: {USED.format(74, 'maxmemory')}"),
    ("memory", memory(75), f"warning: {USED.format(75, 'maxmemory')}"),
    ("memory", memory(94), f"warning: {USED.format(94, 'maxmemory')}"),
    ("memory", memory(95), f"error: {USED.format(95, 'maxmemory')}"),
    ("memory", memory(95, 0, 1000), f"ok: {USED.format(10, '''its machine's memory''')}"),
    ("memory", memory(95, None, 100), f"error: {USED.format(95, '''its machine's memory''')}"),
    ("replicas", server(), "note: The server's number of replicas is unknown."),
    ("replicas", replicas(0, 0), f"ok: {FOLLOW.format(0, 0)}"),
    ("replicas", replicas(2, 2), f"ok: {FOLLOW.format(2, 2)}"),
    ("replicas", replicas(1, 0), f"note: {FOLLOW.format(1, 0)}"),
    ("replicas", replicas(1, 2), f"error: {FOLLOW.format(1, 2)}"),
    ("table", database(), "ok: The table exists, with all its columns."),
    ("table", database(missing=("a", "b")), "error: Missing in the database: a, b."),
    (
        "durability",
        database(survives_crash=True, durability="fsync=on"),
        "ok: Commits survive a crash: fsync=on.",
    ),
    *(
        (
            "durability",
            database(survives_crash=survives, durability="fsync=off"),
            "warning: A crash of the machine may lose the last commits: fsync=off.",
        )
        for survives in (False, None)
    ),
    ("pooler", database(), None),
    ("pooler", database(prepares=True), None),
    *(
        (
            "pooler",
            database(pooled=pooled, prepares=prepares),
            f"warning: {NAMED}"
            if pooled and prepares
            else "ok: No connection pooler gets prepared statements.",
        )
        for pooled in (True, False)
        for prepares in (True, False, None)
    ),
]
"""The check, what the server tells, and the finding."""


@pytest.mark.parametrize(("check", "facts", "expected"), ROWS)
def test_a_check_finds_by_what_the_server_tells(check, facts, expected):
    found = getattr(checks, check)(facts)
    assert (found and f"{found.severity}: {found.finding}") == expected
    if found is not None:
        is_ok = found.severity == "ok"
        assert (bool(found.reason), bool(found.remedy)) == (not is_ok, not is_ok)
        assert (found.reason == UNKNOWN) is found.finding.endswith("is unknown.")


def test_every_check_of_a_server_is_in_the_table():
    of_servers = {check.__name__ for kind, group in STORE_CHECKS for check in group}
    assert {row[0] for row in ROWS} == of_servers - {"store"}


REFUSED = cause_of(StoreError("ConnectionError: Connection refused"))


@pytest.mark.parametrize(
    ("fault", "servers", "expected"),
    [
        (None, (), ("ok", "MemoryStore granted and released a claim, in 2.5 ms.")),
        (REFUSED, (), ("error", REFUSED.sentence)),
        (REFUSED, (server(),), ("error", REFUSED.sentence)),
        (REFUSED, (database(),), ("error", REFUSED.sentence)),
        (REFUSED, (database(missing=("a",)),), None),  # the check of the table has found that
    ],
    ids=["well", "away", "server", "database", "no table"],
)
def test_the_claim_on_trial_says_whether_the_store_works(fault, servers, expected):
    app = make_app()
    engine = app.extensions["idempotence"].engine
    context = DoctorContext(app, engine, servers=servers, probe_time=0.0025, fault=fault)
    found = checks.store(context)
    assert (found and found[:3:2]) == expected
    assert found is None or (found.remedy == (fault.remedy if fault else ""))
