"""The file of docs/how-to/consume-messages.md for Celery, saved and started as its reader does."""

import re
import time
from collections import Counter

import pytest
from helpers.repository import section
from helpers.servers.processes import until

pytest.importorskip("rq")
from helpers.brokers import PAGE, CeleryBroker, Consumer, thrice, work_off

pytestmark = pytest.mark.queue
PATIENCE = 60


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(tmp_path, redis_url, request):
    server = request.getfixturevalue("rabbitmq") if request.param == "rabbitmq" else None

    def make(**more):
        return CeleryBroker(tmp_path, redis_url, server, **more)

    return make


def test_the_command_of_the_page_works_with_the_file_of_the_page(broker):
    [command] = re.findall(r"(?m)^```sh\n(celery .*)\n```$", section(PAGE, "Celery"))
    assert command == "celery -A celery_shop:celery worker"
    sends_each_once(broker(), command)


def sends_each_once(broker, command):
    orders = range(1, 11)
    broker.publish(*thrice(orders))
    broker.publish(*thrice(orders), task="send_reminder")
    sent = [f"Invoice for order {n}" for n in orders] + [f"Reminder of order {n}" for n in orders]
    pattern = re.compile(r"(?:Invoice for|Reminder of) order \d+")
    with Consumer(broker, command.split()) as worker:
        work_off(
            [worker],
            lambda: set(pattern.findall(worker.log)) == set(sent) and not any(broker.waiting()),
        )
    assert Counter(pattern.findall(worker.log)) == dict.fromkeys(sent, 1)
    assert not any(broker.waiting())
    assert "Traceback" not in worker.log


ON_REDIS = pytest.mark.parametrize("broker", ["redis"], indirect=True)


@ON_REDIS
def test_each_child_has_a_keeper_of_its_own_that_renews(broker):
    broker = broker(plans=dict.fromkeys((1, 2, 3), "slow 5"))
    broker.publish(1, 2, 3, 1, 2, 3)
    with broker.consumer() as one, broker.consumer() as other:
        work_off([one, other], lambda: len(broker.effects()) == 3 and not any(broker.waiting()))
        for worker in (one, other):
            assert "lease was lost" not in worker.log
    assert broker.count("begun") == broker.effects() == dict.fromkeys((1, 2, 3), 1)
    lines = [line.split() for line in broker.book.read_text().splitlines()]
    assert len({process for event, _, process, _ in lines if event == "effect"}) > 1


@ON_REDIS
def test_a_warm_shutdown_finishes_the_work_and_its_settlement_in_silence(broker):
    broker = broker(plans={1: "slow 3"})
    broker.publish(1)
    with broker.consumer() as worker:
        assert until(lambda: broker.count("begun"), PATIENCE), worker.log
        worker.terminate()
        assert until(lambda: worker.status is not None, PATIENCE)
        assert (worker.status, "Traceback" in worker.log) == (0, False)
    time.sleep(1.2)  # longer than the lease
    broker.publish(1)
    with broker.consumer() as other:
        work_off([other], lambda: broker.count("delivered", 1) > 1 and not any(broker.waiting()))
    assert broker.count("begun") == broker.effects() == {1: 1}
