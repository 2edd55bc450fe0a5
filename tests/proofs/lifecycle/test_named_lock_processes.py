"""`lock` among processes: exact counts, a holder that is killed, a holder that is frozen."""

import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.every_store import SHARED_STORES, storage_uri
from helpers.once_operations import OnceApp
from helpers.servers.processes import environment, until

from flask_idempotence import Running

pytestmark = pytest.mark.lifecycle

WORKER = """
import os, sys, time
from pathlib import Path
from flask_idempotence import LeaseLost, current_guard
from helpers.applications.plain import app, idempotence

plan = sys.argv[1]
counter = Path("counter")
with app.app_context():
    if plan == "count":
        for _ in range(25):
            with idempotence.lock("counter", lease=10, wait=120):
                number = int(counter.read_text())
                time.sleep(0.002)  # a lost update, without the lock
                counter.write_text(str(number + 1))
    else:
        with idempotence.lock("counter", lease=1, wait=10):
            Path("held").touch()
            if plan == "hang":
                time.sleep(60)
            while not Path("go on").exists():
                time.sleep(0.02)
            try:
                current_guard.ensure_held()
            except LeaseLost:
                Path("lost").touch()
"""


@pytest.fixture(params=SHARED_STORES)
def uri(request):
    return storage_uri(request.param, request)


@pytest.fixture
def start(uri, tmp_path):
    (tmp_path / "counter").write_text("0")

    def start(plan):
        command = [sys.executable, "-c", WORKER, plan]
        options = {"env": environment(uri, storage_options='{"deadline": 30}'), "cwd": tmp_path}
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)

    return start


@pytest.fixture
def site(uri):
    site = OnceApp(IDEMPOTENCE_STORAGE_URI=uri)
    site.engine.clock, site.engine.sleep = time.monotonic, time.sleep
    del site.engine.keeper._schedule
    return site


def remaining(site):
    try:
        with site.app.app_context(), site.idempotence.lock("counter"):
            return None
    except Running as error:
        return error.remaining


def test_processes_that_count_together_lose_no_update(start, tmp_path):
    processes = [start("count") for _ in range(4)]
    told = [process.communicate(timeout=180)[1] for process in processes]
    assert told == [""] * 4
    assert (tmp_path / "counter").read_text() == "100"


def test_a_holder_that_is_killed_leaves_it_to_its_lease(start, tmp_path, site):
    victim = start("hang")
    assert until((tmp_path / "held").exists, 60)
    for _ in range(12):  # longer than its lease, which its keeper renews
        assert 0 < remaining(site) <= 1
        time.sleep(0.1)
    os.kill(victim.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    victim.communicate(timeout=10)
    with site.app.app_context(), site.idempotence.lock("counter", wait=10):
        waited = time.monotonic() - killed_at
    assert 0.4 < waited < 3


def test_a_holder_that_was_frozen_learns_that_it_is_lost(start, tmp_path, site):
    frozen = start("check")
    assert until((tmp_path / "held").exists, 60)
    os.kill(frozen.pid, signal.SIGSTOP)
    with site.app.app_context(), site.idempotence.lock("counter", lease=30, wait=10):
        (tmp_path / "go on").touch()
        os.kill(frozen.pid, signal.SIGCONT)
        assert "A lease was lost" in frozen.communicate(timeout=30)[1]
        assert (tmp_path / "lost").exists()
        assert site.store.peek(next(iter(site.store.scan("idempotence:2:mutex:")))).lease > 20
    assert remaining(site) is None
