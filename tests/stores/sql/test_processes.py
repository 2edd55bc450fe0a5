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
store = SqlStore(create_engine(url), deadline=20)
store.ping()
print("ready", flush=True)
granted = [0] * rounds
wins, errors = [], []

def claim(number):
    try:
        outcome = store.claim(f"round {number}", os.urandom(16), NO_FINGERPRINT, 60, 0)
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


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    return request.getfixturevalue("postgres").new_database()


def test_one_of_64_simultaneous_callers_in_four_processes_is_granted(url):
    store = SqlStore(create_engine(url))
    store.create_table()
    command = [sys.executable, "-c", CLAIMANT, url, str(THREADS), str(ROUNDS)]
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
            assert sum(each["wins"] for each in told) == 1
    finally:
        for claimant in claimants:
            claimant.communicate(timeout=60)
        store.close()
