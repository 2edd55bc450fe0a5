"""`once` when the store does not answer, when the work takes long, and when a process dies."""

import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.once_operations import OnceApp, elsewhere
from helpers.servers.faults import Proxy
from helpers.servers.processes import until

from flask_idempotence import MemoryStore, StoreError, StoreUnavailable, current_guard
from flask_idempotence.testing import FakeClock, record_signals


def behind(proxy, **settings):
    return OnceApp(IDEMPOTENCE_STORAGE_URI=proxy.url, **settings)


def test_a_store_that_is_away_is_an_error_and_nothing_is_done(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        once_app = behind(proxy)
        proxy.refuse()
        with record_signals(once_app.app) as told, pytest.raises(StoreUnavailable) as refused:
            once_app.work()
        assert (refused.value.retry_after, once_app.runs) == (1, 0)
        assert told.names == ["store_failed", "rejected"]
        proxy.accept()
        assert once_app.word() == "first"


def test_where_it_is_allowed_the_work_is_done_unguarded(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        once_app = behind(proxy, IDEMPOTENCE_ON_STORE_ERROR="allow")
        proxy.refuse()
        with record_signals(once_app.app) as told:
            assert once_app.work(result={"unguarded": 1}) == (True, {"unguarded": 1})
        assert told.names == ["store_failed"]
        with once_app.app.app_context(), once_app.once():
            assert current_guard.mode is None
            current_guard.ensure_held()
        proxy.accept()
        assert [once_app.word(), once_app.word()] == ["first", "done"]


def test_until_it_is_finished_the_claim_lives_on():
    class Forgetful(MemoryStore):
        away = False

        def complete(self, *arguments):
            if self.away:
                raise StoreError("away")
            return super().complete(*arguments)

    store = Forgetful(clock=(clock := FakeClock()))
    once_app = OnceApp(store=store, clock=clock)
    store.away = True
    assert once_app.work(result="paid") == (True, "paid")
    once_app.pass_time(120)
    assert once_app.word() == "running"
    store.away = False
    once_app.pass_time(10)
    assert once_app.work() == (False, "paid")


def test_work_that_outlasts_its_lease_is_renewed():
    once_app = OnceApp()
    with once_app.app.app_context(), once_app.once():
        once_app.pass_time(300)
        assert once_app.word() == "running"
    assert once_app.word() == "done"


def test_who_has_slept_past_the_lease_changes_nothing_of_its_successors():
    once_app = OnceApp()
    with record_signals(once_app.app) as told, once_app.app.app_context(), once_app.once() as late:
        once_app.clock.advance(31)
        assert elsewhere(once_app.work, result="of the second") == (True, "of the second")
        late.result = "of the first"
    assert told.names[-1] == "lease_lost"
    assert once_app.work() == (False, "of the second")


WORKER = """
import sys, time
import redis
from flask import Flask
from flask_idempotence import Idempotence

store, effects, plan = sys.argv[1:]
app = Flask("worker")
app.config.update(SECRET_KEY="a secret for the tests", IDEMPOTENCE_STORAGE_URI=store,
                  IDEMPOTENCE_LEASE=1)
idempotence = Idempotence(app)
effects = redis.Redis.from_url(effects)
with app.app_context(), idempotence.once("order", 0) as job:
    if job.first:
        effects.incr("runs")
        if plan == "hang":
            time.sleep(60)
    else:
        effects.set("result", job.result)
"""


@pytest.mark.lifecycle
def test_after_a_kill_in_the_work_it_is_free_when_the_lease_ends(redis_server, redis_url):
    addresses = [redis_server.url.removesuffix("/0") + f"/{db}" for db in (4, 3)]
    effects = redis_server.client(db=3, decode_responses=True)

    def start(plan):
        command = [sys.executable, "-c", WORKER, *addresses, plan]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    victim = start("hang")
    assert until(lambda: effects.get("runs") == "1", 60)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=10)
    killed_at = time.monotonic()
    once_app = OnceApp(IDEMPOTENCE_STORAGE_URI=addresses[0])
    assert once_app.word(0, scope="order") == "running"
    assert until(lambda: once_app.word(0, scope="order", result="again") == "first", 5)
    assert time.monotonic() - killed_at < 2.5
    last = start("work")
    assert (last.communicate(timeout=60)[1], last.returncode) == ("", 0)
    assert (effects.get("runs"), effects.get("result")) == ("1", "again")
