"""The commands on a store with very many keys."""

import tracemalloc

import pytest
from helpers.apps import make_app
from helpers.cli_shell import Shell, invoke, rows

pytestmark = pytest.mark.servers

MANY = 50_000


@pytest.fixture(scope="module")
def crowded(redis_server):
    with redis_server.client() as client:
        client.flushall()
        pipe = client.pipeline(transaction=False)
        for number in range(MANY):
            kind = (b"D" + bytes(32) + b"x" * 100, b"T")[number % 2]
            mode = ("key:pay", "token:-")[number % 2]
            pipe.set(f"idempotence:2:{mode}:{number:032x}", kind, px=600_000)
            pipe.set(f"other:{number}", "x")
            if number % 5000 == 4999:
                pipe.execute()
        yield redis_server
        client.flushall()


def test_a_large_store_is_counted_in_batches_and_never_by_keys_nor_kept_in_memory(crowded):
    app, client = make_app(IDEMPOTENCE_STORAGE_URI=crowded.url), crowded.client()
    client.config_resetstat()
    tracemalloc.start()
    counted = rows(invoke(app, "stats"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MANY * 40  # less than the keys alone
    assert [row[:6] for row in counted] == [
        ["key", "pay", "0", "0", str(MANY // 2), "0"],
        ["token", "-", "0", "0", "0", str(MANY // 2)],
    ]
    asked = client.info("commandstats")
    assert "cmdstat_keys" not in asked
    assert "cmdstat_get" not in asked  # records are not fetched
    assert asked["cmdstat_scan"]["calls"] > 100  # a short step each
    assert asked["cmdstat_scan"]["usec"] / asked["cmdstat_scan"]["calls"] < 5000


def test_progress_is_shown_in_a_terminal_and_only_there(crowded, tmp_path):
    shell = Shell(tmp_path, FLASK_IDEMPOTENCE_STORAGE_URI=crowded.url)
    seen, piped = shell.terminal("stats", NO_COLOR="1"), shell.pipe("stats")
    assert (seen.code, piped.code) == (0, 0)
    assert f"{MANY:,} keys read" in seen.out
    assert "keys read" not in piped.err + piped.out
