"""Short forms of the long runs, with generous limits; and leaks, planted to be found.

`python -m proofs.endurance` runs the long forms.
"""

import sys

import pytest
from helpers.repository import ROOT
from helpers.servers.processes import run_to_end

from .stores import STORES

pytestmark = pytest.mark.endurance

SHORT = [
    "--minutes",
    "0.8",
    "--ttl",
    "5",
    "--limit",
    "15",
    "--store-limit",
    "60",
    "--time-limit",
    "60",
]


@pytest.fixture
def endure(record_property):
    def run(*words):
        command = [sys.executable, "-m", "proofs.endurance", *map(str, words)]
        done = run_to_end(command, cwd=ROOT / "tests", timeout=240)
        record_property("report", f"{' '.join(command[2:])}\n{done.stdout}{done.stderr}")
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("store", STORES)
def test_nothing_grows_under_a_mixed_load(endure, store):
    # Rows of a table are pruned in rounds, of which such a run has three.
    swing = () if store == "redis" else ("--store-limit", 250)
    code, told = endure("soak", store, *SHORT, *swing)
    assert code == 0, told


LEAKS = {
    "memory time": ("USS", "guarded ÷ unguarded"),
    "descriptors threads connections keys": ("descriptors", "threads", "connections", "keys"),
}


@pytest.mark.parametrize("leaks", LEAKS)
def test_leaks_are_found(endure, leaks):
    planted = ("--leak", *leaks.split())
    code, told = endure("soak", "redis", *SHORT, "--minutes", 0.4, "--ttl", 4, *planted)
    assert code == 1
    failures = [line for line in told.splitlines() if line.startswith("FAILED: |")]
    for name in LEAKS[leaks]:
        assert any(name in line for line in failures), told


@pytest.mark.parametrize(("store", "count"), [("memory", 100_000), ("full", 50_000)])
def test_distinct_keys_leave_nothing_in_a_process(endure, store, count):
    code, told = endure("keys", store, "--count", count, "--limit", 6)
    assert code == 0, told
    assert ("503 SERVICE" in told) == (store == "full")


def test_distinct_keys_on_a_server_leave_nothing_in_a_process(endure):
    code, told = endure("keys", "redis", "--count", 20_000)
    assert code == 0, told


def test_keys_that_a_process_keeps_are_found(endure):
    code, told = endure("keys", "memory", "--count", 20_000, "--leak", "keys")
    assert code == 1
    assert "FAILED: | allocated blocks" in told


def test_two_thousand_leases_are_renewed_in_time(endure):
    code, told = endure("leases", "redis", "--count", 2000, "--lease", 6, "--seconds", 12)
    assert code == 0, told


@pytest.mark.parametrize("store", STORES)
def test_a_hundred_forks_leave_nothing_in_their_parent(endure, store):
    code, told = endure("forks", store, "--count", 100)
    assert code == 0, told
