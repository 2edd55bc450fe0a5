"""The consumers of docs/how-to/consume-messages.md, while store and broker go away."""

import contextlib
import time

import pytest
from helpers.servers.processes import RedisServer, until

pytest.importorskip("rq")
from helpers.brokers import BROKERS, CeleryBroker, RqBroker, TableBroker, make_broker, work_off

pytestmark = pytest.mark.queue

ORDERS = range(1, 9)
AWAY = 3  # seconds
QUICK = ("--maintenance-interval=5", "--job-monitoring-interval=1", "--worker-ttl=20")
SOON = {"celery.conf.broker_transport_options": {"confirm_publish": True, "visibility_timeout": 5}}
"""Messages of workers that ended while Redis was away come back after an hour otherwise."""


class QuickRq(RqBroker):
    """Workers that look often after jobs that have ended in silence; after 61 seconds at least."""

    command = (*RqBroker.command[:2], *QUICK, *RqBroker.command[2:])


class Reminders(CeleryBroker):
    """The task of the page that `autoretry_for` tries again."""

    def publish(self, *orders):
        super().publish(*orders, task="send_reminder")


CONSUMERS = {
    **{
        name: (kind, server and f"fresh_{server}", more)
        for name, (kind, server, more) in BROKERS.items()
    },
    "rq": (QuickRq, *BROKERS["rq"][1:]),
    "autoretry_for": (Reminders, None, {}),
    "autoretry_for_on_rabbit": (Reminders, "fresh_rabbitmq", {}),
}
OUTAGES = [
    (name, away)
    for name in CONSUMERS
    for away in ("store", "broker", "both")
    if away == "both" or not name.endswith("table")
]


@contextlib.contextmanager
def started(name, away, constants, directory, request):
    kind, fixture, usual = CONSUMERS[name]
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    with RedisServer(*durable) as redis, RedisServer(*durable) as other:
        server = fixture and request.getfixturevalue(fixture)
        broker = make_broker(kind, directory, redis.url, server, **usual, **constants)
        store = redis if server or away == "both" else other
        if kind is TableBroker:
            store = server
        else:
            broker.env["FLASK_IDEMPOTENCE_STORAGE_URI"] = store.url
        queue = server or redis
        yield broker, {"store": {store}, "broker": {queue}, "both": {queue, store}}[away]


@pytest.mark.parametrize(
    ("name", "away", "ends"),
    [
        # A third is run by -m queue alone: each consumer, each outage, and both ends of workers.
        pytest.param(*outage, ends, marks=pytest.mark.deep if (n + n // 3 + ends) % 3 else ())
        for n, outage in enumerate(OUTAGES)
        for ends in (False, True)
    ],
)
def test_no_message_is_lost_while_store_or_broker_is_away(tmp_path, request, name, away, ends):
    """Each takes effect, once if no worker ends: those at work, and those that wait."""
    is_celery_on_redis = name in {"celery", "autoretry_for"}
    constants = SOON if ends and is_celery_on_redis else {}
    with (
        started(name, away, constants, tmp_path, request) as (broker, servers),
        broker.consumer() as one,
        broker.consumer() as two,
    ):
        broker.publish(0)
        assert until(lambda: broker.effects() == {0: 1}, 60), one.log
        with broker.holding():
            broker.publish(*ORDERS)
            assert until(lambda: broker.count("held", 0) >= 2, 30)
            for server in servers:
                server.stop()
        time.sleep(AWAY / 2)
        if ends:
            one.terminate()
            two.kill()
        time.sleep(AWAY / 2)
        for server in servers:
            server.start()
        effects = dict.fromkeys([0, *ORDERS], 1)

        def is_done():
            return {*effects} == {*broker.effects()} and not any(broker.waiting())

        work_off([one, two], is_done, supervised=True)
        assert broker.set_aside() == 0
        assert ends or broker.effects() == effects
