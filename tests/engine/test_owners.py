"""Owners: 128 random bits each, never drawn twice."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from flask_idempotence.engine import claim
from flask_idempotence.engine.claim import Owners
from flask_idempotence.stores.base import OWNER_BYTES

THREADS, EACH = 64, 500

FORK = """
import os, warnings
from flask_idempotence.engine.claim import Owners

warnings.filterwarnings("ignore", "This process", DeprecationWarning)
owners = Owners()
owners.draw()
there, here = os.pipe()
pid = os.fork()
drawn = b"".join(owners.draw() for _ in range(200)).hex()
if pid == 0:
    os.write(here, drawn.encode())
    os._exit(0)
os.waitpid(pid, 0)
print(drawn, os.read(there, 1 << 16).decode())
"""


def owners_in(text):
    drawn = bytes.fromhex(text)
    return {drawn[n : n + OWNER_BYTES] for n in range(0, len(drawn), OWNER_BYTES)}


def test_threads_never_draw_one_twice():
    owners, barrier = Owners(), Barrier(THREADS)

    def draw(_):
        barrier.wait(timeout=10)
        return [owners.draw() for _ in range(EACH)]

    with ThreadPoolExecutor(THREADS) as threads:
        drawn = [owner for each in threads.map(draw, range(THREADS)) for owner in each]
    assert len(set(drawn)) == THREADS * EACH
    assert {len(owner) for owner in drawn} == {OWNER_BYTES}


def test_a_child_process_draws_its_own():
    told = subprocess.run([sys.executable, "-c", FORK], check=True, capture_output=True, text=True)
    parents, childs = map(owners_in, told.stdout.split())
    assert len(parents) == len(childs) == 200
    assert not parents & childs


def test_none_is_drawn_from_before_a_pause(monkeypatch):
    clock = [1_000_000.0]
    monkeypatch.setattr(claim.time, "time", lambda: clock[0])
    for pause in (1.0, -3600.0):
        owners = Owners()
        owners.draw()
        left = set(owners._drawn)
        assert left
        clock[0] += pause
        assert not left & {owners.draw() for _ in range(200)}
