"""Several processes on one table: exactly one of them is granted a claim."""

import json
import subprocess
import sys

import pytest
from sqlalchemy import create_engine

from flask_idempotence import SqlStore

PROCESSES, THREADS, ROUNDS = 4, 16, 5

pytestmark = pytest.mark.database


CLAIMANT = """
import json, os, sys, threading
from sqlalchemy import create_engine
from flask_idempotence import SqlStore
from flask_idempotence.stores.base import NO_FINGERPRINT, Claimed

url, threads, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
is_one = sys.argv[4] == "one key"
store = SqlStore(create_engine(url), deadline=20)
store.ping()
print("ready", flush=True)
granted = [0] * rounds
wins, errors = [], []

def claim(number):
    try:
        key = f"round {number}" if is_one else os.urandom(16).hex()
        outcome = store.claim(key, os.urandom(16), NO_FINGERPRINT, 60, 0)
        wins.append(number if outcome == Claimed() else None)
    except BaseException as error:
        errors.append(repr(error))

for number in range(rounds):
    sys.stdin.readline()
    barrier = threading.Barrier(threads)
    def run():
        barrier.wait()
        claim(number)
    crowd = [threading.Thread(target=run) for _ in range(threads)]
    for thread in crowd: thread.start()
    for thread in crowd: thread.join()
    print(json.dumps({"wins": wins.count(number), "errors": errors}), flush=True)
store.close()
"""


@pytest.mark.parametrize(("keys", "granted"), [("one key", 1), ("other keys", 64)])
def test_64_simultaneous_callers_in_four_processes_are_granted_a_key_once(url, keys, granted):
    store = SqlStore(create_engine(url))
    store.create_table()
    command = [sys.executable, "-c", CLAIMANT, url, str(THREADS), str(ROUNDS), keys]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    claimants = [subprocess.Popen(command, **pipes) for _ in range(PROCESSES)]
    try:
        for claimant in claimants:
            assert claimant.stdout.readline() == "ready\n"
        for _ in range(ROUNDS):
            for claimant in claimants:
                claimant.stdin.write("go\n")
                claimant.stdin.flush()
            told = [json.loads(claimant.stdout.readline()) for claimant in claimants]
            assert [each["errors"] for each in told] == [[]] * PROCESSES
            assert sum(each["wins"] for each in told) == granted
    finally:
        for claimant in claimants:
            claimant.communicate(timeout=60)
        store.close()
