"""The commands on a store with very many keys."""

import os
import re
import subprocess
import time

import pytest
from cli.test_store_commands import invoke, rows
from helpers.apps import make_app
from helpers.cli_shell import Shell

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


def test_a_large_store_is_counted_in_batches_and_never_by_keys(crowded):
    app, client = make_app(IDEMPOTENCE_STORAGE_URI=crowded.url), crowded.client()
    client.config_resetstat()
    began = time.perf_counter()
    counted = rows(invoke(app, "stats"))
    seconds = time.perf_counter() - began
    assert [row[:6] for row in counted] == [
        ["key", "pay", "0", "0", str(MANY // 2), "0"],
        ["token", "-", "0", "0", "0", str(MANY // 2)],
    ]
    asked = client.info("commandstats")
    assert "cmdstat_keys" not in asked
    assert "cmdstat_get" not in asked  # records are not fetched
    assert asked["cmdstat_scan"]["calls"] > 100  # a short step each
    assert asked["cmdstat_scan"]["usec"] / asked["cmdstat_scan"]["calls"] < 5000
    assert seconds < 60


def test_counting_a_large_store_takes_no_more_memory_than_a_small_one(crowded, tmp_path):
    shell = Shell(tmp_path)
    empty = memory_of(shell, crowded.url.removesuffix("/0") + "/1")
    assert memory_of(shell, crowded.url) - empty < 15e6


def memory_of(shell, url):
    process = subprocess.Popen(
        shell.command(["stats"]),
        cwd=shell.directory,
        env=shell.environment | {"FLASK_IDEMPOTENCE_STORAGE_URI": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


def test_progress_is_shown_in_a_terminal_and_only_there(crowded, tmp_path):
    shell = Shell(tmp_path, FLASK_IDEMPOTENCE_STORAGE_URI=crowded.url)
    seen = shell.terminal("stats", NO_COLOR="1")
    assert seen.code == 0
    assert re.search(r"Counting +\[#+-*\] +\d+%", seen.out)
    assert "100%" in seen.out
    assert f"{MANY} keys," in seen.out
    piped = shell.pipe("stats")
    assert "Counting" not in piped.err + piped.out
    assert len(piped.out.splitlines()) == 2


def test_a_large_store_is_purged_in_batches(crowded):
    app, client = make_app(IDEMPOTENCE_STORAGE_URI=crowded.url), crowded.client()
    client.config_resetstat()
    done = invoke(app, "purge", "--mode", "key", "--yes")
    assert rows(done) == [["key", "pay", "record", str(MANY // 2)]]
    assert client.dbsize() == MANY + MANY // 2
    asked = client.info("commandstats")
    assert "cmdstat_keys" not in asked
    assert "cmdstat_flushdb" not in asked
