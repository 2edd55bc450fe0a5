"""The file of docs/how-to/consume-messages.md for Celery, saved and started as its reader does."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.repository import section
from helpers.servers.processes import until

from flask_idempotence import StoreError, rejected
from flask_idempotence.testing import clear_store

pytest.importorskip("rq")
from helpers.brokers import PAGE, CeleryBroker, Consumer, files_of, thrice, work_off

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


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_celery_finds_its_application_by_the_name_of_the_module_too(broker):
    sends_each_once(broker(), "celery -A celery_shop worker")


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


@pytest.mark.parametrize("broker", ["rabbitmq"], indirect=True)
def test_rabbitmq_delivers_again_when_a_worker_dies_with_all_its_children(broker):
    broker = broker(plans={1: "hang"})
    broker.publish(1)
    with broker.consumer() as victim:
        assert until(lambda: broker.count("begun"), PATIENCE), victim.log
        victim.kill()
    with broker.consumer() as other:
        work_off([other], lambda: broker.effects() and not any(broker.waiting()))
    assert not any(broker.waiting())
    assert broker.count("begun") == {1: 2}
    assert broker.effects() == {1: 1}


@pytest.fixture
def page(monkeypatch):
    """The names of the file, its tasks to be carried out at once; and the texts that it sends."""
    for name in ("BROKER_URL", "FLASK_IDEMPOTENCE_STORAGE_URI"):
        monkeypatch.delenv(name, raising=False)
    exec(files_of(section(PAGE, "Celery"))["celery_shop.py"], names := {"__name__": "celery_shop"})
    names["celery"].conf.update(task_always_eager=True)
    names["sent"] = []
    names["send"] = names["sent"].append
    return names


def test_the_tasks_in_the_documentation_are_carried_out_once_and_tried_again(page):
    invoice, reminder = page["send_invoice"], page["send_reminder"]
    assert [invoice.delay(7).get() for _ in range(3)] == [{"order": 7}] * 3
    assert [reminder.delay(7).get() for _ in range(3)] == [None] * 3
    assert page["sent"] == ["Invoice for order 7", "Reminder of order 7"]
    app, once, met = page["flask_app"], page["idempotence"].once, []

    def give_up(app, error, **told):
        met.append(error)
        if len(met) % 5 == 0:  # more often than Celery tries by default
            clear_store(app)

    with rejected.connected_to(give_up, app), ThreadPoolExecutor() as workers:
        for scope, task in (("invoice", invoice), ("reminder", reminder)):
            with app.app_context(), once(scope, 8):
                workers.submit(lambda task=task: task.delay(8).get()).result()
    assert page["sent"][2:] == ["Invoice for order 8", "Reminder of order 8"]
    assert len(met) == 10


def test_the_tasks_in_the_documentation_outlast_a_store_that_is_away(page, monkeypatch):
    store = page["flask_app"].extensions["idempotence"].engine.store
    claim, tried = store.claim, []

    def claim_at_last(*what):
        tried.append(1)
        if len(tried) % 5:  # more often than Celery tries by default
            raise StoreError("away")
        return claim(*what)

    monkeypatch.setattr(store, "claim", claim_at_last)
    page["send_invoice"].delay(9).get()
    page["send_reminder"].delay(9).get()
    assert page["sent"] == ["Invoice for order 9", "Reminder of order 9"]
    assert len(tried) == 10
