"""`once` behind a real queue: Celery on Redis, with messages that come again and workers that die.

The effects are counted in a file. The store is Redis, so what holds is at-least-once: whoever dies
between the effect and the completion is not known to have had it.
"""

import contextlib
import itertools
import random
import time

import pytest
from helpers.servers.processes import RedisServer, until

from flask_idempotence import Running

pytest.importorskip("celery")
from helpers.servers.celery_queue import CeleryQueue

pytestmark = pytest.mark.queue
PATIENCE = 120

numbers = itertools.count(1)


@contextlib.contextmanager
def opened(directory, **settings):
    with RedisServer() as server:
        broker = CeleryQueue(directory, server, **settings)
        yield broker
        broker.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Two workers with two children each, and a lease of a second."""
    directory = tmp_path_factory.mktemp("post")
    with (
        opened(directory) as broker,
        broker.worker() as one,
        broker.worker() as other,
    ):
        broker.workers = one, other
        yield broker


@pytest.fixture
def number():
    return next(numbers)


def results(messages):
    """Wait until the messages have been dealt with, and return what their sender is told."""
    return [message.get(timeout=PATIENCE, propagate=False) for message in messages]


@pytest.mark.parametrize("task", ["block", "decorated"])
def test_what_is_published_three_times_takes_effect_once(broker, task):
    mails = [next(numbers) for _ in range(30)]
    messages = [(task, number, "slow 0.05") for number in mails] * 3
    random.Random(1).shuffle(messages)
    assert results(broker.post(*messages)) == [f"sent {number}" for _, number, _ in messages]
    assert broker.count("effect", *mails) == dict.fromkeys(mails, 1)
    assert len({process for _, process, _ in broker.entries("effect", *mails)}) > 1


def test_who_meets_a_running_one_is_told_so_and_comes_again_until_it_is_done(broker, number):
    assert results(broker.post(*[("block", number, "slow 3")] * 4)) == [f"sent {number}"] * 4
    assert broker.count("effect", number) == {number: 1}
    assert broker.count("met", number)[number] >= 3
    [(_, _, at)] = broker.entries("effect", number)
    assert all(done > at for _, _, done in broker.entries("done", number))


@pytest.mark.parametrize("task", ["block", "decorated"])
def test_a_child_that_dies_before_the_effect_leaves_it_to_another_after_the_lease(
    broker, task, number
):
    assert results(broker.post((task, number, "die before"))) == [f"sent {number}"]
    assert "SIGKILL" in broker.workers[0].log + broker.workers[1].log
    (_, dead, died_at), (_, other, begun_at) = broker.entries("begun", number)
    assert dead != other
    assert begun_at - died_at > 0.8
    assert broker.count("effect", number) == {number: 1}


def test_a_child_that_dies_between_the_effect_and_the_completion_has_it_twice(broker, number):
    assert results(broker.post(("block", number, "die after"))) == [f"sent {number}"]
    assert broker.count("effect", number) == {number: 2}  # at-least-once, as is documented


def test_of_many_messages_whose_first_workers_die_each_takes_effect_once(broker):
    mails = [next(numbers) for _ in range(8)]
    results(broker.post(*[("block", number, "die before") for number in mails for _ in "12"]))
    assert broker.count("begun", *mails) == dict.fromkeys(mails, 2)
    assert broker.count("effect", *mails) == dict.fromkeys(mails, 1)


@pytest.mark.parametrize("task", ["block", "decorated"])
def test_a_failure_in_the_work_lets_the_message_come_back(broker, task, number):
    assert results(broker.post((task, number, "fail"))) == [f"sent {number}"]
    assert broker.count("begun", number) == {number: 2}
    assert broker.count("effect", number) == {number: 1}


def test_who_gives_up_at_once_is_told_what_it_met_and_so_is_its_sender(broker, number):
    told = results(broker.post(*[("impatient", number, "slow 4")] * 2))
    [running] = [each for each in told if each is not None]
    assert isinstance(running, Running)
    assert running.retry_after == 1
    assert broker.count("effect", number) == {number: 1}


def test_each_child_has_a_keeper_of_its_own_that_renews(broker):
    mails = [next(numbers) for _ in range(3)]
    messages = [("block", number, "slow 5") for number in mails]
    results(broker.post(*messages, *messages))
    assert len({process for _, process, _ in broker.entries("effect", *mails)}) == 3
    assert broker.count("begun", *mails) == dict.fromkeys(mails, 1)
    for worker in broker.workers:
        assert "lease was lost" not in worker.log


def test_a_worker_that_dies_with_all_its_children_is_replaced_by_another(tmp_path, number):
    with opened(tmp_path, visibility=2) as broker:
        with broker.worker() as victim:
            messages = broker.post(("block", number, "hang"))
            assert until(lambda: broker.count("begun", number), PATIENCE)
            victim.kill()
        assert broker.count("effect", number) == {}
        with broker.worker():
            assert results(messages) == [f"sent {number}"]
        assert broker.count("begun", number) == {number: 2}
        assert broker.count("effect", number) == {number: 1}


def test_a_message_delivered_again_in_mid_work_meets_its_first_delivery(tmp_path, number):
    with opened(tmp_path, visibility=2) as broker, broker.worker():
        messages = broker.post(("block", number, "until it is met"))
        assert until(lambda: broker.count("begun", number), PATIENCE)
        time.sleep(2.5)  # longer than the broker waits for the acknowledgement
        with broker.worker():  # a worker that starts looks at once for what has come back
            assert until(lambda: broker.count("done", number)[number] >= 2, PATIENCE)
        assert results(messages) == [f"sent {number}"]
        assert broker.count("met", number)[number] >= 2
        assert broker.count("begun", number) == broker.count("effect", number) == {number: 1}


def test_a_warm_shutdown_finishes_the_work_and_its_settlement_in_silence(tmp_path):
    mails = [next(numbers), next(numbers)]
    with opened(tmp_path) as broker, broker.worker() as worker:
        messages = broker.post(*[("block", number, "slow 3") for number in mails])
        assert until(lambda: len(broker.entries("begun", *mails)) == 2, PATIENCE)
        assert worker.shut_down() == 0
        time.sleep(1.2)  # longer than the lease
        assert results(messages) == [f"sent {number}" for number in mails]
    assert broker.count("effect", *mails) == dict.fromkeys(mails, 1)
    assert worker.log.count("succeeded in") == 2
    for sign in ("Traceback", "ERROR", "CRITICAL", "Exception"):
        assert sign not in worker.log
