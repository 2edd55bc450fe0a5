"""`once` when the store does not answer, when the work takes long, and when a process dies."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from jobs import Shift
from servers import Proxy, until

from flask_idempotence import MemoryStore, StoreError, StoreUnavailable, current_guard
from flask_idempotence.testing import FakeClock, record_signals


def behind(proxy, **settings):
    return Shift(IDEMPOTENCE_STORAGE_URI=proxy.url, **settings)


def work_in_a_process(shift, **settings):
    """Let the real clock rule, and the keeper's own thread work."""
    shift.engine.clock, shift.engine.sleep = time.monotonic, time.sleep
    del shift.engine.keeper._schedule
    return shift


def test_a_store_that_is_away_is_an_error_and_nothing_is_done(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        shift = behind(proxy)
        proxy.refuse()
        with record_signals(shift.app) as told, pytest.raises(StoreUnavailable) as refused:
            shift.work()
        assert (refused.value.retry_after, shift.runs) == (1, 0)
        assert told.names == ["store_failed", "rejected"]
        proxy.accept()
        assert shift.word() == "first"


def test_where_it_is_allowed_the_work_is_done_unguarded(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        shift = behind(proxy, IDEMPOTENCE_ON_STORE_ERROR="allow")
        proxy.refuse()
        with record_signals(shift.app) as told:
            assert shift.work(result={"unguarded": 1}) == (True, {"unguarded": 1})
        assert told.names == ["store_failed"]
        with shift.app.app_context(), shift.once():
            assert current_guard.mode is None
            current_guard.ensure_held()
        proxy.accept()
        assert [shift.word(), shift.word()] == ["first", "done"]


def test_a_claim_whose_answer_was_lost_is_given_up_by_the_keeper(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        shift = work_in_a_process(behind(proxy))
        proxy.drop_replies = True
        with pytest.raises(StoreUnavailable):
            shift.work()
        proxy.drop_replies = False
        assert until(lambda: not fresh_redis.client().dbsize(), 5)
        assert shift.word() == "first"


def test_a_completion_that_is_not_answered_is_finished_by_the_keeper(fresh_redis):
    with Proxy(fresh_redis) as proxy:
        shift = work_in_a_process(behind(proxy, IDEMPOTENCE_LEASE=1.5))
        with record_signals(shift.app) as told:
            with shift.app.app_context(), shift.once() as job:
                proxy.refuse()
                job.result = "paid"
            assert "completed" not in told.names
            proxy.accept()
            assert until(lambda: "completed" in told.names, 5)
        assert shift.work() == (False, "paid")
        assert shift.runs == 0


def test_until_it_is_finished_the_claim_lives_on():
    class Forgetful(MemoryStore):
        away = False

        def complete(self, *arguments):
            if self.away:
                raise StoreError("away")
            return super().complete(*arguments)

    store = Forgetful(clock=(clock := FakeClock()))
    shift = Shift(store=store, clock=clock)
    store.away = True
    assert shift.work(result="paid") == (True, "paid")
    shift.pass_time(120)
    assert shift.word() == "running"
    store.away = False
    shift.pass_time(10)
    assert shift.work() == (False, "paid")


def test_work_that_outlasts_its_lease_is_renewed():
    shift = Shift()
    with shift.app.app_context(), shift.once():
        shift.pass_time(300)
        assert shift.word() == "running"
    assert shift.word() == "done"


def test_without_the_keeper_it_would_not_be():
    shift = Shift()
    with shift.app.app_context(), shift.once():
        shift.clock.advance(31)
        assert shift.word() == "first"


def test_work_is_renewed_on_a_server_by_the_keepers_own_thread(redis_url):
    shift = work_in_a_process(Shift(IDEMPOTENCE_STORAGE_URI=redis_url, IDEMPOTENCE_LEASE=0.6))
    with shift.app.app_context(), shift.once():
        for _ in range(10):
            time.sleep(0.2)
            assert shift.word() == "running"
    assert shift.word() == "done"


def test_work_that_never_ends_is_given_up_in_the_end():
    shift = Shift(IDEMPOTENCE_MAX_HOLD=100.0)
    with shift.app.app_context(), shift.once():
        shift.pass_time(99)
        assert shift.word() == "running"
        shift.pass_time(40)
        assert shift.word() == "first"


def test_who_has_slept_past_the_lease_changes_nothing_of_its_successors():
    shift = Shift()
    with record_signals(shift.app) as told, shift.app.app_context(), shift.once() as late:
        shift.clock.advance(31)
        assert shift.work(result="of the second") == (True, "of the second")
        late.result = "of the first"
    assert told.names[-1] == "lease_lost"
    assert shift.work() == (False, "of the second")


WORKER = """
import os, sys, time
import redis
from flask import Flask
from flask_idempotence import Idempotence, Running

store, effects, plan = sys.argv[1:]
app = Flask("worker")
app.config.update(SECRET_KEY="a secret for the tests", IDEMPOTENCE_STORAGE_URI=store,
                  IDEMPOTENCE_LEASE=1)
idempotence = Idempotence(app)
effects = redis.Redis.from_url(effects)
with app.app_context():
    if plan == "race":
        effects.incr("ready")
        while not effects.exists("go"):
            time.sleep(0.005)
    for number in range(50 if plan == "race" else 1):
        try:
            with idempotence.once("order", number) as job:
                if job.first:
                    effects.incr(f"runs of {number}")
                    if plan == "hang":
                        time.sleep(60)
                    job.result = os.getpid()
                else:
                    effects.sadd(f"results of {number}", job.result)
        except Running:
            effects.incr("met")
"""


class Workers:
    """Processes with one store; what they do is counted on another database."""

    def __init__(self, redis_server):
        self.addresses = [redis_server.url.removesuffix("/0") + f"/{db}" for db in (4, 3)]
        self.effects = redis_server.client(db=3, decode_responses=True)
        for db in (3, 4):
            redis_server.client(db=db).flushdb()

    def start(self, plan):
        command = [sys.executable, "-c", WORKER, *self.addresses, plan]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        errors = process.communicate(timeout=60)[1]
        assert (process.returncode, errors) == (0, "")

    def runs(self, number=0):
        return int(self.effects.get(f"runs of {number}") or 0)


@pytest.mark.lifecycle
def test_after_a_kill_in_the_work_it_is_free_when_the_lease_ends(redis_server, redis_url):
    workers = Workers(redis_server)
    victim = workers.start("hang")
    assert until(workers.runs, 60)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate(timeout=10)
    killed_at = time.monotonic()
    shift = Shift(IDEMPOTENCE_STORAGE_URI=workers.addresses[0])
    assert shift.word(0, scope="order") == "running"
    assert until(lambda: shift.word(0, scope="order", result="again") == "first", 5)
    assert time.monotonic() - killed_at < 2.5
    workers.finish(workers.start("work"))
    assert workers.runs() == 1
    assert workers.effects.smembers("results of 0") == {"again"}


@pytest.mark.lifecycle
def test_of_several_processes_one_does_each_piece_of_work(redis_server, redis_url):
    workers = Workers(redis_server)
    processes = [workers.start("race") for _ in range(4)]
    assert until(lambda: workers.effects.get("ready") == "4", 60)
    workers.effects.set("go", 1)
    for process in processes:
        workers.finish(process)
    assert [workers.runs(number) for number in range(50)] == [1] * 50
    told = {len(workers.effects.smembers(f"results of {number}")) for number in range(50)}
    assert told <= {0, 1}
    workers.finish(workers.start("work"))
    assert workers.runs() == 1


def test_threads_of_a_pool_do_not_take_a_block_over():
    shift, seen = Shift(), []

    def look():
        seen.append(current_guard.mode)

    with shift.app.app_context(), shift.once():
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [None]


def test_a_block_that_ends_in_another_thread_leaves_nothing_behind():
    shift = Shift()

    def steps():
        with shift.once():
            yield

    work = steps()
    with shift.app.app_context():
        next(work)
    assert current_guard.mode == "once"
    ends = threading.Thread(target=lambda: next(work, None))
    ends.start()
    ends.join()
    assert current_guard.mode is None
