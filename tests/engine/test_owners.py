"""Owners: 128 random bits each, never drawn twice."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from flask_idempotence.engine import claim
from flask_idempotence.engine.claim import Owners
from flask_idempotence.stores.base import OWNER_BYTES

THREADS, EACH = 64, 500


def test_threads_never_draw_one_twice():
    owners, barrier = Owners(), Barrier(THREADS)

    def draw(_):
        barrier.wait(timeout=10)
        return [owners.draw() for _ in range(EACH)]

    with ThreadPoolExecutor(THREADS) as threads:
        drawn = [owner for each in threads.map(draw, range(THREADS)) for owner in each]
    assert len(set(drawn)) == THREADS * EACH
    assert {len(owner) for owner in drawn} == {OWNER_BYTES}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_draws_its_own():
    owners = Owners()
    owners.draw()
    there, here = os.pipe()
    child = os.fork()
    drawn = [owners.draw() for _ in range(200)]
    if child == 0:
        os.write(here, b"".join(drawn))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    of_child = os.read(there, 200 * OWNER_BYTES)
    assert len(of_child) == 200 * OWNER_BYTES
    assert not any(owner in of_child for owner in drawn)
    os.close(here)
    os.close(there)


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
